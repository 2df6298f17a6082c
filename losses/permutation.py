"""Likelihoods of whole orders under the Plackett-Luce model: ListMLE and RankDistil."""

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses import base, stochastic
from rank4class.losses.ops import gumbel, log_space, ranks

__all__ = ["CoupledRankDistil", "ListMLE", "coupled_rank_distil", "list_mle"]


@tf.autograph.experimental.do_not_convert
def list_mle(
    scores: TensorLike,
    labels: TensorLike,
    *,
    seed: TensorLike,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
) -> tf.Tensor:
    r"""ListMLE: negative log-likelihood of the order of the labels under the Plackett-Luce model.

    $$\ell = \sum_i \Big(\log \sum_{j \ge i} e^{s_{\pi(j)} / \tau} - s_{\pi(i)} / \tau\Big)$$

    `pi` sorts the labels from high to low; the order of classes with equal labels is drawn from the seed.

    Convex in the scores.

    >>> list_mle([[0., 0., 0.]], [[2., 1., 0.]], seed=[0, 0]).numpy().round(4)  # log 3!
    array([1.7918], dtype=float32)

    References:
      Xia, Liu, Wang, Zhang, Li (2008), "Listwise approach to learning to rank".
    """
    stochastic.check_seed(seed)
    arguments.check_positive(temperature=temperature)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        shuffle = tf.argsort(gumbel.noise(tf.shape(scores), seed), axis=-1)
        shuffled = ranks.take(tf.where(where, labels, -float("inf")), shuffle)
        order = ranks.take(shuffle, tf.argsort(shuffled, axis=-1, direction="DESCENDING", stable=True))
        losses = _plackett_luce(ranks.take(scores / temperature, order), ranks.take(where, order))
        return _zero_without_relevant(losses, labels)

    return base.evaluate(None, of_dense, scores, labels, where, weights)


@tf.autograph.experimental.do_not_convert
def coupled_rank_distil(
    scores: TensorLike,
    labels: TensorLike,
    *,
    seed: TensorLike,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    samples: int = 8,
    top_k: int | None = None,
) -> tf.Tensor:
    r"""RankDistil: cross entropy of the model's orders against a teacher's.

    $$\ell = -\frac{1}{S} \sum_{i=1}^{S} \log P_K(\pi_i \mid s / \tau), \quad \pi_i \sim P(\cdot \mid t)$$

    `P` is the Plackett-Luce model, `P_K` that of its first `K` ranks.

    Convex in the scores.

    Args:
      labels: `t`, the scores of the teacher, at least 0.
      top_k: `K`, at least 1; None counts the whole list.

    >>> coupled_rank_distil([[0., 0., 0.]], [[2., 1., 0.]], seed=[0, 0], top_k=1).numpy().round(4)
    array([1.0986], dtype=float32)

    References:
      Reddi et al. (2021), "RankDistil: knowledge distillation for ranking".
    """
    stochastic.check_seed(seed)
    arguments.check_integer(samples=samples)
    if top_k is not None:
        arguments.check_integer(top_k=top_k)
    arguments.check_positive(temperature=temperature)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        shape = tf.concat([[samples], tf.shape(scores)], axis=0)
        # The order of the labels with Gumbel noise is a draw from the teacher's Plackett-Luce model.
        noisy = tf.where(where, labels + gumbel.noise(shape, seed), -float("inf"))
        order = tf.argsort(noisy, axis=-1, direction="DESCENDING", stable=True)
        scores, where = (tf.broadcast_to(x, shape) for x in (scores / temperature, where))
        losses = _plackett_luce(ranks.take(scores, order), ranks.take(where, order), top_k)
        return _zero_without_relevant(tf.reduce_mean(losses, axis=0), labels)

    return base.evaluate(None, of_dense, scores, labels, where, weights)


def _plackett_luce(scores: tf.Tensor, where: tf.Tensor, top_k: int | None = None) -> tf.Tensor:
    """Returns the negative log-likelihood of the order in which the classes come, masked ones last."""
    remaining = log_space.remaining_logsumexp(tf.where(where, scores, ranks.MASKED))
    # The last class has no alternative: its term is 0, and its gradient would be rounded.
    size = tf.math.count_nonzero(where, axis=-1, keepdims=True, dtype=tf.int32) - 1
    counts = tf.range(tf.shape(scores)[-1]) < (size if top_k is None else tf.minimum(size, top_k))
    return tf.reduce_sum(tf.where(counts, remaining - scores, 0.0), axis=-1)


def _zero_without_relevant(losses: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.reduce_any(labels > 0.0, axis=-1), losses, 0.0)


ListMLE = base.keras_loss("ListMLE", list_mle)
CoupledRankDistil = base.keras_loss("CoupledRankDistil", coupled_rank_distil)

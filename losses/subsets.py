"""Likelihoods of sets of classes under n-choose-k models."""

import functools

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses import base, cross_entropy
from rank4class.losses.ops import label_checks, ranks, set_sizes, tensors
from rank4class.losses.ops import n_choose_k as model

__all__ = ["CountLikelihood", "NChooseK", "TopKGain", "n_choose_k", "top_k_gain"]


@tf.autograph.experimental.do_not_convert
def n_choose_k(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    levels: int = 2,
) -> tf.Tensor:
    r"""Negative log-likelihood of the relevant classes among all sets of the same size.

    $$\ell = \log Z_k(s) - \sum_{t_j = 1} s_j, \quad Z_k(s) = \sum_{|c| = k} \exp \sum_{j \in c} s_j$$

    `k`, the number of relevant classes, counts as known; `set_sizes` has models of it. Graded labels are
    levels: the highest level chooses its classes first, and each next level among the remaining classes,
    which gives `L - 1` such terms. With one class per level it is the Plackett-Luce model of `list_mle`, with
    one relevant class it is softmax.

    Convex in the scores.

    Args:
      labels: dense ones are whole numbers in `0..levels - 1`, in `O(L n)`; others raise ValueError in eager
        mode, and give NaN otherwise. A level may be empty.
      levels: `L`, at least 2.

    >>> n_choose_k([[0.0, 0.0, 0.0, 0.0]], [[1.0, 1.0, 0.0, 0.0]]).numpy().round(4)  # log 6
    array([1.7918], dtype=float32)
    >>> n_choose_k([[0.0, 0.0, 0.0]], [[2.0, 1.0, 0.0]], levels=3).numpy().round(4)  # log 3 + log 2
    array([1.7918], dtype=float32)

    References:
      Swersky, Tarlow, Adams, Zemel, Frey (2012), "Probabilistic n-choose-k models for classification and
      ranking", eq. 4 and 6.
    """
    arguments.check_integer(2, levels=levels)
    arguments.check_positive(temperature=temperature)
    of_ids = functools.partial(cross_entropy.softmax_of_ids, temperature=temperature)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        valid = label_checks.are_levels(labels, levels)
        scores = tf.cast(scores / temperature, tf.float64)
        remaining = where
        total = 0.0
        for level in range(levels - 1, 0, -1):
            chosen = remaining & (labels == level)
            total -= tf.cast(model.log_likelihood(scores, chosen, where=remaining), tf.float32)
            remaining &= ~chosen
        return tf.where(tf.reduce_all(valid, axis=-1), total, float("nan"))

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


@tf.autograph.experimental.do_not_convert
def top_k_gain(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    k: int = 1,
) -> tf.Tensor:
    r"""Negative logarithm of the probability that the true class is among `K` chosen classes.

    $$\ell = -\log \frac{\sum_j t_j \pi_j}{\sum_{j \le K} t_{[j]}}, \quad \pi_j = p(j \in c \mid K)$$

    under the n-choose-k model (`ops.n_choose_k.marginals`), relative to the gain of the `K` highest labels.
    With several relevant classes it is the logarithm of the expected precision; `K = 1` is softmax. It takes
    `O(n)`. Dense labels have a first derivative, class ids a second one too.

    Args:
      k: the number of chosen classes. A masked list of at most `k` classes has the loss 0.

    >>> top_k_gain([[0.0, 0.0, 0.0, 0.0]], [2], k=3).numpy().round(4)  # -log 3/4
    array([0.2877], dtype=float32)

    References:
      Swersky, Tarlow, Adams, Zemel, Frey (2012), eq. 8.
    """
    arguments.check_integer(1, tensors.dense("scores", scores).shape[-1], k=k)
    arguments.check_positive(temperature=temperature)

    def of_ids(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        scores = tf.cast(scores / temperature, tf.float64)
        others = ranks.others(scores, labels, where)
        all_classes = tf.ones_like(others) if where is None else where
        chosen = tf.minimum(k, tf.math.count_nonzero(all_classes, axis=-1, dtype=tf.int32))
        # The sets with the true class are the sets of one class less among the others.
        num_others = tf.maximum(chosen - 1, 0)
        with_true = ranks.true_score(scores, labels) + model.log_z(scores, num_others, where=others)
        losses = tf.cast(model.log_z(scores, chosen, where=all_classes) - with_true, tf.float32)
        return base.zero_without_relevant(tf.maximum(losses, 0.0), labels, where)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        chosen = tf.minimum(tf.math.count_nonzero(where, axis=-1, dtype=tf.float64), float(k))
        scores = tf.cast(scores / temperature, tf.float64)
        labels = tf.cast(labels, tf.float64)
        shares = model.coin_marginals(scores, chosen, where)
        most = tf.reduce_sum(tf.math.top_k(labels, k).values, axis=-1)
        gain = tf.math.divide_no_nan(tf.reduce_sum(labels * shares, axis=-1), most)
        gain = tf.where(most > 0.0, tf.minimum(gain, 1.0), 1.0)
        is_tiny = gain < model.TINY
        logs = model.tiny_log_marginals(scores, chosen, where, tf.reduce_any(is_tiny))
        logs = tf.where(shares < model.TINY, logs, tf.math.log(tf.maximum(shares, model.TINY)))
        each = tf.where(labels > 0.0, tf.math.log(labels) + logs, ranks.MASKED)
        log_tiny = tf.reduce_logsumexp(each, axis=-1) - tf.math.log(most)
        return -tf.cast(tf.where(is_tiny, log_tiny, tf.math.log(tf.maximum(gain, model.TINY))), tf.float32)

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


@base.serializable
class CountLikelihood(tf.keras.losses.Loss):
    """Negative log-likelihood of the number of relevant classes under a count prior: `set_sizes.count_nll`.

    Use it for a model's output `log_counts`, with `NChooseK` for its `scores`: their sum is the negative
    log-likelihood of the set. `y_pred` is `[B, m + 1]`, the log-probabilities of the counts; `y_true` is as
    for the loss of the scores, `[B, n]` or class ids `[B]` or `[B, 1]`.

    >>> print(CountLikelihood()([[1.0, 0.0, 1.0]], [[-9.0, -9.0, -0.5, -1.0]]).numpy())
    0.5
    """

    def __init__(self, *, reduction: str = base.MEAN, name: str = "count_likelihood") -> None:
        super().__init__(reduction=reduction, name=name, **base.FLOAT32)

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> tf.Tensor:
        y_pred = tensors.dense("y_pred", y_pred)
        return set_sizes.count_nll(y_pred, base.labels_of(y_true, y_pred))


NChooseK = base.keras_loss("NChooseK", n_choose_k)
TopKGain = base.keras_loss("TopKGain", top_k_gain)

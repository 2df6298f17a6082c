"""Losses of instances with several relevant classes each: asymmetric, against a threshold of 0, decoupled."""

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses import base
from rank4class.losses.cross_entropy import softmax_of_ids
from rank4class.losses.ops import log_space, ranks

__all__ = ["ASL", "ZLPR", "DecoupledSoftmax", "asl", "decoupled_softmax", "zlpr"]


def asl(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    margin: float = 0.05,
) -> tf.Tensor:
    r"""Asymmetric loss: sigmoid cross entropy in which easy irrelevant classes count less.

    $$\ell = -\frac{1}{n} \Big(\sum_{j \in P} (1 - q_j)^{\gamma_+} \log q_j
    + \sum_{j \notin P} p_j^{\gamma_-} \log(1 - p_j)\Big),
    \quad q_j = \sigma(s_j), \quad p_j = \max(q_j - m, 0)$$

    With `gamma_positive=0, gamma_negative=0, margin=0` it equals `sigmoid_cross_entropy`, and with equal
    gammas and no margin the focal loss. Dense labels are probabilities, in `[0, 1]`.

    Args:
      gamma_positive, gamma_negative: exponents of relevant and irrelevant classes, at least 0.
      margin: `m`, in [0, 1): irrelevant classes of a probability up to `m` cost nothing. Without a gradient
        the probability of a class that is wrongly labeled irrelevant may stay there.

    >>> asl([[0., 0.]], [[1., 0.]], gamma_negative=1.0, margin=0.0).numpy().round(4)  # 3/4 log 2
    array([0.5199], dtype=float32)

    References:
      Ridnik, Ben-Baruch, Zamir, Noy, Friedman, Protter, Zelnik-Manor (2021), "Asymmetric loss for multi-label
      classification". They sum over the classes.
    """
    arguments.check_at_least(0, gamma_positive=gamma_positive, gamma_negative=gamma_negative)
    arguments.check_fraction(margin=margin)
    options = {"gamma_positive": gamma_positive, "gamma_negative": gamma_negative, "margin": margin}
    return base.evaluate(None, _asl_of_dense, scores, labels, where, weights, **options)


def _asl_of_dense(
    scores: tf.Tensor,
    labels: tf.Tensor,
    where: tf.Tensor,
    gamma_positive: float,
    gamma_negative: float,
    margin: float,
) -> tf.Tensor:
    log_q, log_not_q = -log_space.softplus(-scores), -log_space.softplus(scores)
    if margin:
        q = tf.sigmoid(scores)
        above = q > margin
        shifted = tf.where(above, q - margin, 0.5)  # 0.5 keeps the gradient of classes below finite
        log_p = tf.where(above, tf.math.log(shifted), -float("inf"))
        log_not_p = tf.where(above, tf.math.log1p(-shifted), 0.0)
    else:
        log_p, log_not_p = log_q, log_not_q
    positive = tf.exp(gamma_positive * log_not_q) * log_q
    negative = tf.exp(gamma_negative * log_p) * log_not_p if gamma_negative else log_not_p
    losses = -(labels * positive + (1.0 - labels) * negative)
    total = tf.reduce_sum(tf.where(where, losses, 0.0), axis=-1)
    return tf.math.divide_no_nan(total, ranks.list_size(scores, where))


@base.register
class ASL(base.RankingLoss):
    """`asl` as a Keras loss."""

    function = staticmethod(asl)


def zlpr(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
) -> tf.Tensor:
    r"""Zero-bounded log-sum-exp and pairwise rank loss: relevant classes above 0, the others below.

    $$\ell = \log\Big(1 + \sum_{j \notin P} e^{s_j}\Big) + \log\Big(1 + \sum_{j \in P} e^{-s_j}\Big)$$

    Each label above 0 is relevant. A class is predicted to be relevant if its score is above 0.

    >>> zlpr([[0., 0., 0.]], [[1., 0., 0.]]).numpy().round(4)  # log 3 + log 2
    array([1.7918], dtype=float32)

    References:
      Su, Zhu, Murtadha, Pan, Wen, Liu (2022), "ZLPR: a novel loss for multi-label classification".
    """
    return base.evaluate(None, _zlpr_of_dense, scores, labels, where, weights)


def _zlpr_of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    relevant = labels > 0.0
    above = tf.where(where & ~relevant, scores, ranks.MASKED)
    below = tf.where(where & relevant, -scores, ranks.MASKED)
    sums = [log_space.softplus(tf.reduce_logsumexp(terms, axis=-1)) for terms in (above, below)]
    return sums[0] + sums[1]


@base.register
class ZLPR(base.RankingLoss):
    """`zlpr` as a Keras loss."""

    function = staticmethod(zlpr)


def decoupled_softmax(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
) -> tf.Tensor:
    r"""Softmax cross entropy of each relevant class against the irrelevant classes alone.

    $$\ell = \frac{1}{|P|} \sum_{i \in P} \log\Big(1 + \sum_{j \notin P} e^{(s_j - s_i) / \tau}\Big)$$

    Relevant classes don't compete with each other, as they do in `softmax`. With one it equals `softmax`. The
    mean is weighted by the labels.

    >>> decoupled_softmax([[0., 0., 0.]], [[1., 1., 0.]]).numpy().round(4)  # log 2
    array([0.6931], dtype=float32)

    References:
      Gupta, Khatri, Rawat, Bhojanapalli, Jain, Dhillon (2024), "Dual-encoders for extreme multi-label
      classification".
    """
    forms = (softmax_of_ids, _decoupled_softmax_of_dense)
    return base.evaluate(*forms, scores, labels, where, weights, temperature=temperature)


def _decoupled_softmax_of_dense(
    scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor, temperature: float
) -> tf.Tensor:
    scores /= temperature
    others = tf.reduce_logsumexp(tf.where(where & (labels <= 0.0), scores, ranks.MASKED), axis=-1)
    losses = log_space.softplus(others[..., None] - scores)
    return tf.math.divide_no_nan(tf.reduce_sum(labels * losses, axis=-1), tf.reduce_sum(labels, axis=-1))


@base.register
class DecoupledSoftmax(base.RankingLoss):
    """`decoupled_softmax` as a Keras loss."""

    function = staticmethod(decoupled_softmax)

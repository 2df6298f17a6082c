"""Cross entropies of the softmax, and losses of log-sum-exps for several relevant classes."""

import functools

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses import base
from rank4class.losses.ops import log_space, ranks, tensors

__all__ = [
    "GCE",
    "ZLPR",
    "CalibratedSoftmax",
    "DecoupledSoftmax",
    "Softmax",
    "UniqueSoftmax",
    "calibrated_softmax",
    "decoupled_softmax",
    "gce",
    "softmax",
    "unique_softmax",
    "zlpr",
]


@tf.autograph.experimental.do_not_convert
def softmax(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    label_smoothing: float = 0.0,
) -> tf.Tensor:
    r"""Softmax cross entropy.

    $$\ell = \log \sum_j e^{m_j / \tau} - \frac{a}{n} \sum_j m_j / \tau, \quad m_j = s_j - s_y$$

    Dense labels sum over the relevant classes, each times its label.

    Convex in the scores.

    Args:
      label_smoothing: `a`, in [0, 1): labels `t` become `(1 - a) t + a / n`, as in
        `tf.keras.losses.CategoricalCrossentropy`, where `n` counts the classes that take part.

    >>> softmax([[0., 0., 0., 0.]], [2]).numpy().round(4)  # log 4
    array([1.3863], dtype=float32)

    References:
      Rank4Class, section 4.1. Szegedy, Vanhoucke, Ioffe, Shlens, Wojna (2016), "Rethinking the Inception
      architecture for computer vision", section 7 (label smoothing).
    """
    arguments.check_positive(temperature=temperature)
    arguments.check_fraction(label_smoothing=label_smoothing)
    of_ids = functools.partial(softmax_of_ids, temperature=temperature, label_smoothing=label_smoothing)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        if label_smoothing:
            has_relevant = tf.reduce_any(labels > 0.0, axis=-1, keepdims=True)
            share = tf.math.divide_no_nan(label_smoothing, ranks.list_size(scores, where))[..., None]
            labels = tf.where(where & has_relevant, (1.0 - label_smoothing) * labels + share, 0.0)
        return _cross_entropy(scores / temperature, labels, where)

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


def softmax_of_ids(
    scores: tf.Tensor,
    labels: tf.Tensor,
    where: tf.Tensor | None,
    temperature: float,
    label_smoothing: float = 0.0,
) -> tf.Tensor:
    shown = scores
    if where is not None:
        # A list without its true class keeps all its classes: its loss is finite here and becomes 0 below.
        keep = where | ~base.is_relevant(labels, where)[..., None]
        shown = tf.where(keep, scores, -float("inf"))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, shown / temperature)
    if label_smoothing:
        margins = scores - ranks.true_score(scores, labels)[..., None]
        total = tf.reduce_sum(margins if where is None else tf.where(where, margins, 0.0), axis=-1)
        mean = tf.math.divide_no_nan(total, ranks.list_size(scores, where))
        losses -= label_smoothing / temperature * mean
    return base.zero_without_relevant(losses, labels, where)


def _cross_entropy(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    log_shares = tf.nn.log_softmax(tf.where(where, scores, ranks.MASKED))
    return -tf.reduce_sum(tf.math.multiply_no_nan(log_shares, labels), axis=-1)


@tf.autograph.experimental.do_not_convert
def calibrated_softmax(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    virtual_label: float = 0.0,
) -> tf.Tensor:
    r"""Softmax cross entropy with one more class of score 0, against which scores become log odds.

    $$\ell = (1 + v) \log \Big(1 + \sum_j e^{s_j / \tau}\Big) - s_y / \tau$$

    Convex in the scores.

    Args:
      virtual_label: `v >= 0`, the label of the additional class.

    >>> calibrated_softmax([[0., 0., 0.]], [2]).numpy().round(4)  # log 4
    array([1.3863], dtype=float32)

    References:
      Yan, Qin, Wang, Bendersky, Najork (2022), "Scale calibration of deep ranking models".
    """
    arguments.check_positive(temperature=temperature)
    arguments.check_at_least(0, virtual_label=virtual_label)

    def of_ids(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        scores /= temperature
        if where is not None:
            scores = tf.where(where, scores, ranks.MASKED)
        # Large scores keep their digits, as the true score is subtracted before the exponentials.
        true = ranks.true_score(scores, labels)[..., None]
        additional_loss = virtual_label * log_space.softplus(tf.reduce_logsumexp(scores, axis=-1))
        true_loss = tf.reduce_logsumexp(tf.concat([scores - true, -true], axis=-1), axis=-1)
        if where is not None:  # a list without its true class keeps the cost of the additional class
            true_loss = tf.where(base.is_relevant(labels, where), true_loss, 0.0)
        return true_loss + additional_loss

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        scores = tensors.with_end(scores / temperature, 0.0)
        where = tensors.with_end(where, True)
        return _cross_entropy(scores, tensors.with_end(labels, virtual_label), where)

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


@tf.autograph.experimental.do_not_convert
def unique_softmax(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
) -> tf.Tensor:
    r"""Softmax cross entropy of every class against the classes with a lower label.

    $$\ell = \sum_i (2^{t_i} - 1) \log \Big(1 + \sum_{j : t_j < t_i} e^{(s_j - s_i) / \tau}\Big)$$

    With one relevant class it equals `softmax`.

    Convex in the scores.

    >>> unique_softmax([[0., 0., 0.]], [[2., 1., 0.]]).numpy().round(4)  # 3 log 3 + log 2
    array([3.989], dtype=float32)

    References:
      Zhu, Klabjan (2020), "Listwise learning to rank by exploring unique ratings".
    """
    arguments.check_positive(temperature=temperature)
    of_ids = functools.partial(softmax_of_ids, temperature=temperature)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        gains = tf.math.expm1(labels * tf.math.log(2.0))
        logits = scores / temperature
        margins = logits[..., None, :] - logits[..., :, None]
        is_higher = labels[..., :, None] > labels[..., None, :]
        is_higher &= where[..., :, None] & where[..., None, :]
        below = tf.reduce_logsumexp(tf.where(is_higher, margins, ranks.MASKED), axis=-1)
        gains = tf.where(tf.reduce_any(is_higher, axis=-1), gains, 0.0)  # which may be infinite
        return tf.reduce_sum(gains * log_space.softplus(below), axis=-1)

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


@tf.autograph.experimental.do_not_convert
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

    Convex in the scores.

    >>> decoupled_softmax([[0., 0., 0.]], [[1., 1., 0.]]).numpy().round(4)  # log 2
    array([0.6931], dtype=float32)

    References:
      Gupta, Khatri, Rawat, Bhojanapalli, Jain, Dhillon (2024), "Dual-encoders for extreme multi-label
      classification".
    """
    arguments.check_positive(temperature=temperature)
    of_ids = functools.partial(softmax_of_ids, temperature=temperature)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        scores /= temperature
        others = tf.reduce_logsumexp(tf.where(where & (labels <= 0.0), scores, ranks.MASKED), axis=-1)
        losses = log_space.softplus(others[..., None] - scores)
        return tf.math.divide_no_nan(tf.reduce_sum(labels * losses, axis=-1), tf.reduce_sum(labels, axis=-1))

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


@tf.autograph.experimental.do_not_convert
def gce(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    q: float = 0.5,
) -> tf.Tensor:
    r"""Generalized cross entropy, which wrong labels change less than softmax, as it is bounded.

    $$\ell = \frac{1 - p_y^q}{q}, \quad p = \operatorname{softmax}(s / \tau)$$

    As `q` falls it tends to softmax. With 1 it is half the absolute error of the probabilities. Dense labels
    sum over the relevant classes, each times its label.

    Args:
      q: in (0, 1]. The paper uses 0.7.

    >>> gce([[0., 0., 0., 0.]], [2], q=0.5).numpy()  # 2 (1 - 1/2)
    array([1.], dtype=float32)

    References:
      Zhang, Sabuncu (2018), "Generalized cross entropy loss for training deep neural networks with noisy
      labels", eq. 6.
    """
    arguments.check_positive(temperature=temperature, q=q)
    if q > 1.0:
        raise ValueError(f"q={q}: above 1. Choose one in (0, 1].")

    def of_ids(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        return -tf.math.expm1(-q * softmax_of_ids(scores, labels, where, temperature)) / q

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        log_shares = tf.nn.log_softmax(tf.where(where, scores / temperature, ranks.MASKED))
        return -tf.reduce_sum(labels * tf.math.expm1(q * log_shares), axis=-1) / q

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


@tf.autograph.experimental.do_not_convert
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

    Convex in the scores.

    >>> zlpr([[0., 0., 0.]], [[1., 0., 0.]]).numpy().round(4)  # log 3 + log 2
    array([1.7918], dtype=float32)

    References:
      Su, Zhu, Murtadha, Pan, Wen, Liu (2022), "ZLPR: a novel loss for multi-label classification".
    """

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        relevant = labels > 0.0
        above = tf.where(where & ~relevant, scores, ranks.MASKED)
        below = tf.where(where & relevant, -scores, ranks.MASKED)
        sums = [log_space.softplus(tf.reduce_logsumexp(terms, axis=-1)) for terms in (above, below)]
        return sums[0] + sums[1]

    return base.evaluate(None, of_dense, scores, labels, where, weights)


Softmax = base.keras_loss("Softmax", softmax, sums_exponentials=True)
CalibratedSoftmax = base.keras_loss("CalibratedSoftmax", calibrated_softmax, sums_exponentials=True)
UniqueSoftmax = base.keras_loss("UniqueSoftmax", unique_softmax, sums_exponentials=True)
DecoupledSoftmax = base.keras_loss("DecoupledSoftmax", decoupled_softmax, sums_exponentials=True)
GCE = base.keras_loss("GCE", gce, sums_exponentials=True)
ZLPR = base.keras_loss("ZLPR", zlpr, threshold=0.0, sums_exponentials=True)

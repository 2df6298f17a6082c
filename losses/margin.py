"""Losses with a margin of 1, beyond which a class costs nothing: Rankmax, sparsemax and WARP."""

from collections.abc import Callable

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses import base
from rank4class.losses.ops import projections, ranks, sums, tensors, thresholds, top_relevant

__all__ = ["WARP", "Rankmax", "Sparsemax", "rankmax", "sparsemax", "warp"]


@tf.autograph.experimental.do_not_convert
def rankmax(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    k: int = 1,
    max_relevant: int | None = None,
) -> tf.Tensor:
    r"""Rankmax cross entropy: the true class against the classes within a margin of it.

    $$\ell = -\log \min(1, \alpha_y (s_y - \mu_y)), \quad \mu_y = \min(s_y, s_{[k]}) - 1$$

    where `alpha` is such that the shares of all classes, each between 0 and 1, sum to `k`
    (`projections.rankmax`). For `k = 1`, with margins `m_j = s_j - s_y`, it is

    $$\ell = \log \sum_j \max(0, 1 + m_j)$$

    and 0 if all other classes are behind by a margin of 1. Dense labels sum over the relevant classes, each
    times its label, in `O(n log m)` altogether, where `m` is `max_relevant`; they may round 0 to 1e-6.

    Args:
      k: the number of selected classes. Class ids take `O(n log k)`. A masked list of at most `k` classes has
        the loss 0.
      max_relevant: the largest number of relevant classes of a list with dense labels; None allows all `n`.
        A smaller number is faster. More relevant classes raise ValueError in eager mode, else give NaN.

    >>> rankmax([[2.0, 1.5, 0.0]], [1]).numpy().round(4)  # log 2.5
    array([0.9163], dtype=float32)

    References:
      Kong, Krichene, Mayoraz, Rendle, Zhang (2020), "Rankmax: an adaptive projection alternative to the
      softmax function", eq. 14.
    """
    arguments.check_integer(1, tensors.dense("scores", scores).shape[-1], k=k)
    arguments.check_positive(temperature=temperature)

    def of_ids(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        scores /= temperature
        if k == 1:
            losses = tf.math.log1p(sums.margin_sum(sums.hinge, scores, labels, where))
        else:
            shown = scores if where is None else projections.behind_all(scores, where)
            losses = base.nan_unless_finite(_minus_log_share(shown, labels, k), scores)
        losses = base.zero_without_relevant(losses, labels, where)
        return losses if where is None else tf.where(ranks.list_size(scores, where) > k, losses, 0.0)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        scores = tf.where(where, scores / temperature, ranks.MASKED)
        relevant, gains = _relevant(scores, labels, max_relevant)
        losses = tf.reduce_sum(gains * _minus_log_shares(scores, relevant, k), axis=-1)
        return tf.where(ranks.list_size(scores, where) > k, losses, 0.0)

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


def _minus_log_share(scores: tf.Tensor, labels: tf.Tensor, k: int) -> tf.Tensor:
    """Returns `-log` of the true class's share, `[...]`; 0 if the share is 1."""

    @tf.custom_gradient
    def loss(scores: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        scores -= ranks.true_score(scores, labels)[..., None]  # near the level no digit is rounded off
        level, rest, held, last = projections.adaptive_level(scores, labels, k)
        true = tf.maximum(1.0, -level)
        rest = tf.maximum(true, rest)
        free = k - held
        is_held = true * free >= rest
        value = tf.where(is_held, 0.0, tf.math.log(rest / free) - tf.math.log(true))

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            upstream = tf.where(is_held, 0.0, upstream)
            above = scores - level[..., None]
            inside = (above > 0.0) & (above * free[..., None] <= rest[..., None])
            each = tf.where(inside, (upstream / rest)[..., None], 0.0)
            # The level moves with the lower of the true and the k-th score, against all scores above it.
            lift = upstream / true - tf.reduce_sum(each, axis=-1)
            grad_true = tf.one_hot(labels, tf.shape(scores)[-1]) * (upstream / true)[..., None]
            return each - grad_true + projections.at_lowest(scores, labels, last, lift)

        return value, gradient

    return loss(scores)


def _minus_log_shares(scores: tf.Tensor, relevant: tf.Tensor, k: int) -> tf.Tensor:
    """Returns `-log` of the share of each of the relevant classes, `[..., m]`, whose scores fall."""
    if k == 1:
        total, _ = _within_margin(scores, relevant)
        return tf.math.log(tf.maximum(total, 1.0))
    # See `projections.adaptive_level`. A lower class has a lower level, and fewer classes with the share 1.
    top, last, _, is_behind = projections.first(scores, k)
    relevant -= last
    level = tf.minimum(relevant, 0.0) - 1.0
    behind, _ = thresholds.excess(tf.where(is_behind, scores, -float("inf")), level, last)
    lead = top - last
    led = ranks.running_sum(lead, reverse=True)
    held = thresholds.count(projections.left_of(k) * lead - led, behind)
    free = tf.cast(k - held, scores.dtype)
    rest = behind + ranks.take(led, held) - free * level
    share = (relevant - level) * free / tf.maximum(rest, relevant - level)
    return tf.where(share < 1.0, -tf.math.log(share), 0.0)


@tf.autograph.experimental.do_not_convert
def sparsemax(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
) -> tf.Tensor:
    r"""Sparsemax loss: the Fenchel-Young loss of the Euclidean projection `p` on the simplex.

    $$\ell = \sum_j p_j m_j + \tfrac{1}{2} (1 - \lVert p \rVert^2), \quad m_j = s_j - s_y$$

    Its gradient is `p - e_y`, and it is 0 if the true class is first by a margin of 1. It takes one pass over
    the scores if at most 64 classes of a list have a share, and otherwise `O(n)` per step of a search. Dense
    labels sum over the relevant classes, each times its label.

    Convex in the scores.

    >>> sparsemax([[2.0, 1.5, 0.0]], [1]).numpy()  # p is (0.75, 0.25, 0)
    array([0.5625], dtype=float32)

    References:
      Martins, Astudillo (2016), "From softmax to sparsemax: a sparse model of attention and multi-label
      classification", section 4; Blondel, Martins, Niculae (2020), "Learning with Fenchel-Young losses".
    """
    arguments.check_positive(temperature=temperature)

    def of_ids(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        scores /= temperature
        losses = _sparsemax_of_ids(scores if where is None else projections.behind_all(scores, where), labels)
        lowest, highest = (reduce(scores, axis=-1) for reduce in (tf.reduce_min, tf.reduce_max))
        finite = tf.math.is_finite(lowest) & tf.math.is_finite(highest)  # NaN is the lowest and the highest
        losses = tf.where(finite, losses, float("nan"))
        return base.zero_without_relevant(losses, labels, where)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        return _sparsemax_of_dense(projections.behind_all(scores / temperature, where), labels)

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


@tf.custom_gradient
def _sparsemax_of_ids(scores: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    highest, level, support = projections.simplex_level(scores)

    def shares() -> tf.Tensor:
        return tf.nn.relu(scores - highest[..., None] - level[..., None])

    def mean_of(shares: tf.Tensor) -> tf.Tensor:  # a share is how far its class is above the level
        return tf.reduce_sum(shares * (-level[..., None] - 0.5 * shares), axis=-1)

    support_mean = mean_of(support.above)
    are_complete = tf.reduce_all(support.is_complete)
    mean = tf.cond(
        are_complete,
        lambda: support_mean,
        lambda: tf.where(support.is_complete, support_mean, mean_of(shares())),
    )
    value = highest - ranks.true_score(scores, labels) - mean + 0.5

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        def to_support() -> tf.Tensor:
            classes = tf.concat([support.classes, tf.cast(labels, tf.int32)[..., None]], axis=-1)
            slopes = tf.concat([support.above, -tf.ones_like(level)[..., None]], axis=-1)
            return ranks.put(upstream[..., None] * slopes, classes, scores)

        def to_all() -> tf.Tensor:
            true = tf.one_hot(labels, tf.shape(scores)[-1])
            return upstream[..., None] * shares() - upstream[..., None] * true

        return tf.cond(are_complete, to_support, to_all), None

    return value, gradient


@tf.custom_gradient
def _sparsemax_of_dense(scores: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    shares = projections.sparsemax(scores)
    total = tf.reduce_sum(labels, axis=-1)
    behind = tf.reduce_max(scores, axis=-1, keepdims=True) - scores
    mean = tf.reduce_sum(shares * (behind + 0.5 * shares), axis=-1, keepdims=True)
    value = tf.reduce_sum(tf.where(labels > 0.0, labels * (behind - mean + 0.5), 0.0), axis=-1)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        return upstream[..., None] * (total[..., None] * shares - labels), None

    return value, gradient


@tf.autograph.experimental.do_not_convert
def warp(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    max_relevant: int | None = None,
) -> tf.Tensor:
    r"""WARP: hinge loss of the classes within a margin, weighted by the number of those classes.

    $$\ell = \frac{1}{v} \sum_{i=1}^{v} \frac{1}{i} \sum_{j \ne y} \max(0, 1 + m_j), \quad
    v = |\{j \ne y : m_j > -1\}|$$

    No gradient flows through the weight. Dense labels sum over the relevant classes, each times its label,
    against the irrelevant ones, in `O(n log m)`, where `m` is `max_relevant` (see `rankmax`).

    >>> warp([[2.0, 1.5, 0.0]], [1]).numpy().round(4)
    array([1.5], dtype=float32)

    References:
      Weston, Bengio, Usunier (2011), "Wsabie: scaling up to large vocabulary image annotation"; Rankmax,
      section 3.3, which counts the true class among the `v`.
    """
    arguments.check_positive(temperature=temperature)

    def of_ids(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        scores /= temperature
        margins = scores - ranks.true_score(scores, labels)[..., None]
        violates = ranks.others(scores, labels, where) & (margins > -1.0)
        violators = tf.reduce_sum(tf.cast(violates, tf.float32), axis=-1)
        total = sums.margin_sum(sums.hinge, scores, labels, where)
        return base.zero_without_relevant(_warp_weight(violators) * total, labels, where)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        scores = tf.where(where, scores / temperature, ranks.MASKED)
        relevant, gains = _relevant(scores, labels, max_relevant)
        # The violators of a relevant class are the irrelevant classes within a margin of it.
        irrelevant = tf.where(where & (labels == 0.0), scores, -float("inf"))
        total, violators = _within_margin(irrelevant, relevant)
        return tf.reduce_sum(gains * _warp_weight(violators) * total, axis=-1)

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


def _warp_weight(violators: tf.Tensor) -> tf.Tensor:
    """Returns the harmonic number of the violators over their number, as a constant."""
    harmonic = tf.math.digamma(violators + 1.0) - tf.math.digamma(1.0)
    return tf.stop_gradient(tf.math.divide_no_nan(harmonic, violators))


def _within_margin(scores: tf.Tensor, relevant: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the summed excess of the classes within 1 of each relevant class, and their number."""
    origin = relevant[..., :1]
    return thresholds.excess(scores, relevant - origin - 1.0, origin)


def _relevant(scores: tf.Tensor, labels: tf.Tensor, max_relevant: int | None) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the falling scores of the relevant classes and their labels, both `[..., m]`.

    They are padded with the lowest of those scores and the label 0. More than `max_relevant` relevant classes
    raise ValueError in eager mode, and get labels of NaN otherwise.
    """
    too_many = top_relevant.too_many(labels, max_relevant)[..., None]
    relevant, gains = top_relevant.sorted_scores(scores, labels, max_relevant)
    lowest = tf.reduce_min(tf.where(gains > 0.0, relevant, float("inf")), axis=-1, keepdims=True)
    lowest = tf.where(tf.math.is_finite(lowest), lowest, 0.0)
    return tf.where(gains > 0.0, relevant, lowest), tf.where(too_many, float("nan"), gains)


Rankmax = base.keras_loss("Rankmax", rankmax)
Sparsemax = base.keras_loss("Sparsemax", sparsemax)
WARP = base.keras_loss("WARP", warp)

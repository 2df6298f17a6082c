r"""Projections onto the (n, k)-simplex: shares of the classes between 0 and 1 that sum to `k`.

$$\Delta_k = \{p \in [0, 1]^n : \textstyle\sum_j p_j = k\}, \quad
p_\alpha(s) = \operatorname{argmin}_{p \in \Delta_k} -\langle s, p \rangle + \tfrac{1}{\alpha} g(p)$$

If `g` is half the squared norm, it is the Euclidean projection; if `g` is the negative entropy, it is a
softmax with `k` winners. `rankmax` chooses `alpha` by the true class. A higher score never has a smaller
share, and a shift of all scores changes nothing.

Common arguments:
  scores: float16, bfloat16, float32 or float64 `[..., n]`, finite; computed in float32.
  k: int in `1..n`, the number of selected classes.
  where: optional bool, broadcastable to `[..., n]`: the classes that take part; the others have the share
    0. If at most `k` classes take part, each has the share 1.

Every function returns float32 `[..., n]`, and NaN for an instance with a score that is not finite. Custom
gradients avoid differentiation through searches and sorts.

Common errors:
  ValueError: `k` is outside `1..n`, `alpha` is not positive, or shapes or dtypes do not fit.

References:
  Kong, Krichene, Mayoraz, Rendle, Zhang (2020), "Rankmax: an adaptive projection alternative to the softmax
  function"; Michelot (1986), "A finite algorithm for finding the projection of a point onto the canonical
  simplex of R^n".
"""

import typing
from collections.abc import Callable

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses.ops import label_checks, log_space, ranks, tensors

_SEARCH_STEPS = 100
_SORTED = 64  # classes that the search for a level on the simplex sorts first
_ROUNDING = 2.0**-22
_FAR = 200.0  # e^-200 is 0 in float32


@tf.autograph.experimental.do_not_convert
def euclidean(
    scores: TensorLike, *, k: int = 1, alpha: float = 1.0, where: TensorLike | None = None
) -> tf.Tensor:
    r"""Euclidean projection onto the (n, k)-simplex.

    $$p_j = \text{clip}(\alpha s_j - \mu, 0, 1), \quad \textstyle\sum_j p_j = k$$

    Newton's method within a bracket finds `mu` (Theorem 2). Each step takes `O(n)`, and the search ends,
    exactly, on the linear piece that contains the solution. For `k = 1` see `simplex_level`.

    Args:
      alpha: positive; a larger value concentrates the shares on the `k` highest scores. A number or a tensor
        broadcastable to `[..., 1]`.

    >>> euclidean([[2.0, 1.5, 1.0, 0.0]], k=2).numpy()
    array([[1.  , 0.75, 0.25, 0.  ]], dtype=float32)

    References:
      Rankmax, Theorem 2 and eq. 8.
    """
    arguments.check_positive(alpha=alpha)

    @tf.custom_gradient
    def project(scores: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        if k == 1:
            highest, level, _ = simplex_level(scores)
            shares = tf.nn.relu(scores - highest[..., None] - level[..., None])
        else:
            _, last, _, _ = first(scores, k)
            scores -= last  # keeps the digits near the level
            shares = tf.clip_by_value(scores - _level(scores, k)[..., None], 0.0, 1.0)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return _centered(upstream, tf.cast((shares > 0.0) & (shares < 1.0), tf.float32))

        return shares, gradient

    return _projected(project, scores, k, where, alpha)


def sparsemax(scores: TensorLike, *, where: TensorLike | None = None) -> tf.Tensor:
    """Euclidean projection onto the standard simplex, `k = 1`: a softmax with zeros.

    >>> sparsemax([[2.0, 1.5, 0.0]]).numpy()
    array([[0.75, 0.25, 0.  ]], dtype=float32)

    References:
      Martins, Astudillo (2016), "From softmax to sparsemax: a sparse model of attention and multi-label
      classification".
    """
    return euclidean(scores, where=where)


@tf.autograph.experimental.do_not_convert
def entropy(
    scores: TensorLike, *, k: int = 1, alpha: float = 1.0, where: TensorLike | None = None
) -> tf.Tensor:
    r"""Entropy projection onto the (n, k)-simplex: a softmax with `k` winners. For `alpha` see `euclidean`.

    $$p_j = \min(1, e^{\alpha s_j - c}), \quad \textstyle\sum_j p_j = k$$

    `c` follows from the number of classes with the share 1, fewer than `k` of the highest scores: `O(n log
    k)`.

    >>> entropy([[9.0, 0.0, 0.0]], k=2).numpy()
    array([[1. , 0.5, 0.5]], dtype=float32)

    References:
      Rankmax, Theorem 2; Warmuth, Kuzmin (2008), "Randomized online PCA algorithms with regret bounds that
      are logarithmic in the dimension".
    """
    arguments.check_positive(alpha=alpha)

    @tf.custom_gradient
    def project(scores: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        last, level = _entropy_level(scores, k)
        log_shares = scores - last - level[..., None]
        shares = tf.exp(tf.minimum(log_shares, 0.0))

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return _centered(upstream, tf.where(log_shares < 0.0, shares, 0.0))

        return shares, gradient

    return _projected(project, scores, k, where, alpha)


@tf.autograph.experimental.do_not_convert
def rankmax(
    scores: TensorLike, labels: TensorLike, *, k: int = 1, where: TensorLike | None = None
) -> tf.Tensor:
    r"""Euclidean projection with an `alpha` that gives the true class a positive share.

    $$p_j = \text{clip}(\alpha_y (s_j - \mu_y), 0, 1), \quad \mu_y = \min(s_y, s_{[k]}) - 1, \quad
    \textstyle\sum_j p_j = k$$

    For `k = 1` it is `relu(m_j + 1)` over its sum, with margins `m_j = s_j - s_y`. `O(n log k)`.

    Args:
      labels: integer `[...]`, the true classes; the shares are NaN if one is outside the classes.

    >>> rankmax([[2.0, 1.5, 0.0]], [1]).numpy()
    array([[0.6, 0.4, 0. ]], dtype=float32)

    References:
      Rankmax, Proposition 3, definition 4 and eq. 15.
    """
    scores = tensors.dense("scores", scores)
    labels = tensors.dense("labels", labels)
    tensors.check_ids(labels, scores)
    labels = tensors.widen(labels)

    @tf.custom_gradient
    def project(scores: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        scores -= ranks.true_score(scores, labels)[..., None]  # keeps the digits near the level
        level, rest, held, last = adaptive_level(scores, labels, k)
        above = scores - level[..., None]
        alpha = (k - held) / rest
        shares = tf.clip_by_value(alpha[..., None] * above, 0.0, 1.0)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            inside = (shares > 0.0) & (shares < 1.0)
            upstream = tf.where(inside, upstream, 0.0)
            # A rising score lowers alpha; the score that sets the level raises all shares.
            pull = alpha * tf.reduce_sum(upstream * above, axis=-1) / rest
            each = alpha[..., None] * upstream - tf.where(inside, pull[..., None], 0.0)
            lift = _count(inside) * pull - alpha * tf.reduce_sum(upstream, axis=-1)
            return each + at_lowest(scores, labels, last, lift)

        return shares, gradient

    known = label_checks.known(labels, tensors.length(scores))
    return tf.where(known[..., None], _projected(project, scores, k, where), float("nan"))


def adaptive_level(scores: tf.Tensor, labels: tf.Tensor, k: int) -> tuple[tf.Tensor, ...]:
    """Returns `mu`, `r` and `t` of a Rankmax projection, float32 `[...]`, and the class of the k-th score.

    With the level `mu` and `t` classes of share 1, the shares are `clip((k - t) (s_j - mu) / r, 0, 1)`, where
    `r` is the summed excess over the level of all classes but the first `t` (Rankmax, eq. 11 and 12).
    """
    top, last, last_class, is_behind = first(scores, k)
    level = tf.minimum(ranks.true_score(scores, labels), last[..., 0]) - 1.0
    behind = tf.reduce_sum(tf.where(is_behind, tf.nn.relu(scores - level[..., None]), 0.0), axis=-1)
    # The t-th class is held at 1 if its share would exceed 1: (k - t) (s_t - mu) exceeds the sum of s_i - mu
    # from it on. The part below the k-th score is on both sides and cancels.
    lead = top - last
    held = left_of(k) * lead - ranks.running_sum(lead, reverse=True) > behind[..., None]
    t = _count(held)
    rest = behind + tf.reduce_sum(tf.where(held, 0.0, lead), axis=-1) + (k - t) * (last[..., 0] - level)
    return level, rest, t, tf.cast(last_class, labels.dtype)


def first(scores: tf.Tensor, k: int) -> tuple[tf.Tensor, ...]:
    """Returns the `k` highest scores, the last `[..., 1]`, its class `[...]`, and which are behind it."""
    top, classes = tf.math.top_k(scores, k)
    last = tf.reduce_min(top, axis=-1, keepdims=True)  # a slice would make XLA sort all scores
    # Among equal scores, lower class ids come first.
    last_class = tf.reduce_max(tf.where(top == last, classes, 0), axis=-1)
    is_later = tf.range(tensors.length(scores)) > last_class[..., None]
    return top, last, last_class, (scores < last) | (scores == last) & is_later


def behind_all(scores: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Returns scores in which masked classes are so far behind all others that their share is 0."""
    lowest = tf.reduce_min(tf.where(where, scores, float("inf")), axis=-1, keepdims=True)
    lowest = tf.where(tf.math.is_finite(lowest), lowest, 0.0)
    return tf.where(where, scores, lowest - tf.abs(lowest) - _FAR)


def _projected(
    project: Callable, scores: TensorLike, k: int, where: TensorLike | None, alpha: TensorLike = 1.0
) -> tf.Tensor:
    scores = tensors.dense("scores", scores)
    tensors.check_scores(scores)
    arguments.check_integer(1, scores.shape[-1], k=k)
    scores = tf.cast(scores, tf.float32) * alpha
    if where is not None:
        where = tensors.broadcast("where", where, tf.bool, scores)
        scores = behind_all(scores, where)  # after alpha, which would bring masked classes nearer
    shares = project(scores)
    if where is not None:
        enough = ranks.list_size(scores, where)[..., None] > k
        shares = tf.where(where, tf.where(enough, shares, 1.0), 0.0)
    finite = tf.reduce_all(tf.math.is_finite(scores), axis=-1, keepdims=True)
    return tf.where(finite, shares, float("nan"))


def _centered(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns weighted deviations from the weighted mean, so that the sum of the shares is constant."""
    total = tf.reduce_sum(weights * values, axis=-1, keepdims=True)
    mean = tf.math.divide_no_nan(total, tf.reduce_sum(weights, axis=-1, keepdims=True))
    return weights * (values - mean)


class Support(typing.NamedTuple):
    """The highest scores of each list and their classes."""

    above: tf.Tensor  # how far the scores are above the level, falling, float32 `[..., m]`
    classes: tf.Tensor  # int32 `[..., m]`
    is_complete: tf.Tensor  # whether all classes above the level are among them, bool `[...]`


def simplex_level(scores: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Support]:
    r"""Returns the highest score, the level `mu` of the simplex below it, both `[...]`, and a `Support`.

    The level, in `[-1, 0)`, solves `\sum_j \max(0, s_j - \max_i s_i - \mu) = 1` (Michelot, 1986). A sort of
    the 64 highest scores finds it, in one pass, if no more are above the level. Otherwise Newton's method
    rises from the level of these: each step takes `O(n)`, and the last one has the classes above the
    solution, for which it is exact.
    """
    n = tensors.length(scores)
    top, classes = tf.math.top_k(scores, min(n, _SORTED) if isinstance(n, int) else tf.minimum(n, _SORTED))
    highest = tf.reduce_max(top, axis=-1)  # a slice would make XLA sort all scores
    top -= highest[..., None]
    place = tf.range(1, tensors.length(top) + 1, dtype=tf.float32)
    above = 1.0 + place * top > ranks.running_sum(top)
    level = (tf.reduce_sum(tf.where(above, top, 0.0), axis=-1) - 1.0) / _count(above)
    is_complete = (tf.reduce_min(top, axis=-1) <= level) | (tensors.length(top) == n)
    level = tf.where(is_complete, level, _rising_level(scores, highest, level, ~tf.reduce_all(is_complete)))
    return highest, level, Support(tf.nn.relu(top - level[..., None]), classes, is_complete)


def _rising_level(scores: tf.Tensor, highest: tf.Tensor, level: tf.Tensor, rises: tf.Tensor) -> tf.Tensor:
    """Returns the level of the simplex, from a level of some of the classes, which is never above it.

    The loop ends at once unless `rises`: TensorFlow cannot sort the graph of a loop within `tf.cond`.
    """

    def rise(level: tf.Tensor, count: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        above = scores - highest[..., None] - level[..., None]
        still_above = _count(above > 0.0)
        excess = tf.reduce_sum(tf.nn.relu(above), axis=-1) - 1.0
        return level + excess / still_above, still_above, tf.reduce_any(still_above != count)

    state = (level, tf.zeros_like(level), rises)
    level, _, _ = tf.while_loop(lambda *state: state[-1], rise, state, maximum_iterations=_SEARCH_STEPS)
    return level


def _level(scores: tf.Tensor, k: int) -> tf.Tensor:
    """Returns `mu` in [-1, 0) with `sum clip(s - mu, 0, 1) = k`, for scores whose k-th is 0."""
    low = -tf.ones_like(scores[..., 0])  # the first k shares are 1: the sum is at least k
    high = tf.zeros_like(low)  # k - 1 shares are above 0: the sum is at most k - 1

    def improve(level: tf.Tensor, low: tf.Tensor, high: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
        shares = tf.clip_by_value(scores - level[..., None], 0.0, 1.0)
        excess = tf.reduce_sum(shares, axis=-1) - k
        low = tf.where(excess >= 0.0, level, low)
        high = tf.where(excess <= 0.0, level, high)
        inside = _count((shares > 0.0) & (shares < 1.0))
        newton = level + tf.math.divide_no_nan(excess, inside)
        searching = tf.abs(excess) > _ROUNDING * inside * tf.abs(level)  # never true for NaN
        better = tf.where(~searching | ((newton > low) & (newton < high)), newton, (low + high) / 2.0)
        return better, low, high, searching & (high - low > _ROUNDING * tf.abs(level))

    state = (low, low, high, tf.ones_like(low, tf.bool))
    level, _, _, _ = tf.while_loop(
        lambda *state: tf.reduce_any(state[-1]), improve, state, maximum_iterations=_SEARCH_STEPS
    )
    return level


def _entropy_level(scores: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the k-th score `[..., 1]` and `c` `[...]` with `sum min(1, e^(s - s_k - c)) = k`."""
    top, last, _, is_behind = first(scores, k)
    top -= last  # keeps the digits near the level
    behind = tf.where(is_behind, scores - last, -float("inf"))
    behind = tf.math.log(tf.reduce_sum(tf.exp(behind), axis=-1, keepdims=True))
    # With t classes at 1 the others share k - t. The solution has the smallest t with no share above 1.
    rest = log_space.remaining_logsumexp(tf.concat([top, behind], axis=-1))
    levels = rest[..., :-1] - tf.math.log(left_of(k))
    held = _count((top > levels) & (left_of(k) > 1.0))
    return last, tf.gather(levels, tf.cast(held, tf.int32), batch_dims=held.shape.rank)


def at_lowest(scores: tf.Tensor, labels: tf.Tensor, last: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Returns zeros `[..., n]` with values `[...]` at the lower of the true and the k-th score."""
    true_is_lower = ranks.true_score(scores, labels) <= ranks.true_score(scores, last)
    return tf.one_hot(tf.where(true_is_lower, labels, last), tensors.length(scores)) * values[..., None]


def left_of(k: int) -> tf.Tensor:
    """Returns `k, k - 1, ..., 1`: how many of `k` classes are left when `i` are taken."""
    return tf.range(k, 0, -1, dtype=tf.float32)


def _count(marked: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(marked, tf.float32), axis=-1)

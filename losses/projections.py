r"""Projections on the (n, k)-simplex: shares of the classes that lie between 0 and 1 and sum to `k`.

$$\Delta_k = \{p \in [0, 1]^n : \textstyle\sum_j p_j = k\}, \quad
p_\alpha(s) = \operatorname{argmin}_{p \in \Delta_k} -\langle s, p \rangle + \tfrac{1}{\alpha} g(p)$$

With `g` the half of the squared norm it is the Euclidean projection, with `g` the negative entropy the
softmax of `k` places. `rankmax` chooses `alpha` by the class that should win. A higher score never has a
smaller share, and a shift of all scores changes nothing.

Common arguments:
  scores: float16, bfloat16, float32 or float64 `[..., n]`, finite; computed in float32.
  k: int, how many classes are selected, in `1..n`.
  where: optional bool, broadcastable to `[..., n]`: the classes that take part; the others have share 0.
    Where no more than `k` take part, each has share 1.

Every function returns float32 `[..., n]`; an instance with a score that is not finite has NaN. The
derivatives are written by hand: none runs back through a search or a sort.

Common errors:
  ValueError: `k` is outside `1..n`, `alpha` is not positive, or shapes or dtypes do not fit.

References:
  Kong, Krichene, Mayoraz, Rendle, Zhang (2020), "Rankmax: an adaptive projection alternative to the softmax
  function".
"""

import numbers

import tensorflow as tf

from rank4class.losses import ranks

_SEARCH_STEPS = 100
_ROUNDING = 2.0**-22
_FAR = 200.0  # e to the minus 200 is nothing in float32


def euclidean(scores, *, k=1, alpha=1.0, where=None):
    r"""Euclidean projection on the (n, k)-simplex.

    $$p_j = \text{clip}(\alpha s_j - \mu, 0, 1), \quad \textstyle\sum_j p_j = k$$

    `mu` is found by Newton's method within a bracket (Theorem 2): each step takes `O(n)`, and it ends,
    exactly, with the linear piece that holds the solution.

    Args:
      scores, k, where: see the module.
      alpha: positive; the larger, the nearer to the `k` highest scores alone. A number or a tensor
        broadcastable to `[..., 1]`.

    Returns:
      float32 `[..., n]`.

    >>> euclidean([[2.0, 1.5, 0.0]]).numpy()
    array([[0.75, 0.25, 0.  ]], dtype=float32)
    >>> euclidean([[2.0, 1.5, 1.0, 0.0]], k=2).numpy()
    array([[1.  , 0.75, 0.25, 0.  ]], dtype=float32)

    References:
      Rankmax, Theorem 2 and eq. 8.
    """
    check_alpha(alpha)
    return _projected(lambda s: _euclidean(s * alpha, k), scores, k, where)


def sparsemax(scores, *, where=None):
    r"""Euclidean projection on the standard simplex: a softmax that has zeros.

    Args:
      scores, where: see the module.

    Returns:
      float32 `[..., n]`, sums 1.

    >>> sparsemax([[2.0, 1.5, 0.0]]).numpy()
    array([[0.75, 0.25, 0.  ]], dtype=float32)

    References:
      Martins, Astudillo (2016), "From softmax to sparsemax: a sparse model of attention and multi-label
      classification".
    """
    return euclidean(scores, where=where)


def entropy(scores, *, k=1, alpha=1.0, where=None):
    r"""Entropy projection on the (n, k)-simplex: a softmax of `k` places.

    $$p_j = \min(1, e^{\alpha s_j - c}), \quad \textstyle\sum_j p_j = k$$

    `c` follows from how many classes are held at 1, fewer than `k` of the highest scores: `O(n log k)`.

    Args:
      scores, k, where: see the module.
      alpha: see `euclidean`.

    Returns:
      float32 `[..., n]`.

    >>> entropy([[0.0, 0.0, 0.0, 0.0]], k=2).numpy()
    array([[0.5, 0.5, 0.5, 0.5]], dtype=float32)
    >>> entropy([[9.0, 0.0, 0.0]], k=2).numpy()
    array([[1. , 0.5, 0.5]], dtype=float32)

    References:
      Rankmax, Theorem 2; Warmuth, Kuzmin (2008), "Randomized online PCA algorithms with regret bounds that
      are logarithmic in the dimension".
    """
    check_alpha(alpha)
    return _projected(lambda s: _entropy(s * alpha, k), scores, k, where)


def rankmax(scores, labels, *, k=1, where=None):
    r"""Euclidean projection whose `alpha` makes the true class win something, the more the higher it ranks.

    $$p_j = \text{clip}(\alpha_y (s_j - \mu_y), 0, 1), \quad \mu_y = \min(s_y, s_{[k]}) - 1, \quad
    \textstyle\sum_j p_j = k$$

    For `k = 1` that is `relu(m_j + 1)` over its sum, with margins `m_j = s_j - s_y`. `O(n log k)`.

    Args:
      scores, k, where: see the module.
      labels: integer `[...]`, the true classes.

    Returns:
      float32 `[..., n]`; the true class's is positive. NaN where the label is outside the classes.

    >>> rankmax([[2.0, 1.5, 0.0]], [1]).numpy()
    array([[0.6, 0.4, 0. ]], dtype=float32)

    References:
      Rankmax, Proposition 3, definition 4 and eq. 15.
    """
    scores, labels = ranks.dense("scores", scores), ranks.dense("labels", labels)
    if not labels.dtype.is_integer:
        raise ValueError(f"labels are class ids and must be integers, got {labels.dtype.name}")
    if not labels.shape.is_compatible_with(scores.shape[:-1]):
        raise ValueError(f"labels of shape {labels.shape} do not fit scores of shape {scores.shape}")
    labels = ranks.widen(labels)
    known = (labels >= 0) & (labels < tf.cast(tf.shape(scores)[-1], labels.dtype))
    shares = _projected(lambda s: _rankmax(s, labels, k), scores, k, where)
    return tf.where(known[..., None], shares, float("nan"))


def adaptive_level(scores, labels, k):
    r"""Finds where a Rankmax starts, and how many classes it holds at 1.

    With `mu` the level and `t` the held, the shares are `clip((k - t) (s_j - mu) / r, 0, 1)`, `r` the sum
    over the classes behind the first `t` of what they have above the level.

    Args:
      scores: float32 `[..., n]`.
      labels: int `[...]`.
      k: int, in `1..n`.

    Returns:
      level, r, t, float32 `[...]`, and the class of the k-th score, of the labels' type.

    References:
      Rankmax, eq. 11 and 12.
    """
    top, last, last_class, is_behind = first(scores, k)
    level = tf.minimum(ranks.true_score(scores, labels), last[..., 0]) - 1.0
    behind = tf.reduce_sum(tf.where(is_behind, tf.nn.relu(scores - level[..., None]), 0.0), axis=-1)
    # The t-th is held where its share would be above 1: (k - t) (s_t - mu) above the sum of s_i - mu from it
    # on. What lies below the k-th score stands on both sides, and is left out.
    lead = top - last
    held = places(k) * lead - tf.cumsum(lead, axis=-1, reverse=True) > behind[..., None]
    t = _count(held)
    rest = behind + tf.reduce_sum(tf.where(held, 0.0, lead), axis=-1) + (k - t) * (last[..., 0] - level)
    return level, rest, t, tf.cast(last_class, labels.dtype)


def first(scores, k):
    """Returns the `k` highest scores `[..., k]`, the last of them `[..., 1]` and its class `[...]`, and what
    classes are behind it, bool `[..., n]`."""
    top, classes = tf.math.top_k(scores, k)
    last = tf.reduce_min(top, axis=-1, keepdims=True)  # XLA would sort all for a slice of the top
    # Of equal scores the first come first.
    last_class = tf.reduce_max(tf.where(top == last, classes, 0), axis=-1)
    is_later = tf.range(ranks.length(scores)) > last_class[..., None]
    return top, last, last_class, (scores < last) | (scores == last) & is_later


def check_k(k, n):
    """Raises ValueError where `k` is no number of classes out of `n`; `n` may be None."""
    if not isinstance(k, numbers.Integral) or isinstance(k, bool) or k < 1 or (n is not None and k > n):
        raise ValueError(f"k {k!r} is not a whole number in 1..{'n' if n is None else n}")


def check_alpha(alpha):
    if isinstance(alpha, numbers.Real) and not alpha > 0.0:
        raise ValueError(f"alpha {alpha} is not positive")


def behind_all(scores, where):
    """Puts masked classes so far behind the last one that takes part that they get nothing."""
    lowest = tf.reduce_min(tf.where(where, scores, float("inf")), axis=-1, keepdims=True)
    lowest = tf.where(tf.math.is_finite(lowest), lowest, 0.0)
    return tf.where(where, scores, lowest - tf.abs(lowest) - _FAR)


def _projected(project, scores, k, where):
    scores = ranks.dense("scores", scores)
    if not scores.dtype.is_floating or not scores.shape.rank:
        raise ValueError(f"scores must be floats of shape [..., n], got {scores.dtype.name} {scores.shape}")
    check_k(k, scores.shape[-1])
    scores = tf.cast(scores, tf.float32)
    if where is not None:
        where = ranks.broadcast("where", where, tf.bool, scores)
        scores = behind_all(scores, where)
    shares = project(scores)
    if where is not None:
        enough = ranks.list_size(scores, where)[..., None] > k
        shares = tf.where(where, tf.where(enough, shares, 1.0), 0.0)
    sound = tf.reduce_all(tf.math.is_finite(scores), axis=-1, keepdims=True)
    return tf.where(sound, shares, float("nan"))


def _euclidean(scores, k):
    @tf.custom_gradient
    def project(scores):
        _, last, _, _ = first(scores, k)
        scores -= last  # near the level there is nothing to round
        shares = tf.clip_by_value(scores - _level(scores, k)[..., None], 0.0, 1.0)

        def gradient(upstream):
            return _centred(upstream, tf.cast((shares > 0.0) & (shares < 1.0), tf.float32))

        return shares, gradient

    return project(scores)


def _centred(values, weights):
    """Weighs values by what they exceed their weighted mean: shares that move keep their sum."""
    total = tf.reduce_sum(weights * values, axis=-1, keepdims=True)
    mean = tf.math.divide_no_nan(total, tf.reduce_sum(weights, axis=-1, keepdims=True))
    return weights * (values - mean)


def _level(scores, k):
    """Finds `mu` with `sum clip(s - mu, 0, 1) = k`, for scores whose k-th is 0: then it lies in [-1, 0)."""
    low = -tf.ones_like(scores[..., 0])  # with the first k at 1 the sum is at least k
    high = tf.zeros_like(low)  # and with k - 1 of them above 0 at most k - 1

    def improve(level, low, high, _):
        shares = tf.clip_by_value(scores - level[..., None], 0.0, 1.0)
        excess = tf.reduce_sum(shares, axis=-1) - k
        low = tf.where(excess >= 0.0, level, low)
        high = tf.where(excess <= 0.0, level, high)
        inside = _count((shares > 0.0) & (shares < 1.0))
        newton = level + tf.math.divide_no_nan(excess, inside)
        found = tf.abs(excess) <= _ROUNDING * inside * tf.abs(level)
        better = tf.where(found | ((newton > low) & (newton < high)), newton, (low + high) / 2.0)
        return better, low, high, ~found & (high - low > _ROUNDING * tf.abs(level))

    state = (low, low, high, tf.ones_like(low, tf.bool))
    level, _, _, _ = tf.while_loop(
        lambda *state: tf.reduce_any(state[-1]), improve, state, maximum_iterations=_SEARCH_STEPS
    )
    return level


def _entropy(scores, k):
    @tf.custom_gradient
    def project(scores):
        last, level = _entropy_level(scores, k)
        log_shares = scores - last - level[..., None]
        shares = tf.exp(tf.minimum(log_shares, 0.0))

        def gradient(upstream):
            return _centred(upstream, tf.where(log_shares < 0.0, shares, 0.0))

        return shares, gradient

    return project(scores)


def _entropy_level(scores, k):
    """Returns the k-th score `[..., 1]`, and `c` above it `[...]` with `sum min(1, e^(s - s_k - c)) = k`."""
    top, last, _, is_behind = first(scores, k)
    top -= last  # near the level there is nothing to round
    behind = tf.where(is_behind, scores - last, -float("inf"))
    behind = tf.math.log(tf.reduce_sum(tf.exp(behind), axis=-1, keepdims=True))
    # With t classes held at 1 the others share k - t; the least t counts under which none is above 1.
    rest = tf.math.cumulative_logsumexp(tf.concat([top, behind], axis=-1), axis=-1, reverse=True)
    levels = rest[..., :-1] - tf.math.log(places(k))
    held = _count((top > levels) & (places(k) > 1.0))
    return last, tf.gather(levels, tf.cast(held, tf.int32), batch_dims=held.shape.rank)


def _rankmax(scores, labels, k):
    @tf.custom_gradient
    def project(scores):
        scores -= ranks.true_score(scores, labels)[..., None]  # near the level there is nothing to round
        level, rest, held, last = adaptive_level(scores, labels, k)
        above = scores - level[..., None]
        alpha = (k - held) / rest
        shares = tf.clip_by_value(alpha[..., None] * above, 0.0, 1.0)

        def gradient(upstream):
            inside = (shares > 0.0) & (shares < 1.0)
            upstream = tf.where(inside, upstream, 0.0)
            # A score that rises lowers alpha; the one that the level hangs on raises all.
            pull = alpha * tf.reduce_sum(upstream * above, axis=-1) / rest
            each = alpha[..., None] * upstream - tf.where(inside, pull[..., None], 0.0)
            lift = _count(inside) * pull - alpha * tf.reduce_sum(upstream, axis=-1)
            return each + at_lowest(scores, labels, last, lift)

        return shares, gradient

    return project(scores)


def at_lowest(scores, labels, last, values):
    """Puts values `[...]` where the lower of the true and the k-th score stands, among zeros `[..., n]`."""
    true_is_lower = ranks.true_score(scores, labels) <= ranks.true_score(scores, last)
    return tf.one_hot(tf.where(true_is_lower, labels, last), ranks.length(scores)) * values[..., None]


def places(k):
    """Returns how many of `k` places are left, the i-th taken: `k - i`, from 0."""
    return tf.range(k, 0, -1, dtype=tf.float32)


def _count(marked):
    return tf.reduce_sum(tf.cast(marked, tf.float32), axis=-1)

r"""Sums over the classes that lie above each of many thresholds, in lists that fall.

In such a list the classes above a threshold are the first so many, and a sum over them is a running sum: all
thresholds together take `O(n log n)`, not `O(n)` each. The running sums are of what lies between neighbours,
which is never negative, so nothing cancels.

Every function takes `falling` float32 `[..., n]`, scores from the highest to the lowest.
"""

import tensorflow as tf

from rank4class.losses import projections, ranks


def count_above(falling, thresholds, or_equal=False):
    """Returns how many scores lie above each threshold.

    Args:
      falling: see the module.
      thresholds: float32 `[..., m]`.
      or_equal: whether to count those at a threshold too.

    Returns:
      int32 `[..., m]`, in `0..n`.

    >>> count_above(tf.constant([[3.0, 2.0, 2.0, 1.0]]), tf.constant([[2.0, 0.0]])).numpy()
    array([[1, 4]], dtype=int32)
    """
    n = ranks.length(falling)
    count = tf.zeros(tf.shape(thresholds), tf.int32)
    # Bit by bit from the highest: XLA would compare all with all in a search of TensorFlow's own.
    for bit in reversed(range(int(falling.shape[-1] or 2**31 - 1).bit_length())):
        further = count + 2**bit
        last = ranks.take(falling, tf.minimum(further, n) - 1)
        is_above = last >= thresholds if or_equal else last > thresholds
        count = tf.where(is_above & (further <= n), further, count)
    return count


def excess(falling, counts, thresholds, first=0):
    r"""Returns by how much the scores from the first on exceed a threshold, together.

    $$\sum_{i = f}^{c - 1} (s_i - \theta)$$

    Args:
      falling: see the module.
      counts: `c`, int32 `[..., m]`, how many lie above each threshold, at least `f` and at least 1.
      thresholds: float32 `[..., m]`.
      first: `f`, int.

    Returns:
      float32 `[..., m]`.
    """
    gaps = tf.concat([tf.zeros_like(falling[..., :1]), falling[..., :-1] - falling[..., 1:]], axis=-1)
    # The gap between the (i-1)-th and the i-th, from 0, counts for the i - f above it.
    n = ranks.length(falling)
    members = tf.cast(tf.maximum(tf.range(n) - first, 0), falling.dtype)
    among = ranks.running(tf.add, members * gaps)
    last = counts - 1
    beneath = tf.cast(counts - first, falling.dtype) * (ranks.take(falling, last) - thresholds)
    return ranks.take(among, last) + beneath


def rankmax(falling, labels, k):
    """Sums Rankmax losses over the relevant classes.

    Args:
      falling: see the module; of more than `k` classes.
      labels: float32 `[..., n]`, in the same order.
      k: int.

    Returns:
      float32 `[...]`.
    """

    @tf.custom_gradient
    def loss(falling):
        n = ranks.length(falling)
        last = falling[..., k - 1 : k]
        is_lowest = tf.range(n) >= k - 1  # whose level hangs on itself, not on the k-th
        level = tf.minimum(falling, last) - 1.0
        counts = tf.maximum(k, count_above(falling, level))  # NaN lies above nothing
        behind = excess(falling, counts, level, first=k)
        # See `projections.adaptive_level`; a lower class has a lower level, more behind it, and fewer held.
        lead = falling[..., :k] - last
        led = tf.cumsum(lead, axis=-1, reverse=True)
        needed = projections.places(k) * lead - led
        held = count_above(needed, behind)
        places = tf.cast(k - held, falling.dtype)
        own = tf.where(is_lowest, 1.0, falling - level)
        rest = tf.maximum(own, behind + ranks.take(led, held) + places * (last - level))
        counted = (labels > 0.0) & (own * places < rest)
        each = tf.where(counted, labels * (tf.math.log(rest / places) - tf.math.log(own)), 0.0)

        def gradient(upstream):
            weights = tf.where(counted, labels * upstream[..., None], 0.0)
            share = weights / rest
            # A class is pushed down by the relevant ones whose level it is above, and that do not hold it.
            ending = tf.concat(
                [ranks.running(tf.add, share[..., ::-1])[..., ::-1], tf.zeros_like(last)], axis=-1
            )
            start = count_above(level, falling, or_equal=True)
            not_held = n - count_above(behind[..., ::-1], needed, or_equal=True)
            start = tf.maximum(start, tf.concat([not_held, tf.zeros_like(start[..., k:])], axis=-1))
            pushed = ranks.take(ending, start)
            pulled = weights / own
            lift = pulled - tf.cast(counts - held, falling.dtype) * share
            to_last = tf.reduce_sum(tf.where(is_lowest, 0.0, lift), axis=-1, keepdims=True)
            at_last = tf.cast(tf.range(n) == k - 1, falling.dtype)
            return pushed - pulled + tf.where(is_lowest, lift, 0.0) + at_last * to_last

        return tf.reduce_sum(each, axis=-1), gradient

    return loss(falling)

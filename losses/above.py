r"""Sums and counts of the classes that lie above each of many thresholds.

Where the thresholds fall, those beneath a score are the last so many. So each class is put beside the first
threshold that it is above, and running sums do the rest: `n` classes and `m` thresholds take
`O((n + m) log m)`, not `O(n m)`. What is summed lies between neighbours and is never negative, so nothing
cancels.
"""

import tensorflow as tf

from rank4class.losses import ranks


def excess(scores, thresholds):
    r"""Returns by how much the classes above each threshold exceed it, together.

    $$e_i = \sum_j \max(0, s_j - \theta_i)$$

    Args:
      scores: float32 `[..., n]`.
      thresholds: float32 `[..., m]`, from the highest to the lowest.

    Returns:
      `e`, float32 `[..., m]`, and how many classes they are, float32 `[..., m]`, in `0..n`, which lets no
      gradient through.

    >>> scores, thresholds = tf.constant([[3.0, 0.0, 2.0]]), tf.constant([[2.5, 1.0]])
    >>> [x.numpy().tolist() for x in excess(scores, thresholds)]
    [[[0.5, 3.0]], [[1.0, 2.0]]]
    """

    @tf.custom_gradient
    def sums(scores, thresholds):
        first = _first_beneath(scores, thresholds)
        amounts, counts = _beside(scores, thresholds, first)
        counts = ranks.running(tf.add, counts)
        # Those above one threshold are above the next by the step between the two as well.
        steps = counts[..., :-1] * (thresholds[..., :-1] - thresholds[..., 1:])
        amounts += tf.concat([tf.zeros_like(amounts[..., :1]), steps], axis=-1)

        def gradient(upstream, _):
            from_each_on = ranks.running(tf.add, upstream[..., ::-1])[..., ::-1]
            return _take_from(from_each_on, first), -counts * upstream

        return (ranks.running(tf.add, amounts), counts), gradient

    return sums(scores, thresholds)


def count(falling, thresholds, or_equal=False):
    """Returns how many of a falling list lie above each of some numbers.

    Args:
      falling: float `[..., n]`, from the highest to the lowest.
      thresholds: of the same type, `[..., m]`, in any order.
      or_equal: whether to count those at a threshold too.

    Returns:
      int32 `[..., m]`, in `0..n`.

    >>> count(tf.constant([[3.0, 2.0, 2.0, 1.0]]), tf.constant([[2.0, 0.0]])).numpy()
    array([[1, 4]], dtype=int32)
    """
    n = ranks.length(falling)
    bits = int(falling.shape[-1] or 2**30 - 1).bit_length()
    lowest = tf.constant(-float("inf"), falling.dtype)
    ends = tf.concat([falling, tf.fill(tf.shape(falling[..., :1]), lowest)], axis=-1)
    counted = tf.zeros(tf.shape(thresholds), tf.int32)
    # Bit by bit from the highest: XLA would compare all with all in a search of TensorFlow's own.
    for bit in reversed(range(bits)):
        further = counted + 2**bit
        last = ranks.take(ends, tf.minimum(further - 1, n))
        counted = tf.where(last >= thresholds if or_equal else last > thresholds, further, counted)
    return tf.minimum(counted, n)  # minus infinity is not above itself, but equal


# XLA makes one pass over the classes of what TensorFlow takes dozens for.


@tf.function(jit_compile=True, autograph=False)
def at_or_above(scores, thresholds):
    """Returns how many classes lie at or above each threshold.

    Args:
      scores: float `[..., n]`.
      thresholds: of the same type, `[..., m]`, from the highest to the lowest.

    Returns:
      int32 `[..., m]`, in `0..n`.

    >>> at_or_above(tf.constant([[3.0, 0.0, 2.0]]), tf.constant([[2.5, 2.0]])).numpy()
    array([[1, 2]], dtype=int32)
    """
    first = count(thresholds, scores)
    return ranks.running(tf.add, _binned(tf.ones_like(first), first, ranks.length(thresholds)))


@tf.function(jit_compile=True, autograph=False)
def _first_beneath(scores, thresholds):
    """Returns the first threshold that each class is above, `m` for none, int32 `[..., n]`."""
    return count(thresholds, scores, or_equal=True)


@tf.function(jit_compile=True, autograph=False)
def _beside(scores, thresholds, first):
    """Returns by how much the classes beside each threshold exceed it together, and how many they are."""
    m = ranks.length(thresholds)
    amounts = tf.nn.relu(scores - _take_from(thresholds, first, float("inf")))
    return _binned(amounts, first, m), _binned(tf.ones_like(scores), first, m)


@tf.function(jit_compile=True, autograph=False)
def _take_from(lists, places, beyond=0.0):
    """Returns what stands at the places of the lists `[..., m]`, of which `m` is beyond the end."""
    return ranks.take(tf.concat([lists, tf.fill(tf.shape(lists[..., :1]), beyond)], axis=-1), places)


def _binned(values, bins, m):
    """Sums the values `[..., n]` of each of the bins `0..m-1`, `[..., m]`; those of bin `m` are left out."""
    lists = tf.reshape(tf.range(tf.size(bins) // ranks.length(bins)), tf.shape(bins[..., :1]))
    sums = tf.math.unsorted_segment_sum(values, lists * (m + 1) + bins, tf.size(lists) * (m + 1))
    return tf.reshape(sums, tf.concat([tf.shape(lists)[:-1], [m + 1]], axis=0))[..., :-1]

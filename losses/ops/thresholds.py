r"""Sums and counts of the classes above each of many thresholds, in `O((n + m) log m)` instead of `O(n m)`.

The thresholds are sorted from high to low, so a score is above a threshold and all thresholds after it. Each
class is assigned to the first threshold that it exceeds, and running sums over the thresholds give the
totals. The terms are differences between neighbors and never negative, so no digits cancel.
"""

from collections.abc import Callable

import tensorflow as tf

from rank4class import compat, scan
from rank4class.losses.ops import ranks, tensors

# A processor selects eight values at a time, but looks up one by one, and one look-up keeps XLA from that.
_SELECTED_BITS = 6
_MOST_WITHOUT_LOOKUP = 8  # bits, of up to 255 values
_BLOCK, _MOST_BLOCKS = 1024, 256  # of classes that are summed one after another


def excess(
    scores: tf.Tensor, thresholds: tf.Tensor, origin: tf.Tensor | float = 0.0
) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Returns the summed excess of the classes above each threshold, and their number, float32 `[..., m]`.

    $$e_i = \sum_j \max(0, s_j - o - \theta_i)$$

    The thresholds fall, and are relative to the origin `o`, `[..., 1]`. Close to the scores of interest, it
    keeps the digits of the differences between scores that are far from 0. The number has no gradient.

    >>> scores, thresholds = tf.constant([[3.0, 0.0, 2.0]]), tf.constant([[2.5, 1.0]])
    >>> [x.numpy().tolist() for x in excess(scores, thresholds)]
    [[[0.5, 3.0]], [[1.0, 2.0]]]
    """

    @tf.custom_gradient
    def sums(
        scores: tf.Tensor, thresholds: tf.Tensor, origin: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable]:
        beside = _first_beneath(scores, thresholds, origin)
        amounts, counts = _sums_beside(scores, thresholds, beside, origin)
        counts = scan.running(tf.add, counts)
        # A class above one threshold exceeds the next one by the step between the two as well.
        steps = counts[..., :-1] * (thresholds[..., :-1] - thresholds[..., 1:])
        amounts += tf.concat([tf.zeros_like(amounts[..., :1]), steps], axis=-1)

        def gradient(upstream: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            from_each_on = scan.running(tf.add, upstream[..., ::-1])[..., ::-1]
            grad_thresholds = -counts * upstream
            grad_origin = tf.reduce_sum(grad_thresholds, axis=-1, keepdims=True)
            return _take(from_each_on, beside), grad_thresholds, grad_origin

        return (scan.running(tf.add, amounts), counts), gradient

    return sums(scores, thresholds, origin + tf.zeros_like(scores[..., :1]))


def count(falling: tf.Tensor, thresholds: tf.Tensor, or_equal: bool = False) -> tf.Tensor:
    """Returns how many values of a descending list are above each threshold, or equal to it, as int32.

    >>> count(tf.constant([[3.0, 2.0, 2.0, 1.0]]), tf.constant([[2.0, 0.0]])).numpy()
    array([[1, 4]], dtype=int32)
    """
    n = tensors.length(falling)
    bits = int(falling.shape[-1] or 2**30 - 1).bit_length()
    ends = tensors.with_end(falling, -float("inf"))
    selected = bits if compat.in_xla() and bits <= _MOST_WITHOUT_LOOKUP else _SELECTED_BITS
    counted = tf.zeros(tf.shape(thresholds), tf.int32)
    # A search bit by bit, from the highest: XLA compiles TensorFlow's search to comparisons of all pairs.
    steps: list[tf.Tensor] = []
    for bit in reversed(range(bits)):
        if isinstance(n, int) and len(steps) < selected:
            lasts = range(2**bit - 1, 2**bits - 1, 2 ** (bit + 1))  # one for each path taken so far
            last = _select([ends[..., min(last, n), None] for last in lasts], steps)
        else:
            last = ranks.take(ends, tf.minimum(counted + 2**bit - 1, n))
        steps.append(last >= thresholds if or_equal else last > thresholds)
        counted += tf.where(steps[-1], 2**bit, 0)
    return tf.minimum(counted, n)  # minus infinity is not above itself, but equal


def _select(choices: list[tf.Tensor], bits: list[tf.Tensor]) -> tf.Tensor:
    """Returns the one of `2^b` tensors whose index has the given `b` bits, bool tensors from the highest."""
    for bit in reversed(bits):
        choices = [tf.where(bit, odd, even) for even, odd in zip(choices[::2], choices[1::2], strict=True)]
    return choices[0]


# XLA fuses these functions into one pass over the classes; TensorFlow would take dozens.


@tf.function(jit_compile=True, autograph=False)
def at_or_above(scores: tf.Tensor, thresholds: tf.Tensor) -> tf.Tensor:
    """Returns how many classes are at or above each of falling thresholds, int32 `[..., m]`.

    >>> at_or_above(tf.constant([[3.0, 0.0, 2.0]]), tf.constant([[2.5, 2.0]])).numpy()
    array([[1, 2]], dtype=int32)
    """
    beside = _among_all(thresholds, count(thresholds, scores))
    return scan.running(tf.add, _sum(tf.ones_like(beside), thresholds, beside))


@tf.function(jit_compile=True, autograph=False)
def _first_beneath(scores: tf.Tensor, thresholds: tf.Tensor, origin: tf.Tensor) -> tf.Tensor:
    """Returns the index among all lists of the first threshold that each class exceeds, `[..., n]`."""
    first = tf.cast(count(thresholds, scores - origin, or_equal=True), tf.float32)
    # XLA repeats operations that it considers cheap, such as this search, in every consumer; a division stops
    # it.
    one = tf.where(tf.math.is_nan(thresholds[..., :1]), 2.0, 1.0)
    first = tf.cast(first / one, tf.int32)
    return _among_all(thresholds, first)


@tf.function(jit_compile=True, autograph=False)
def _sums_beside(
    scores: tf.Tensor, thresholds: tf.Tensor, beside: tf.Tensor, origin: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the summed excess and the number of the classes assigned to each threshold, both `[..., m]`."""
    amounts = tf.nn.relu(scores - origin - _take(thresholds, beside, end=float("inf")))
    # XLA adds one class at a time, in one thread: complex numbers make one loop out of two.
    sums = _sum(tf.complex(amounts, tf.ones_like(amounts)), thresholds, beside)
    return tf.math.real(sums), tf.math.imag(sums)


@tf.function(jit_compile=True, autograph=False)
def _take(lists: tf.Tensor, places: tf.Tensor, end: float = 0.0) -> tf.Tensor:
    """Gathers from all lists `[..., m]`, each followed by `end`, at indices among all lists."""
    return tf.gather(tf.reshape(tensors.with_end(lists, end), [-1]), places)


def _sum(values: tf.Tensor, lists: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Sums values `[..., n]` by their indices among all lists `[..., m]`, without those at the ends.

    Each sum adds sums of blocks of classes: one after another, a million small values would lose digits.
    """
    shape = tf.shape(tensors.with_end(lists, 0.0))
    n = tf.shape(values)[-1]
    blocks = tf.maximum(1, tf.minimum(n // _BLOCK, _MOST_BLOCKS // shape[-1]))
    size = tf.reduce_prod(shape)
    in_blocks = places + size * (tf.range(n) // ((n - 1) // blocks + 1))
    sums = tf.math.unsorted_segment_sum(values, in_blocks, size * blocks)
    return tf.reduce_sum(tf.reshape(sums, tf.concat([[blocks], shape], axis=0)), axis=0)[..., :-1]


def _among_all(lists: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Converts indices in each list `[..., m]`, or at its end, to indices among all lists with their ends."""
    first = lists[..., :1]
    list_index = tf.reshape(tf.range(tf.size(first)), tf.shape(first))
    return list_index * (tensors.length(lists) + 1) + places

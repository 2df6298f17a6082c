"""Running combinations: an associative function, accumulated along lists."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class import compat


def running(combine: Callable, values: Any) -> Any:
    """Accumulates an associative function of an earlier and a later value along lists `[..., n]`.

    It rounds less than TensorFlow's cumulative sums, for which some versions of XLA take `O(n^2)` on CPUs.
    Takes `O(n)` for a tensor under XLA, and `O(n log n)` in half the about `2 log n` steps otherwise.

    >>> running(tf.add, tf.constant([[1, 2, 3]])).numpy()
    array([[1, 3, 6]], dtype=int32)
    """
    n = tf.nest.flatten(values)[0].shape[-1]
    if n and tf.is_tensor(values) and compat.in_xla():
        return _by_pairs(combine, values)
    reach = 1
    while reach < (n or 2**31):
        values = _reach_further(combine, values, reach)
        reach *= 2
    return values


def _reach_further(combine: Callable, values: Any, reach: int) -> Any:
    """Combines the values with those `reach` before them."""
    earlier = tf.nest.map_structure(lambda x: x[..., :-reach], values)
    later = tf.nest.map_structure(lambda x: x[..., reach:], values)
    join = lambda x, grown: tf.concat([x[..., :reach], grown], axis=-1)  # noqa: E731
    return tf.nest.map_structure(join, values, combine(earlier, later))


def _by_pairs(combine: Callable, values: tf.Tensor) -> tf.Tensor:
    """Accumulates pairs of neighbors, which are half as many, and then the values between two pairs."""
    n = values.shape[-1]
    if n == 1:
        return values
    paired = combine(values[..., : n - 1 : 2], values[..., 1::2])
    if n == 2:  # XLA gives the empty slice below a gradient of a wrong shape
        return tf.concat([values[..., :1], paired], axis=-1)
    odd = _by_pairs(combine, paired)
    between = combine(odd[..., : (n - 1) // 2], values[..., 2::2])
    even = tf.concat([values[..., :1], between], axis=-1)
    by_two = tf.stack([even[..., : n // 2], odd], axis=-1)
    shape = tf.concat([tf.shape(values)[:-1], [n - n % 2]], axis=0)
    return tf.concat([tf.reshape(by_two, shape), even[..., n // 2 :]], axis=-1)

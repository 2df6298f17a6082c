"""Gains of classes and discounts of ranks."""

from collections.abc import Callable

import tensorflow as tf


def exponential_gains(labels: tf.Tensor, largest: tf.Tensor | None = None) -> tf.Tensor:
    """Returns the gains `2^t - 1` of labels `[..., n]`, divided by the largest `2^t` of the list.

    The scale cancels where gains are normalized. It keeps labels in the hundreds within float32, and the form
    of the difference keeps the precision of labels near 0. `largest`, `[..., 1]`, is the largest label of the
    list if that is not among these.

    >>> exponential_gains(tf.constant([[2., 1., 0.]])).numpy()  # 3, 1, 0 over 4
    array([[0.75, 0.25, 0.  ]], dtype=float32)
    """
    if largest is None:
        largest = tf.reduce_max(labels, axis=-1, keepdims=True)
    log_2 = tf.math.log(2.0)
    return -tf.exp((labels - largest) * log_2) * tf.math.expm1(-labels * log_2)


def discount(rank: tf.Tensor) -> tf.Tensor:
    r"""Returns the discount of DCG, `1 / \log_2(1 + rank)`."""
    return tf.math.log(2.0) / tf.math.log1p(rank)


def over_ideal(gains: tf.Tensor, discount_of: Callable) -> tf.Tensor:
    """Returns gains `[..., n]` over the discounted gain of the ideal order; 0 for a list without gains."""
    rank = tf.range(1, tf.shape(gains)[-1] + 1, dtype=gains.dtype)
    ideal = tf.sort(gains, axis=-1, direction="DESCENDING") * discount_of(rank)
    return tf.math.divide_no_nan(gains, tf.reduce_sum(ideal, axis=-1, keepdims=True))

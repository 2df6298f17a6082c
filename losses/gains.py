"""What a class is worth (gain) and what a rank is worth (discount)."""

import tensorflow as tf


def exponential_gains(labels):
    r"""Gains `2^t - 1` over the list's largest `2^t`.

    The scale cancels wherever gains are normalised. It keeps labels of hundreds inside float32, and the
    difference is taken so that labels of a millionth keep their precision.

    Args:
      labels: float32 `[..., n]`, at least 0.

    Returns:
      float32 `[..., n]`, in `[0, 1]`.

    >>> exponential_gains(tf.constant([[2., 1., 0.]])).numpy()  # 3, 1, 0 over 4
    array([[0.75, 0.25, 0.  ]], dtype=float32)
    """
    largest = tf.reduce_max(labels, axis=-1, keepdims=True)
    log_2 = tf.math.log(2.0)
    return -tf.exp((labels - largest) * log_2) * tf.math.expm1(-labels * log_2)


def discount(rank):
    r"""The discount of DCG, `1 / \log_2(1 + rank)`.

    >>> discount(tf.constant([1., 3.])).numpy()
    array([1. , 0.5], dtype=float32)
    """
    return tf.math.log(2.0) / tf.math.log1p(rank)


def over_ideal(gains, discount_of):
    """Gains over what the best order collects of them; 0 where there is nothing to collect.

    Args:
      gains: float32 `[..., n]`.
      discount_of: function from ranks to discounts.

    Returns:
      float32 `[..., n]`.

    >>> over_ideal(tf.constant([[2., 0., 0.]]), discount).numpy()
    array([[1., 0., 0.]], dtype=float32)
    """
    place = tf.range(1, tf.shape(gains)[-1] + 1, dtype=gains.dtype)
    ideal = tf.sort(gains, axis=-1, direction="DESCENDING") * discount_of(place)
    return tf.math.divide_no_nan(gains, tf.reduce_sum(ideal, axis=-1, keepdims=True))

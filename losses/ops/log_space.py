r"""Logarithms of sums of exponentials: `softplus` and running sums, fast with XLA and without.

XLA for CPUs takes one class at a time for TensorFlow's `log1p`, and `O(n^2)` for its
`cumulative_logsumexp`. Within functions that XLA compiles, these forms take their place.
"""

from collections.abc import Callable

import tensorflow as tf

from rank4class import compat, scan

# log(1 + t) = 2 atanh(z / 2) with z = 2t / (2 + t), as z + z q(z^2): the relative error is below 5e-9.
_ATANH = (0.08333301308507933, 0.012506809642134530, 0.0021873572858246613, 0.00054741483530836)


def softplus(x: tf.Tensor) -> tf.Tensor:
    r"""Returns `\log(1 + e^x)`, with the exact derivative `1 / (1 + e^{-x})`."""
    return _softplus(x) if x.dtype == tf.float32 and compat.in_xla() else tf.nn.softplus(x)


@tf.custom_gradient
def _softplus(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    """A polynomial: XLA fuses it into one pass, TensorFlow alone would take 18."""
    t = tf.exp(-tf.abs(x))
    z = t / (1.0 + 0.5 * t)
    w = tf.square(z)
    q = w * (_ATANH[0] + w * (_ATANH[1] + w * (_ATANH[2] + w * _ATANH[3])))
    return tf.maximum(x, 0.0) + (z + z * q), lambda upstream: upstream * tf.sigmoid(x)


def remaining_logsumexp(values: tf.Tensor) -> tf.Tensor:
    r"""Returns `\log \sum_{j \ge i} e^{x_j}` at each index `i` of float32 `[..., n]`.

    It takes `O(n)`, but `O(n log n)` under XLA if `n` is known only at run time. Minus infinity counts as the
    lowest finite number.

    >>> remaining_logsumexp(tf.constant([[0.0, 0.0, 0.0]])).numpy().round(4)  # log 3, log 2, log 1
    array([[1.0986, 0.6931, 0.    ]], dtype=float32)
    """
    values = tf.maximum(values, values.dtype.min)
    if compat.in_xla():
        return _remaining_logsumexp(values)
    # TensorFlow's gradient takes the exponential of rounded logarithms.
    wide = tf.math.cumulative_logsumexp(tf.cast(values, tf.float64), axis=-1, reverse=True)
    return tf.cast(wide, values.dtype)


@tf.custom_gradient
def _remaining_logsumexp(values: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    """Keeps the maximum and the sum relative to it apart: a logarithm would round the sum."""
    each = tf.stack([values, tf.ones_like(values)], axis=-2)
    maxima, sums = tf.unstack(scan.running(_add, each[..., ::-1])[..., ::-1], axis=-2)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        # sum_{i <= j} u_i / S_i e^(x_j - M_i), with factors of at most 1: the maxima M_i never rise.
        terms = tf.stack([maxima, upstream / sums], axis=-2)
        return tf.exp(values - maxima) * scan.running(_decayed_sum, terms)[..., 1, :]

    return maxima + tf.math.log(sums), gradient


def _add(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Adds sums `[..., 1, n]` of exponentials relative to maxima `[..., 0, n]`."""
    maxima = tf.maximum(a, b)[..., :1, :]
    terms = (x[..., 1:, :] * tf.exp(x[..., :1, :] - maxima) for x in (a, b))
    return tf.concat([maxima, tf.add_n([*terms])], axis=-2)


def _decayed_sum(earlier: tf.Tensor, later: tf.Tensor) -> tf.Tensor:
    """Adds sums `[..., 1, n]` that decay as their levels `[..., 0, n]` fall."""
    level = later[..., 0, :]
    decayed = earlier[..., 1, :] * tf.exp(level - earlier[..., 0, :])
    return tf.stack([level, decayed + later[..., 1, :]], axis=-2)

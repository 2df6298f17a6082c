"""Gumbel noise on scores, which samples ranks from the Plackett-Luce model of the scores."""

import tensorflow as tf
from tensorflow.types.experimental import TensorLike


def seed_from_scores(seed: int, scores: tf.Tensor) -> tf.Tensor:
    """Derives a stateless seed, int32 `[2]`, from a fixed one and the bits of the scores.

    The same scores always get the same noise, and new scores get new noise: in eager mode, in a graph, under
    XLA and after a resume, without any state to save.
    """
    bits = tf.reshape(tf.bitcast(tf.cast(scores, tf.float32), tf.int32), [-1])
    # Spread the sign, which is only the highest bit: otherwise two signs cancel in the sum below.
    bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, 15))
    # Odd multipliers make the sum depend on the position of each score; int32 sums wrap and commute.
    places = 2 * tf.range(tf.size(bits)) + 1
    return tf.stack([tf.constant(seed, tf.int32), tf.reduce_sum(bits * places)])


def noise(shape: tf.TensorShape | tf.Tensor | list[int], seed: TensorLike) -> tf.Tensor:
    r"""Draws finite float32, `g = -\log(-\log u)` with `u` uniform on `(0, 1)`."""
    tiny = 1.1754944e-38  # the smallest normal float32, since log(0) would make the noise infinite
    # XLA has the integers of TensorFlow's generator if it is named, but makes floats of other bits of them.
    bits = tf.random.stateless_uniform(shape, seed, minval=None, maxval=None, dtype=tf.int32, alg="philox")
    uniform = tf.maximum(tf.cast(bits & 0x7FFFFF, tf.float32) * 2.0**-23, tiny)
    return -tf.math.log(-tf.math.log(uniform))


def perturb(scores: tf.Tensor, *, samples: int, seed: TensorLike, temperature: float = 1.0) -> tf.Tensor:
    r"""Adds Gumbel noise to scores `[..., n]`: returns `(s + g) / \tau_g`, `[samples, ..., n]`."""
    draws = noise(tf.concat([[samples], tf.shape(scores)], axis=0), seed)
    return (scores + tf.ensure_shape(draws, [samples, *scores.shape])) / temperature

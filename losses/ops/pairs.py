"""Pairs of classes: which pairs count, their margins, and the normalization of sums over them."""

import tensorflow as tf

NORMALIZERS = ("list", "pairs", "none")


def of_higher_label(labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Returns bool `[..., i, j]`: both classes take part, and `i` has the higher label."""
    return (labels[..., :, None] > labels[..., None, :]) & where[..., :, None] & where[..., None, :]


def margins(scores: tf.Tensor) -> tf.Tensor:
    """Returns `s_j - s_i`, `[..., i, j]`, of scores `[..., n]`."""
    return scores[..., None, :] - scores[..., :, None]


def normalized(total: tf.Tensor, normalize: str, size: tf.Tensor, num_pairs: tf.Tensor) -> tf.Tensor:
    """Divides sums over pairs by the size of the list, the number of pairs, or 1 (one of `NORMALIZERS`)."""
    divisor = {"list": size, "pairs": num_pairs, "none": 1.0}[normalize]
    return tf.math.divide_no_nan(total, divisor)

r"""Weights of pairs of classes, and the normalization of sums over pairs.

A pairwise loss with the weights of a metric, its change if the two classes swapped ranks, follows the metric
(LambdaRank). The ranks are those of the current scores and count as constants. A class ranks behind classes
of equal score and lower gain, and shares its rank with classes of equal score and gain.

As in TF-Ranking, the weights are multiplied by the size of the list, which cancels the `1 / n` of the default
normalization.
"""

import tensorflow as tf

from rank4class.losses.ops import ranks
from rank4class.losses.ops.gains import discount, exponential_gains, over_ideal

NORMALIZERS = ("list", "pairs", "none")
WEIGHTS = ("none", "ndcg", "mrr", "ndcg_loss2")


def normalized(total: tf.Tensor, normalize: str, size: tf.Tensor, num_pairs: tf.Tensor) -> tf.Tensor:
    """Divides sums over pairs by the size of the list, the number of pairs, or 1 (one of `NORMALIZERS`)."""
    divisor = {"list": size, "pairs": num_pairs, "none": 1.0}[normalize]
    return tf.math.divide_no_nan(total, divisor)


def weights_of_true_class(
    name: str, scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None
) -> tf.Tensor | None:
    """Returns the weights of the pairs of the true class with the others, `[..., n]`; None for "none"."""
    if name == "none":
        return None
    true = ranks.true_score(scores, labels)[..., None]
    ahead = ranks.others(scores, labels, where) & (scores >= true)
    true_rank = 1.0 + tf.reduce_sum(tf.cast(ahead, scores.dtype), axis=-1)
    swaps = _swap(name, true_rank[..., None], ranks.all_ranks(scores, where))
    return tf.stop_gradient(swaps * ranks.list_size(scores, where)[..., None])


def weights(name: str, scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor | None:
    """Returns the weights of all pairs of classes, `[..., n, n]`; None for "none"."""
    if name == "none":
        return None
    higher = scores[..., None, :] > scores[..., :, None]
    equal = scores[..., None, :] == scores[..., :, None]
    ahead = (higher | equal & (labels[..., None, :] < labels[..., :, None])) & where[..., None, :]
    rank = 1.0 + tf.reduce_sum(tf.cast(ahead, scores.dtype), axis=-1)
    if name == "mrr":
        gains = over_ideal(labels, tf.math.reciprocal)
    else:
        gains = over_ideal(exponential_gains(labels), discount)
    gain_gap = tf.abs(gains[..., :, None] - gains[..., None, :])
    swaps = _swap(name, rank[..., :, None], rank[..., None, :])
    return tf.stop_gradient(gain_gap * swaps * ranks.list_size(scores, where)[..., None, None])


def _swap(name: str, rank: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Returns the absolute difference between the discounts of two ranks."""
    if name == "mrr":
        return tf.abs(1.0 / rank - 1.0 / other)
    if name == "ndcg":
        return tf.abs(discount(rank) - discount(other))
    apart = tf.abs(rank - other)
    return tf.where(apart > 0.0, discount(apart) - discount(apart + 1.0), 0.0)

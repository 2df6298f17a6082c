"""The losses of the studies, on the instances of a batch."""

from collections.abc import Callable

import tensorflow as tf

from rank4class import losses


def score_triplet(scores: tf.types.experimental.TensorLike) -> tf.Tensor:
    """Triplet loss `[B]` of scores `[B, B]`, with the hardest negative of each row and column."""
    positives = tf.linalg.diag_part(scores)
    negatives = tf.linalg.set_diag(scores, tf.fill(tf.shape(positives), -float("inf")))
    return sum(tf.nn.relu(0.2 + tf.reduce_max(negatives, axis=axis) - positives) for axis in (0, 1))


def recall_triplet(scores: tf.types.experimental.TensorLike, rank_fn: Callable) -> tf.Tensor:
    r"""Triplet loss `[B]` of the ranks of scores `[B, B]`, in both directions.

    $$\ell_i = \frac{1}{B} \max(0, 1 + r_{ii} - \min_{j \ne i} r_{ij})$$

    plus the same over the columns. The loss of exact ranks is 0 if the matching pairs are first.

    References:
      SoDeep, eq. 9 and 10.
    """

    def of_rows(scores: tf.Tensor) -> tf.Tensor:
        places = rank_fn(scores)
        matching = tf.linalg.diag_part(places)
        others = tf.linalg.set_diag(places, tf.fill(tf.shape(matching), float("inf")))
        return tf.nn.relu(1.0 + matching - tf.reduce_min(others, axis=1)) / tf.cast(
            tf.size(matching), tf.float32
        )

    return of_rows(scores) + of_rows(tf.transpose(scores))


def hinge_ap(scores: tf.types.experimental.TensorLike, labels: tf.types.experimental.TensorLike) -> tf.Tensor:
    r"""Structured hinge loss of the average precision of scores `[B]` with labels 0 or 1.

    $$\max_{\hat y} \; 1 - AP(\hat y) + F(\hat y) - F(y), \quad
    F(y) = \frac{1}{P N} \sum_{i, j} y_{ij} (s_i - s_j)$$

    over all rankings, with `i` relevant and `j` not, and `y_ij` 1 where `i` comes before `j`, else -1.
    The best rank of each irrelevant score is independent of the others, so the loss takes `O(B^2)`.

    References:
      Yue, Finley, Radlinski, Joachims (2007), "A support vector method for optimizing average precision".
    """
    positive = labels > 0.0
    relevant = tf.sort(tf.where(positive, scores, -float("inf")), direction="DESCENDING")
    irrelevant = tf.sort(tf.where(positive, -float("inf"), scores), direction="DESCENDING")
    rank = 1.0 + tf.range(tf.shape(scores)[0], dtype=tf.float32)
    num_relevant = tf.reduce_sum(tf.cast(positive, tf.float32))
    num_irrelevant = tf.cast(tf.shape(scores)[0], tf.float32) - num_relevant
    valid = (rank[:, None] <= num_irrelevant) & (rank[None, :] <= num_relevant)
    k = rank[None, :]
    j = rank[:, None]
    lost_precision = (k / (k + j - 1.0) - k / (k + j)) / num_relevant
    difference = tf.where(valid, relevant[None, :], 0.0) - tf.where(valid, irrelevant[:, None], 0.0)
    terms = tf.where(valid, lost_precision - 2.0 * difference / (num_relevant * num_irrelevant), 0.0)
    before_k = tf.cumsum(terms, axis=1, reverse=True)  # of ranking j before the k-th relevant score
    total = tf.reduce_sum(tf.nn.relu(tf.reduce_max(before_k, axis=1)))
    return tf.where((num_relevant > 0.0) & (num_irrelevant > 0.0), total, 0.0)


# Functions of a rank function and the weight of the mean absolute error to a Keras loss, by name.
LOSSES: dict[str, Callable] = dict(
    mse=lambda rank_fn, l1: tf.keras.losses.MeanSquaredError(),
    l1=lambda rank_fn, l1: tf.keras.losses.MeanAbsoluteError(),
    spearman=lambda rank_fn, l1: losses.Spearman(rank_fn=rank_fn, l1=l1),
    sigmoid_cross_entropy=lambda rank_fn, l1: losses.SigmoidCrossEntropy(),
    hinge_ap=lambda rank_fn, l1: lambda labels, scores: hinge_ap(scores[:, 0], labels[:, 0]),
    map_ranks=lambda rank_fn, l1: losses.MeanAveragePrecision(rank_fn=rank_fn, form="ranks", l1=l1),
    map_precision=lambda rank_fn, l1: losses.MeanAveragePrecision(rank_fn=rank_fn, form="precision", l1=l1),
    triplet=lambda rank_fn, l1: lambda labels, scores: score_triplet(scores),
    recall_triplet=lambda rank_fn, l1: lambda labels, scores: recall_triplet(scores, rank_fn),
)

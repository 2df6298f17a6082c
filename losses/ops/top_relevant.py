"""The relevant classes of dense labels: lists have few of them, so only those are sorted."""

import tensorflow as tf

from rank4class import arguments
from rank4class.losses.ops import ranks, tensors


def sorted_scores(scores: tf.Tensor, labels: tf.Tensor, most: int | None) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the falling scores of the relevant classes and their labels, both `[..., m]`.

    `m` is `most`, or the number of classes. A list with fewer is padded with scores of minus infinity and
    labels of 0; one with more keeps those of the highest scores.

    >>> scores, labels = tf.constant([[3.0, 1.0, 2.0, 0.0]]), tf.constant([[0.0, 1.0, 0.0, 2.0]])
    >>> [x.numpy().tolist() for x in sorted_scores(scores, labels, 3)]
    [[[1.0, 0.0, -inf]], [[1.0, 2.0, 0.0]]]
    """
    n = tensors.length(scores)
    most = n if most is None else min(most, n) if isinstance(n, int) else tf.minimum(most, n)
    relevant, classes = tf.math.top_k(tf.where(labels > 0.0, scores, -float("inf")), most)
    return relevant, ranks.take(labels, classes)


@tf.autograph.experimental.do_not_convert
def too_many(labels: tf.Tensor, most: int | None) -> tf.Tensor:
    """Returns whether a list has more than `most` relevant classes, bool `[...]`; None allows any number.

    Raises ValueError if `most` is invalid or, in eager mode, if a list has more.
    """
    if most is None:
        return tf.zeros(tf.shape(labels)[:-1], tf.bool)
    check_most(most)
    count = tf.reduce_sum(tf.cast(labels > 0.0, tf.int32), axis=-1)
    if (culprit := tensors.first_wrong(count <= most)) is not None:
        problem = f"labels{culprit} have {int(count[tuple(culprit)])} relevant classes"
        raise ValueError(f"max_relevant={most}: {problem}. Raise it.")
    return count > most


def check_most(most: int | None) -> None:
    """Raises ValueError unless `max_relevant` is None or a whole number of at least 1."""
    if most is not None:
        arguments.check_integer(max_relevant=most)

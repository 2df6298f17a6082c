"""The relevant classes of dense labels, of which a list has few: what needs only them sorts only them."""

import tensorflow as tf

from rank4class.losses import ranks


def falling(scores, labels, most):
    """Returns the scores of the relevant classes, from the highest, and their labels.

    Args:
      scores, labels: float `[..., n]`; a class is relevant where its label is above 0.
      most: `m`, how many a list has at most; None, or more than `n`, is `n`.

    Returns:
      Two `[..., m]`, those of the highest scores where a list has more; behind the last relevant class the
      scores are minus infinity and the labels 0.

    >>> scores, labels = tf.constant([[3.0, 1.0, 2.0, 0.0]]), tf.constant([[0.0, 1.0, 0.0, 2.0]])
    >>> [x.numpy().tolist() for x in falling(scores, labels, 3)]
    [[[1.0, 0.0, -inf]], [[1.0, 2.0, 0.0]]]
    """
    n = ranks.length(scores)
    if most is None:
        most = n
    most = min(most, n) if isinstance(n, int) else tf.minimum(most, n)
    own, classes = tf.math.top_k(tf.where(labels > 0.0, scores, -float("inf")), most)
    return own, ranks.take(labels, classes)


def too_many(labels, most):
    """Returns whether a list has more relevant classes than it may, bool `[...]`; None allows any number.

    >>> too_many(tf.constant([[0.0, 1.0], [1.0, 2.0]]), 1).numpy()
    array([False,  True])
    """
    if most is None:
        return tf.zeros(tf.shape(labels)[:-1], tf.bool)
    return _found(labels) > most


def check(labels, most):
    """Raises ValueError where `max_relevant` makes no sense or, in eager mode, where a list has more."""
    check_most(most)
    if most is None or not tf.executing_eagerly():
        return
    exceeding = too_many(labels, most)
    if bool(tf.reduce_any(exceeding)):
        culprit = tf.where(exceeding)[0].numpy().tolist()
        raise ValueError(
            f"instance {culprit} has {int(_found(labels)[tuple(culprit)])} relevant classes: raise "
            f"max_relevant {most}"
        )


def check_most(most):
    """Raises ValueError where `max_relevant` is neither None nor a whole number of at least 1."""
    if most is not None:
        ranks.check_count("max_relevant", most)


def _found(labels):
    return tf.reduce_sum(tf.cast(labels > 0.0, tf.int32), axis=-1)

"""The rank of an instance's true class, hard (what metrics count) and soft (what losses follow)."""

import tensorflow as tf


def others(scores, labels, where=None):
    """Marks the classes that compete with the true one.

    Args:
      scores: `[..., n]`, one score a class.
      labels: `[...]` integer class ids.
      where: optional bool `[..., n]`, True for the classes that take part.

    Returns:
      bool `[..., n]`: True for every participating class but the labelled one.
    """
    competes = tf.range(tf.shape(scores)[-1], dtype=labels.dtype) != labels[..., None]
    return competes if where is None else competes & where


def widen(labels):
    """Returns class ids as int32 or int64: smaller integers could not count a thousand classes."""
    if labels.dtype in (tf.int32, tf.int64):
        return labels
    return tf.cast(labels, tf.int64 if labels.dtype in (tf.uint32, tf.uint64) else tf.int32)


def true_score(scores, labels):
    """Returns `[...]`: the score of each instance's labelled class (ids outside `0..n-1` are clipped)."""
    last = tf.shape(scores)[-1] - 1
    inside = tf.clip_by_value(labels, 0, tf.cast(last, labels.dtype))
    return tf.gather(scores, inside, batch_dims=labels.shape.rank)


def hard_rank(scores, labels, where=None):
    r"""Rank of the true class, 1 for the best.

    $$\text{rank}(y) = 1 + |\{j \ne y : s_j \ge s_y\}|$$

    Ties are broken against the true class, so that the figure repeats and a constant scorer looks
    as bad as it is. An instance with a non-finite score, or a label outside the classes, has rank
    infinity: every metric of it then takes its worst value.

    Args:
      scores: float `[..., n]`.
      labels: integer `[...]`.
      where: optional bool `[..., n]`, the classes that take part.

    Returns:
      float32 `[...]`, in `1..n` or infinity.

    Raises:
      ValueError: the labels are not integers, or not one an instance.

    >>> hard_rank([[3., 1., 2.], [0., 0., 0.]], [2, 0]).numpy()
    array([2., 3.], dtype=float32)
    """
    scores, labels = tf.convert_to_tensor(scores), tf.convert_to_tensor(labels)
    if scores.dtype != tf.float64:
        scores = tf.cast(scores, tf.float32)
    if not labels.dtype.is_integer:
        raise ValueError(f"class ids must be integers, got {labels.dtype.name}")
    if not labels.shape.is_compatible_with(scores.shape[:-1]):
        raise ValueError(f"class ids of shape {labels.shape} do not fit scores of shape {scores.shape}")
    labels = widen(labels)
    if where is not None:
        where = tf.broadcast_to(tf.cast(where, tf.bool), tf.shape(scores))
    ahead = others(scores, labels, where) & (scores >= true_score(scores, labels)[..., None])
    rank = 1.0 + tf.reduce_sum(tf.cast(ahead, tf.float32), axis=-1)
    sound = tf.math.is_finite(scores) if where is None else tf.math.is_finite(scores) | ~where
    known = (labels >= 0) & (labels < tf.cast(tf.shape(scores)[-1], labels.dtype))
    return tf.where(tf.reduce_all(sound, axis=-1) & known, rank, float("inf"))


def sigmoid_rank(margins, others, temperature):
    r"""Soft rank of the true class: the comparisons of `hard_rank` replaced by sigmoids.

    $$r = 1 + \sum_{j \ne y} \frac{1}{1 + e^{-m_j / \tau}}, \quad m_j = s_j - s_y$$

    Args:
      margins: float `[..., n]`, `s_j - s_y`.
      others: bool `[..., n]`, True for the classes that compete with `y`.
      temperature: `tau > 0`; the soft rank tends to the hard one as it falls.

    Returns:
      float `[...]`, in `[1, n]`.

    References:
      Qin, Liu, Li (2010), "A general approximation framework for direct optimization of
      information retrieval measures"; Rank4Class, eq. 4.
    """
    steps = tf.where(others, tf.sigmoid(margins / temperature), 0.0)
    return 1.0 + tf.reduce_sum(steps, axis=-1)

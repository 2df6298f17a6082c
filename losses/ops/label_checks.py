"""Checks of labels: class ids within the classes, or finite gains of at least 0.

In eager mode other labels raise an error. In compiled code the losses of such an instance are NaN, by `known`
and `valid_gains`; `assert_valid` also raises in a graph, except under XLA.
"""

import tensorflow as tf

from rank4class.losses.ops import tensors

_EXACT = {tf.float16: 2**11, tf.bfloat16: 2**8}  # the number up to which a type has all whole numbers


@tf.autograph.experimental.do_not_convert
def ids(labels: tf.Tensor, n: int | tf.Tensor) -> tf.Tensor:
    """Returns class ids as int32 or int64; raises ValueError if they are not ids within the classes."""
    tensors.check_ids(labels)
    labels = tensors.widen(labels)
    if (culprit := tensors.first_wrong(known(labels, n))) is not None:
        label = int(labels[tuple(culprit)])
        raise ValueError(f"labels{culprit}={label}: outside the classes 0..{int(n) - 1}. Number them from 0.")
    return labels


@tf.autograph.experimental.do_not_convert
def ids_from_floats(labels: tf.Tensor, n: int | None) -> tf.Tensor:
    """Returns class ids that Keras has cast to floats as int32; -1 in a graph for one that is not whole.

    Raises ValueError for a type that is not exact for all `n` classes (None for an unknown number), and in
    eager mode for an id that is not whole.

    >>> ids_from_floats(tf.constant([2.0, 0.0]), 3).numpy()
    array([2, 0], dtype=int32)
    """
    exact = _EXACT.get(labels.dtype, 2**24)
    if exact < (2**24 if n is None else n):
        raise ValueError(
            f"labels={labels.dtype.name}: inexact for {'many' if n is None else n} classes. "
            "Give integer labels, or call `of_scores`."
        )
    labels = tf.cast(labels, tf.float32)
    whole = (labels == tf.math.floor(labels)) & (tf.abs(labels) <= 2.0**24)
    if (culprit := tensors.first_wrong(whole)) is not None:
        label = float(labels[tuple(culprit)])
        raise ValueError(f"labels{culprit}={label:g}: not a class id. Give whole numbers.")
    return tf.cast(tf.where(whole, labels, -1.0), tf.int32)


@tf.autograph.experimental.do_not_convert
def gains(labels: tf.Tensor, lists: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
    """Returns dense labels as float32; raises ValueError if one that takes part is not a gain."""
    labels = tf.cast(labels, tf.float32)
    if not (labels.shape.is_fully_defined() and lists.shape.is_fully_defined()):
        message = (
            "labels: not of the shape of the scores. Give dense labels that shape, or class ids a static one "
            "of [B] or [B, 1]."
        )
        same = tf.debugging.assert_equal(tf.shape(labels), tf.shape(lists), message)
        with tf.control_dependencies([same]):
            labels = tf.reshape(labels, tf.shape(lists))  # XLA drops the assertion, and stops here
    if (culprit := tensors.first_wrong(valid_gains(labels, where))) is not None:
        raise ValueError(
            f"labels{culprit}={float(labels[tuple(culprit)])}: not a finite gain of at least 0. Correct it, "
            "or leave the class out with where."
        )
    return labels


def assert_valid(labels: tf.Tensor, lists: tf.Tensor) -> None:
    """Adds an assertion to a graph that labels are class ids or gains. Eager mode and XLA ignore it."""
    if tf.executing_eagerly() or None in (labels.shape.rank, lists.shape.rank):
        return
    if labels.shape.rank == lists.shape.rank:
        labels = tf.cast(labels, tf.float32)
        valid = valid_gains(labels, None)
        problem = "not all finite values of at least 0. Correct them."
    elif labels.dtype.is_integer:
        labels = tensors.widen(labels)
        n = tensors.length(lists)
        valid = known(labels, n)
        classes = f"0..{n - 1}" if isinstance(n, int) else "of the scores"
        problem = f"not all within the classes {classes}. Number them from 0."
    else:
        return
    data = [f"labels: {problem} Least and largest:", tf.reduce_min(labels), tf.reduce_max(labels)]
    tf.raw_ops.Assert(condition=tf.reduce_all(valid), data=data)


def known(labels: tf.Tensor, n: int | tf.Tensor) -> tf.Tensor:
    """Returns which class ids are within the classes, bool `[...]`."""
    return (labels >= 0) & (labels < tf.cast(n, labels.dtype))


def valid_gains(labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
    """Returns which dense labels are gains or masked, bool `[..., n]`."""
    gain = tf.math.is_finite(labels) & (labels >= 0.0)
    return gain if where is None else gain | ~where


@tf.autograph.experimental.do_not_convert
def are_levels(labels: tf.Tensor, levels: int) -> tf.Tensor:
    """Returns which labels are in `0..levels - 1`, bool `[..., n]`; raises ValueError in eager mode."""
    right = (labels == tf.math.floor(labels)) & (labels >= 0.0) & (labels < levels)
    if (culprit := tensors.first_wrong(right)) is not None:
        raise ValueError(
            f"labels{culprit}={float(labels[tuple(culprit)]):g}: not a whole number in 0..{levels - 1}. "
            "Raise levels, or number them from 0."
        )
    return right

"""Checks and conversions of the tensors that losses, metrics and projections share."""

from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import TensorLike


def dense(name: str, values: Any) -> tf.Tensor:
    """Returns numbers as a dense tensor; raises ValueError, which names the argument, for anything else.

    >>> dense("labels", ["joy", "anger"])
    Traceback (most recent call last):
    ...
    ValueError: labels=string (2,): numbers are needed. Number the classes from 0.
    """
    if isinstance(values, tf.RaggedTensor):
        raise ValueError(
            f"{name}=RaggedTensor {values.shape}: all lists need one length. Pass {name}.to_tensor(), and to "
            f"functions of `losses` or `of_scores` also where=tf.sequence_mask({name}.row_lengths())."
        )
    try:
        tensor = tf.convert_to_tensor(values)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name}={type(values).__name__}: not a dense tensor ({error}). Pass one, or lists of one length."
        ) from error
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool):
        raise ValueError(
            f"{name}={tensor.dtype.name} {tensor.shape}: numbers are needed. Number the classes from 0."
        )
    return tensor


def broadcast(name: str, values: TensorLike, dtype: tf.DType, to: tf.Tensor) -> tf.Tensor:
    """Returns values in a tensor's shape; raises ValueError, which names them, if they do not fit.

    >>> broadcast("where", [True, False], tf.bool, tf.zeros([3, 2])).shape
    TensorShape([3, 2])
    """
    tensor = tf.cast(dense(name, values), dtype)
    try:
        fits = tf.broadcast_static_shape(tensor.shape, to.shape).is_compatible_with(to.shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name}={tensor.shape}: cannot be broadcast to {to.shape}. Give it that shape.")
    return tf.broadcast_to(tensor, tf.shape(to))


def with_end(lists: tf.Tensor, end: float | bool) -> tf.Tensor:
    """Returns lists `[..., m]`, each followed by a value."""
    return tf.concat([lists, tf.fill(tf.shape(lists[..., :1]), tf.cast(end, lists.dtype))], axis=-1)


def check_scores(scores: tf.Tensor, axes: str = "n") -> None:
    """Raises ValueError unless scores are floats with these last axes.

    >>> check_scores(tf.constant([3, 1, 2]))
    Traceback (most recent call last):
    ...
    ValueError: scores=int32 (3,): not floats of shape [..., n]. Convert them.
    """
    if not scores.dtype.is_floating or scores.shape.rank is None or scores.shape.rank < len(axes):
        raise ValueError(
            f"scores={scores.dtype.name} {scores.shape}: not floats of shape [..., {', '.join(axes)}]. "
            "Convert them."
        )


def check_ids(labels: tf.Tensor, scores: tf.Tensor | None = None) -> None:
    """Raises ValueError unless labels are integers and, if there are scores, one for each list of them."""
    if not labels.dtype.is_integer:
        raise ValueError(
            f"labels={labels.dtype.name} {labels.shape}: class ids must be integers. Cast them to int32."
        )
    if scores is not None and not labels.shape.is_compatible_with(scores.shape[:-1]):
        raise ValueError(
            f"labels={labels.shape}: do not fit scores of shape {scores.shape}. Give one class id per "
            f"instance, {scores.shape[:-1]}."
        )


def check_labels(labels: tf.Tensor, lists: tf.Tensor) -> None:
    """Raises ValueError unless labels have the shape of class ids or of values of all classes."""
    if labels.shape.rank is None:
        raise ValueError("labels=<unknown>: of no known rank. Give it with tf.ensure_shape.")
    if not any(map(labels.shape.is_compatible_with, (lists.shape, lists.shape[:-1]))):
        raise ValueError(
            f"labels={labels.shape}: do not fit scores of shape {lists.shape}. Give one integer per "
            f"instance, {lists.shape[:-1]}, or one value per class, {lists.shape}."
        )


def length(lists: tf.Tensor) -> int | tf.Tensor:
    """Returns the size of the last axis: an int, or a scalar tensor if it is known only at run time."""
    return lists.shape[-1] or tf.shape(lists)[-1]


def widen(labels: tf.Tensor) -> tf.Tensor:
    """Returns class ids or counts as int32 or int64, which hold any number of classes."""
    if labels.dtype in (tf.int32, tf.int64):
        return labels
    return tf.cast(labels, tf.int64 if labels.dtype in (tf.uint32, tf.uint64) else tf.int32)


def first_wrong(right: tf.Tensor) -> list[int] | None:
    """Returns the place of the first False; None if there is none, or in compiled code.

    >>> first_wrong(tf.constant([[True, True], [True, False]]))
    [1, 1]
    """
    if not tf.executing_eagerly() or bool(tf.reduce_all(right)):
        return None
    return tf.where(~right)[0].numpy().tolist()


def check_rank_fn(rank_fn: Any) -> None:
    """Raises ValueError if `rank_fn` is not a function from scores to ranks."""
    if hasattr(rank_fn, "rank_fn"):
        raise ValueError(
            f"rank_fn=sorter {rank_fn.name!r}: its ranks are in (0, 1]. Pass its .rank_fn instead."
        )
    if not callable(rank_fn):
        raise ValueError(
            f"rank_fn={rank_fn!r}: not a function. Pass one such as sorters.get('equivariant').rank_fn. To "
            "save a loss with your own function, register it: tf.keras.utils.register_keras_serializable."
        )

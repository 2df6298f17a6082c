"""What labels may be: class ids within the classes, or finite gains of at least 0.

In eager mode what is neither is an error; in compiled code nothing can be raised, and the losses of such an
instance are NaN, by `known` and `sound`.
"""

import tensorflow as tf

from rank4class.losses import ranks


def ids(labels, n):
    """Returns class ids as int32 or int64; raises ValueError where they are none."""
    if not labels.dtype.is_integer:
        raise ValueError(
            f"labels of shape {labels.shape} are class ids and must be integers, got {labels.dtype.name}"
        )
    labels = ranks.widen(labels)
    if tf.executing_eagerly() and not bool(tf.reduce_all(known(labels, n))):
        culprit = tf.where(~known(labels, n))[0].numpy().tolist()
        label = int(labels[tuple(culprit)])
        raise ValueError(f"label {label} of instance {culprit} is outside the classes 0..{int(n) - 1}")
    return labels


def gains(labels, shape, where):
    """Returns dense labels as float32 of a shape; raises ValueError where what takes part is no gain."""
    labels = tf.cast(labels, tf.float32)
    if not labels.shape.is_fully_defined():
        message = "dense labels need the shape of the scores; class ids need a static shape of [B] or [B, 1]"
        with tf.control_dependencies([tf.debugging.assert_equal(tf.shape(labels), shape, message)]):
            labels = tf.reshape(labels, shape)  # XLA drops the assertion, and stops here
    if tf.executing_eagerly() and not bool(tf.reduce_all(sound(labels, where))):
        culprit = tf.where(~sound(labels, where))[0].numpy().tolist()
        raise ValueError(
            f"label {float(labels[tuple(culprit)])} at {culprit} is not a finite gain of at least 0; "
            "leave a class out with `where`"
        )
    return labels


def known(labels, n):
    """Tells which class ids are among the classes."""
    return (labels >= 0) & (labels < tf.cast(n, labels.dtype))


def sound(labels, where):
    """Tells which dense labels are gains, or take no part."""
    gain = tf.math.is_finite(labels) & (labels >= 0.0)
    return gain if where is None else gain | ~where

"""The precision of a model and of the layers in it."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def scope(precision: str | None) -> Iterator[None]:
    """Creates layers, also those inside of others, with a Keras policy; None keeps the present one.

    >>> with scope("mixed_bfloat16"):
    ...     layer = tf.keras.layers.Dense(2)
    >>> layer.compute_dtype, tf.keras.mixed_precision.global_policy().name
    ('bfloat16', 'float32')
    """
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(precision or before)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)

"""Shared parts of encoders: the check of features, base classes, and loading from a checkpoint."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from rank4class import arguments
from rank4class.models import checkpoints
from rank4class.models.registry import Part

serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


def check_features(encoder: tf.keras.layers.Layer, features: Any) -> None:
    """Raises ValueError if the features of a call, or their shapes, lack one of the encoder's `FEATURES`.

    >>> from rank4class.models.encoders import Identity
    >>> check_features(Identity(), tf.zeros([2, 4]))
    Traceback (most recent call last):
    ...
    ValueError: features=(2, 4): Identity takes a dict of features. Pass {"embedding": ...}.
    """
    expected = getattr(encoder, "FEATURES", ())
    name = type(encoder).__name__
    if expected and not isinstance(features, Mapping):
        shape = getattr(features, "shape", features)
        wanted = ", ".join(f'"{feature}": ...' for feature in expected)
        raise ValueError(f"features={shape}: {name} takes a dict of features. Pass {{{wanted}}}.")
    for feature in expected:
        if feature not in features:
            raise ValueError(
                f"features={sorted(features)}: {name} needs the feature {feature!r}. Add it to the dict."
            )


class ImageEncoder(Part):
    """Applies `layers`, which a subclass sets, to the image in order."""

    FEATURES = ("image",)

    def call(self, features: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        h = features["image"]
        for layer in self.layers:
            h = layer(h, training=training)
        return h


class WithWeightDecay(Part):
    """Adds `weight_decay` times the sum of the squared kernels to the losses of the layer."""

    SAVED: tuple[str, ...] = ("weight_decay",)

    def __init__(self, weight_decay: float, **kwargs: Any):
        super().__init__(**kwargs)
        arguments.check_at_least(0, weight_decay=weight_decay)
        self.weight_decay = weight_decay
        if weight_decay:
            self.add_loss(self._penalty)

    def _penalty(self) -> tf.Tensor:
        kernels = [v for v in self.trainable_variables if v.name.endswith("kernel:0")]
        return self.weight_decay * sum(tf.reduce_sum(tf.square(kernel)) for kernel in kernels)


def load(cls: Any, path: str, **options: Any) -> Any:
    """Returns the encoder of class `cls` that a checkpoint describes, with its weights.

    The options are arguments of the constructor that the checkpoint does not set, or None.
    """
    checkpoint = checkpoints.find(path)
    if checkpoint.encoder != cls.NAME:
        raise ValueError(
            f"path={path}: the {checkpoint.format} is of {checkpoint.encoder!r}, not {cls.NAME!r}. Set the "
            f"encoder's name to {checkpoint.encoder!r}."
        )
    logging.info("%s: %s", path, checkpoint.format)
    try:
        options = {name: option for name, option in options.items() if option is not None}
        encoder = cls(**{**checkpoint.settings, **options})
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{checkpoint.path}: its configuration does not describe this encoder: {error} Choose another "
            "checkpoint."
        ) from error
    empty = tf.zeros([1, 32, 32, 3]) if "image" in cls.FEATURES else tf.zeros([1, 1], tf.int32)
    encoder(dict.fromkeys(cls.FEATURES, empty))  # creates the variables
    checkpoint.assign(encoder.named_variables())
    return encoder

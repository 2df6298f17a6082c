"""Shared parts of encoders: the check of features, base classes, and loading from a checkpoint."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from rank4class import arguments
from rank4class.models import checkpoints

serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


def check_features(encoder: tf.keras.layers.Layer, features: Any) -> None:
    """Raises ValueError if features lack one that the encoder takes.

    Args:
      encoder: a layer; without `FEATURES` it accepts any features.
      features: the tensors of a call, or their shapes.

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


class ImageEncoder(tf.keras.layers.Layer):
    """Applies `layers`, which a subclass sets, to the image in order."""

    FEATURES = ("image",)

    def call(self, features: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        h = features["image"]
        for layer in self.layers:
            h = layer(h, training=training)
        return h


class WithWeightDecay(tf.keras.layers.Layer):
    """Adds `weight_decay` times the sum of the squared kernels to the losses of the layer."""

    def __init__(self, weight_decay: float, **kwargs: Any):
        super().__init__(**kwargs)
        arguments.check_at_least(0, weight_decay=weight_decay)
        self.weight_decay = weight_decay
        if weight_decay:
            self.add_loss(self._penalty)

    def _penalty(self) -> tf.Tensor:
        kernels = [v for v in self.trainable_variables if v.name.endswith("kernel:0")]
        return self.weight_decay * sum(tf.reduce_sum(tf.square(kernel)) for kernel in kernels)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "weight_decay": self.weight_decay}


def load(
    cls: type[tf.keras.layers.Layer],
    path: str,
    name: str,
    options: dict[str, Any],
    empty: dict[str, tf.Tensor],
) -> tf.keras.layers.Layer:
    """Returns the encoder that a checkpoint describes, with its weights.

    Args:
      cls: the encoder's class.
      path: see `checkpoints.find`.
      name: the name of the encoder in `checkpoints`.
      options: arguments of the constructor that the checkpoint does not set.
      empty: features of one instance; a call on them creates the variables.

    Raises:
      ValueError: the checkpoint is of a different encoder, or describes none.
    """
    checkpoint = checkpoints.find(path)
    if checkpoint.encoder != name:
        raise ValueError(
            f"path={path}: the {checkpoint.format} is of {checkpoint.encoder!r}, not {name!r}. Set the "
            f"encoder's name to {checkpoint.encoder!r}."
        )
    logging.info("%s: %s", path, checkpoint.format)
    try:
        encoder = cls(**{**checkpoint.settings, **options})
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{checkpoint.path}: its configuration does not describe this encoder: {error} Choose another "
            "checkpoint."
        ) from error
    encoder(empty)
    checkpoint.assign(encoder.named_variables())
    return encoder

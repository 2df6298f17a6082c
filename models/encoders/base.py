"""Shared parts of encoders: the check of features, base classes, and loading from a checkpoint."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from rank4class import arguments, compat
from rank4class.models import checkpoints
from rank4class.models.registry import KERAS_3, Part, build_in_order

serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


def check_features(encoder: tf.keras.layers.Layer, features: Any) -> None:
    """Raises ValueError if the features of a call, or their shapes, lack one of the encoder's `FEATURES`.

    >>> from rank4class.models.encoders import Identity
    >>> check_features(Identity(), tf.zeros([2, 4]))
    Traceback (most recent call last):
    ...
    ValueError: features=(2, 4): Identity needs a dict with 'embedding'. Pass one.
    """
    is_dict = isinstance(features, Mapping)
    if missing := missing_features(encoder, features if is_dict else ()):
        shown = sorted(features) if is_dict else getattr(features, "shape", features)
        needed = f"{type(encoder).__name__} needs a dict with {', '.join(missing)}"
        raise ValueError(f"features={shown}: {needed}. Pass one.")


def missing_features(encoder: tf.keras.layers.Layer, features: Collection[str]) -> list[str]:
    """Returns the features that an encoder needs and lacks; a tuple in its `FEATURES` has alternatives.

    >>> from rank4class.models.encoders import Mlp
    >>> missing_features(Mlp(), {"id"}), missing_features(Mlp(), {"embedding"})
    (["'image' or 'embedding'"], [])
    """
    needed = ((each,) if isinstance(each, str) else each for each in getattr(encoder, "FEATURES", ()))
    return [" or ".join(map(repr, names)) for names in needed if not set(names) & set(features)]


class ImageEncoder(Part):
    """Applies `layers`, which a subclass sets, to the image, or a vector in place of it, in order."""

    FEATURES: tuple[str | tuple[str, ...], ...] = ("image",)

    def build_layers(self, shapes: Mapping[str, tf.TensorShape]) -> None:
        build_in_order(self.layers, shapes["image" if "image" in shapes else "embedding"])

    def call(self, features: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        h = features["image" if "image" in features else "embedding"]
        for layer in self.layers:
            h = layer(h, training=training)
        return h


class WithWeightDecay(Part):
    """Adds `weight_decay` times the sum of the squared kernels, or vectors, to the losses of the layer."""

    SAVED: tuple[str, ...] = ("weight_decay",)

    def __init__(self, weight_decay: float, **kwargs: Any):
        super().__init__(**kwargs)
        arguments.check_at_least(0, weight_decay=weight_decay)
        self.weight_decay = weight_decay
        if weight_decay and not KERAS_3:
            self.add_loss(self._penalty)

    def build(self, shapes: Any) -> None:
        super().build(shapes)
        if self.weight_decay and KERAS_3:
            for kernel in self._kernels():
                kernel.regularizer = tf.keras.regularizers.L2(self.weight_decay)

    def _kernels(self) -> list[tf.Variable]:
        ends = ("kernel", "table")
        return [v for v in self.trainable_variables if compat.variable_path(v).endswith(ends)]

    def _penalty(self) -> tf.Tensor:
        return self.weight_decay * sum(tf.reduce_sum(tf.square(kernel)) for kernel in self._kernels())


def load(cls: Any, path: str | None, **options: Any) -> Any:
    """Returns the encoder of class `cls` with the weights of a checkpoint; random ones if the path is None.

    Args:
      cls: class of the encoder, with `NAME`, `FEATURES` and `named_variables`.
      path: see `checkpoints.find`, or None.
      **options: arguments of the constructor; those that are not None replace the checkpoint's.

    Raises:
      ValueError: no checkpoint of a known format, one of another encoder, or one whose settings or tensors
        do not fit this encoder; or an option out of range.
      FileNotFoundError: nothing is at the path, or a file is missing.
    """
    if path is None:
        return cls(**options)
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
        if str(error).partition("=")[0] in options:
            raise
        raise ValueError(
            f"{checkpoint.path}: its configuration does not describe this encoder: {error} Choose another "
            "checkpoint."
        ) from error
    empty = tf.zeros([1, 32, 32, 3]) if "image" in cls.FEATURES else tf.zeros([1, 1], tf.int32)
    encoder(dict.fromkeys(cls.FEATURES, empty))  # creates the variables
    checkpoint.assign(encoder.named_variables())
    return encoder


def several_replicas() -> bool:
    """Returns whether batch normalization has to synchronize replicas to use the whole batch."""
    return tf.distribute.get_strategy().num_replicas_in_sync > 1


def of_layer(layer: tf.keras.layers.Layer) -> dict[str, tf.Variable]:
    """Returns the variables of a layer by their last names, such as "kernel"."""
    return {compat.variable_path(v).rsplit("/", 1)[-1]: v for v in layer.weights}


def by_layer(layers: Iterable[tf.keras.layers.Layer]) -> dict[str, tf.Variable]:
    """Returns the variables of layers by the names of the layers and theirs, such as "conv/kernel"."""
    return {f"{layer.name}/{name}": v for layer in layers for name, v in of_layer(layer).items()}

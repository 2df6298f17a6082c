"""Encoders of vectors, ids and flat images."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from rank4class import arguments
from rank4class.models import precision
from rank4class.models.encoders import base
from rank4class.models.registry import ENCODERS, Part


@ENCODERS.register("identity")
class Identity(Part):
    """Returns vectors that are already encoded.

    Features: `embedding` float `[B, d]`.

    Args:
      width: `d`; None takes it from the first call.
    """

    FEATURES = ("embedding",)
    SAVED = ("width",)

    def __init__(self, width: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.width = width

    def build(self, shapes: Mapping[str, tf.TensorShape]) -> None:
        width = shapes["embedding"][-1]
        if self.width not in (None, width):
            raise ValueError(f"width={self.width}: the vectors have {width} values. Set it to {width}.")
        self.width = width
        super().build(shapes)

    def call(self, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return features["embedding"]


@ENCODERS.register("embedding")
class InstanceEmbedding(base.WithWeightDecay):
    """A learned vector per instance, for instances that are known only by their ids, such as users.

    Features: `id` int `[B]`, in `0..num_ids-1`. Another id raises `tf.errors.InvalidArgumentError`; under XLA
    and on GPUs, which cannot raise, its vector is NaN.

    Args:
      num_ids: the number of instances.
      units: width of the encoder.
      dropout: dropout rate.
      weight_decay: factor of the squared vectors that are added to the loss. These are the vectors of all
        instances, so each step moves all of them, with `lazy_adam` too.

    >>> InstanceEmbedding(num_ids=5, units=4)({"id": tf.constant([3, 0])}).shape
    TensorShape([2, 4])

    References:
      Rankmax, section 4, for users and their movies.
    """

    FEATURES = ("id",)
    SAVED = ("num_ids", "units", "dropout", "weight_decay")

    def __init__(
        self,
        num_ids: int | None = None,
        units: int = 64,
        dropout: float = 0.0,
        weight_decay: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(weight_decay, **kwargs)
        arguments.check_integer(units=units)
        arguments.check_fraction(dropout=dropout)
        self.num_ids = num_ids
        self.units = units
        self.dropout = dropout
        self.width = units
        with precision.scope(self.dtype_policy.name):
            self._drop = tf.keras.layers.Dropout(dropout)

    def build(self, shapes: Mapping[str, tf.TensorShape]) -> None:
        arguments.check_integer(num_ids=self.num_ids)
        shape = [self.num_ids, self.units]
        self.table = self.add_weight(name="table", shape=shape, initializer="glorot_uniform")
        super().build(shapes)

    def call(self, features: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        ids = features["id"]
        vectors = tf.gather(self.table, ids)
        # XLA and GPUs do not check the ids.
        known = (ids >= 0) & (ids < self.num_ids)
        vectors = tf.where(known[..., None], vectors, tf.constant(float("nan"), vectors.dtype))
        return self._drop(vectors, training=training)


@ENCODERS.register("mlp")
class Mlp(base.ImageEncoder):
    """Dense layers with ReLU over the flattened image, or over a vector.

    Features: `image` float `[B, ...]`, or `embedding` float `[B, d]`.

    Args:
      hidden: widths of the layers; the last one is the width of the encoder.
      dropout: dropout rate after each layer.

    >>> Mlp(hidden=[16, 8])({"image": tf.zeros([2, 4, 4, 1])}).shape
    TensorShape([2, 8])
    """

    FEATURES = (("image", "embedding"),)
    SAVED = ("hidden", "dropout")

    def __init__(self, hidden: tuple[int, ...] = (128, 64), dropout: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        arguments.check_widths(hidden=hidden)
        arguments.check_fraction(dropout=dropout)
        self.hidden = tuple(hidden)
        self.dropout = dropout
        self.width = hidden[-1]
        with precision.scope(self.dtype_policy.name):
            self.layers = [tf.keras.layers.Flatten()]
            for units in self.hidden:
                self.layers.append(tf.keras.layers.Dense(units, activation="relu"))
                self.layers.append(tf.keras.layers.Dropout(dropout))

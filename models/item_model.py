"""A model of instances with one list of items each, such as queries with documents."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from rank4class import arguments
from rank4class.models import precision
from rank4class.models.encoders.base import WithWeightDecay, check_features
from rank4class.models.registry import ENCODERS


@ENCODERS.register("items")
class ItemModel(WithWeightDecay, tf.keras.Model):
    r"""Scores each item of an instance by its features: $s_{ij} = f(x_{ij})$.

    `f` has dense layers with ReLU and a final linear layer, and is the same for all items. There is no class
    encoder and no interaction, since the position in the list has no meaning.

    Features: `items` float `[B, m, d]`. It returns scores, float32 `[B, m]`, also for padding: pass `where`
    to losses and metrics to exclude it.

    Args:
      hidden: widths of the layers before the last one; if empty, scores are linear in the features. The last
        layer has no bias, which would shift all scores of a list equally.
      dropout: dropout rate after each hidden layer.
      weight_decay: factor of the squared kernels that are added to the loss.

    >>> ItemModel()({"items": tf.ones([2, 5, 3])}).shape
    TensorShape([2, 5])

    References:
      Swersky et al. (2012), section 5.2, with linear scores.
    """

    FEATURES = ("items",)
    SAVED = ("name", "trainable", "hidden", "dropout", "weight_decay")

    def __init__(
        self, hidden: tuple[int, ...] = (), dropout: float = 0.0, weight_decay: float = 0.0, **kwargs: Any
    ):
        super().__init__(weight_decay, **kwargs)
        arguments.check_widths(0, hidden=hidden)
        arguments.check_fraction(dropout=dropout)
        self.hidden = tuple(hidden)
        self.dropout = dropout
        if dropout and not self.hidden:
            raise ValueError(f"dropout={dropout}: there are no hidden layers. Set `hidden` too.")
        self.chain = tf.keras.Sequential()
        for units in self.hidden:
            self.chain.add(tf.keras.layers.Dense(units, activation="relu"))
            self.chain.add(tf.keras.layers.Dropout(dropout))
        self.chain.add(tf.keras.layers.Dense(1, use_bias=False, dtype="float32"))  # rounded scores would tie

    def build(self, shapes: Mapping[str, tf.TensorShape]) -> None:
        check_features(self, shapes)
        self.chain.build(shapes["items"])
        super().build(shapes)

    def call(self, features: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        check_features(self, features)
        return tf.squeeze(self.chain(features["items"], training=training), axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dtype": self.dtype_policy.name}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> "ItemModel":
        del custom_objects
        with precision.scope(config.get("dtype")):
            return cls(**config)

"""A small CNN for images."""

import itertools
from typing import Any

import tensorflow as tf

from rank4class import arguments
from rank4class.models import precision
from rank4class.models.encoders import base
from rank4class.models.registry import ENCODERS


@ENCODERS.register("small_cnn")
class SmallCnn(base.ImageEncoder):
    """A CNN for small images: 3 x 3 convolutions, each with batch normalization and pooling, a dense layer.

    Features: `image` float `[B, height, width, channels]`.

    Args:
      filters: channels of the convolutions, one per block.
      units: width of the encoder.
      dropout: dropout rate before and after the dense layer.

    >>> SmallCnn(units=8)({"image": tf.zeros([2, 8, 8, 1])}).shape
    TensorShape([2, 8])
    """

    SAVED = ("filters", "units", "dropout")

    def __init__(
        self, filters: tuple[int, ...] = (32, 64, 128), units: int = 64, dropout: float = 0.0, **kwargs: Any
    ):
        super().__init__(**kwargs)
        arguments.check_widths(filters=filters)
        arguments.check_integer(units=units)
        arguments.check_fraction(dropout=dropout)
        self.filters = tuple(filters)
        self.units = units
        self.dropout = dropout
        self.width = units
        with precision.scope(self.dtype_policy.name):
            self.layers = [
                *itertools.chain.from_iterable(map(self._block, self.filters)),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dropout(dropout),
                tf.keras.layers.Dense(units, activation="relu"),
                tf.keras.layers.Dropout(dropout),
            ]

    def _block(self, filters: int) -> list[tf.keras.layers.Layer]:
        return [
            tf.keras.layers.Conv2D(filters, 3, padding="same", use_bias=False),
            # The means of 0.99, Keras's default, would be far from those of a training of 100 steps.
            tf.keras.layers.BatchNormalization(momentum=0.9, synchronized=base.several_replicas()),
            tf.keras.layers.ReLU(),
            tf.keras.layers.MaxPooling2D(2, padding="same"),
        ]

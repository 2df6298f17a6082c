"""The model of instances that bring the items to be ranked, such as a query its documents."""

import tensorflow as tf

from rank4class.models.encoders.base import WithWeightDecay, check_features
from rank4class.models.registry import ENCODERS


@ENCODERS.register("items")
@tf.keras.utils.register_keras_serializable(package="rank4class")
class ItemModel(WithWeightDecay, tf.keras.Model):
    r"""Scores each item of an instance by its own features: $s_{ij} = f(x_{ij})$.

    Nothing is known of a place in the list, so there is no class encoder and no interaction: `f` is a chain
    of dense layers with ReLU and one without at its end, the same for all items. It is a Keras model like any
    other, as `RankModel` is.

    Features: `items` float `[B, m, d]`. Called on them it returns scores, float32 `[B, m]`; what pads a list
    has one too, which the mask has to keep out of losses and metrics.

    Args:
      hidden: widths of the layers before the last; without any, the scores are linear in the features. The
        last has no bias, which would move all scores of a list alike.
      dropout: rate after each of these.
      weight_decay: times the squares of the kernels, added to the loss.

    Raises:
      ValueError: a dropout without a layer to act on; or, raised by a call, features without `items`.

    >>> ItemModel()({"items": tf.ones([2, 5, 3])}).shape
    TensorShape([2, 5])

    References:
      Swersky et al. (2012), section 5.2, where scores are linear.
    """

    FEATURES = ("items",)

    def __init__(self, hidden=(), dropout=0.0, weight_decay=0.0, **kwargs):
        super().__init__(weight_decay, **kwargs)
        self.hidden, self.dropout = tuple(hidden), dropout
        if dropout and not self.hidden:
            raise ValueError(f"dropout {dropout} is of hidden layers, and there is none: set `hidden` too")
        self.chain = tf.keras.Sequential()
        for units in self.hidden:
            self.chain.add(tf.keras.layers.Dense(units, activation="relu"))
            self.chain.add(tf.keras.layers.Dropout(dropout))
        self.chain.add(tf.keras.layers.Dense(1, use_bias=False))

    def build(self, shapes):
        check_features(self, shapes)
        self.chain.build(shapes["items"])
        super().build(shapes)

    def call(self, features, training=None):
        check_features(self, features)
        scores = self.chain(features["items"], training=training)
        return tf.cast(tf.squeeze(scores, axis=-1), tf.float32)

    def get_config(self):
        return {**super().get_config(), "hidden": self.hidden, "dropout": self.dropout}

"""Class encoders: the classes to one vector each, `c` of shape `[n, d]`."""

import tensorflow as tf

_serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


@_serializable
class Embedding(tf.keras.layers.Layer):
    """A learned vector a class: the one-hot class through a linear map.

    Called on the ids of all the classes in order, int `[n]`, it returns its whole table.

    Args:
      num_classes: `n`.
      width: `d`.

    >>> Embedding(num_classes=3, width=4)(tf.range(3)).shape
    TensorShape([3, 4])

    References:
      Rank4Class, section 3.2.
    """

    def __init__(self, num_classes, width, **kwargs):
        super().__init__(**kwargs)
        self.num_classes, self.width = num_classes, width

    def build(self, input_shape):
        self.table = self.add_weight("table", [self.num_classes, self.width], initializer="glorot_uniform")
        super().build(input_shape)

    def call(self, class_ids):
        del class_ids  # all of them, in order: no look-up, and a dense gradient
        return tf.convert_to_tensor(self.table)

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes, "width": self.width}

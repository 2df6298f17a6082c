"""Scores of a linear model that a rank model adds to its own."""

from typing import Any

import tensorflow as tf

from rank4class.models.registry import UNROUNDED, Part


@tf.keras.utils.register_keras_serializable(package="rank4class")
class AddedScores(Part):
    r"""Scores of a solved linear model times a weight, $w (V x + b)$. Training leaves them as they are.

    The sum of two models' scores is that of their log-probabilities, but for a constant of the example. The
    weights are assigned: `kernel` `[d, n]`, `bias` `[n]`, and `weight`, at first 0, which leaves it out.

    Args:
      num_classes: `n`.

    >>> AddedScores(num_classes=3)(tf.ones([2, 4])).numpy()
    array([[0., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """

    SAVED = ("num_classes",)

    def __init__(self, num_classes: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_classes = num_classes

    def build(self, shape: tf.TensorShape) -> None:
        def add(name: str, shape: list[int]) -> tf.Variable:
            return self.add_weight(name=name, shape=shape, initializer="zeros", trainable=False, **UNROUNDED)

        self.kernel = add("kernel", [shape[-1], self.num_classes])
        self.bias = add("bias", [self.num_classes])
        self.weight = add("weight", [])
        super().build(shape)

    def call(self, features: tf.Tensor, class_ids: tf.Tensor | None = None) -> tf.Tensor:
        kernel, bias = tf.convert_to_tensor(self.kernel), tf.convert_to_tensor(self.bias)
        if class_ids is not None:
            kernel, bias = tf.gather(kernel, class_ids, axis=1), tf.gather(bias, class_ids)
        return self.weight * (tf.matmul(tf.cast(features, tf.float32), kernel) + bias)

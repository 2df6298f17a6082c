"""Count priors: log-probabilities of the number of relevant classes, `0..m`.

Each is a Keras layer that is called on the vectors of the instance encoder, `h` `[B, d]`.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import arguments
from rank4class.models import precision
from rank4class.models.registry import COUNT_PRIORS, Part, build_in_order


@COUNT_PRIORS.register("learned")
class LearnedCounts(Part):
    """A distribution of the count that depends on the instance: dense layers with ReLU and a softmax.

    Args:
      most: `m`, the largest count.
      hidden: widths of the layers before the last one.

    >>> LearnedCounts(most=4)(tf.zeros([2, 8])).shape
    TensorShape([2, 5])

    References:
      Swersky, Tarlow, Adams, Zemel, Frey (2012), "Probabilistic n-choose-k models for classification and
      ranking", section 5.1.
    """

    SAVED = ("most", "hidden")

    def __init__(self, most: int, hidden: tuple[int, ...] = (), **kwargs: Any):
        super().__init__(**kwargs)
        arguments.check_integer(most=most)
        arguments.check_widths(0, hidden=hidden)
        self.most = most
        self.hidden = tuple(hidden)
        with precision.scope(self.dtype_policy.name):
            self._layers_before = [tf.keras.layers.Dense(units, activation="relu") for units in self.hidden]
            self._last = tf.keras.layers.Dense(most + 1)

    def build_layers(self, shapes: tf.TensorShape) -> None:
        build_in_order([*self._layers_before, self._last], shapes)

    def call(self, h: tf.Tensor) -> tf.Tensor:
        for layer in self._layers_before:
            h = layer(h)
        return tf.nn.log_softmax(tf.cast(self._last(h), tf.float32))


@COUNT_PRIORS.register("fixed")
class FixedCounts(Part):
    """The same distribution of the count for every instance.

    Args:
      probabilities: probabilities of the counts `0, 1, ...`.

    >>> tf.exp(FixedCounts([0.0, 0.75, 0.25])(tf.zeros([1, 8]))).numpy()
    array([[0.  , 0.75, 0.25]], dtype=float32)
    """

    SAVED = ("probabilities",)

    def __init__(self, probabilities: tuple[float, ...], **kwargs: Any):
        super().__init__(**kwargs)
        self.probabilities = tuple(map(float, probabilities))
        named: dict[str, Any] = {f"probability of count {i}": p for i, p in enumerate(probabilities)}
        arguments.check_at_least(0, **named)
        total = sum(self.probabilities)
        if not abs(total - 1.0) < 1e-6:
            raise ValueError(
                f"probabilities={self.probabilities}: they sum to {total:g}, not to 1. Scale them."
            )

    def call(self, h: tf.Tensor) -> tf.Tensor:
        with np.errstate(divide="ignore"):
            log_prior = np.log(np.array(self.probabilities)).astype(np.float32)
        return tf.broadcast_to(log_prior, [tf.shape(h)[0], len(log_prior)])

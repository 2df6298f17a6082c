"""Class encoders: one vector per class, `c` of shape `[m, d]`.

Each is a Keras layer that is called on the ids of classes, int `[m]`, and on `encode`, the instance encoder
as a function of features, which only `Text` uses. As many ids as there are classes are those of all classes
in order, which need no lookup; fewer ids are candidates (see `data.candidates`), whose rows alone are read.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import compat
from rank4class.models import precision
from rank4class.models.encoders.base import WithWeightDecay
from rank4class.models.registry import CLASS_ENCODERS, Part

_BLOCK = 1024  # texts that are encoded at a time, except in training

Encode = Callable[[Mapping[str, tf.Tensor]], tf.Tensor]


@CLASS_ENCODERS.register("embedding")
class Embedding(WithWeightDecay):
    """A learned vector per class.

    Args:
      num_classes: `n`.
      width: `d`.
      weight_decay: factor of the squared vectors that are added to the losses of the layer.
      initial: the vectors before training, float `[n, d]`; None draws them as Keras draws weights.

    >>> Embedding(num_classes=3, width=4)(tf.range(3)).shape
    TensorShape([3, 4])

    References:
      Rank4Class, section 3.2.
    """

    SAVED = ("num_classes", "width", "weight_decay")

    def __init__(
        self,
        num_classes: int,
        width: int,
        weight_decay: float = 0.0,
        initial: tf.types.experimental.TensorLike | None = None,
        **kwargs: Any,
    ):
        super().__init__(weight_decay, **kwargs)
        self._initializer = "glorot_uniform" if initial is None else tf.keras.initializers.Constant(initial)
        self.num_classes = num_classes
        self.width = width

    def build(self, input_shape: tf.TensorShape) -> None:
        shape = [self.num_classes, self.width]
        self.table = self.add_weight(name="table", shape=shape, initializer=self._initializer)
        super().build(input_shape)

    def call(self, class_ids: tf.Tensor, encode: Encode | None = None) -> tf.Tensor:
        del encode
        return _rows(self.table, class_ids)


@CLASS_ENCODERS.register("text")
class Text(tf.keras.layers.Layer):
    """The names or descriptions of the classes, encoded by the instance encoder, which is trained on both.

    Classes held out of training have a vector too. Each step encodes `n` additional texts.

    Args:
      features: the features of the encoder, from name to ints `[n, length]`.

    >>> Text({"input_word_ids": [[1], [2]]})(tf.range(2), encode=lambda x: x["input_word_ids"]).numpy()
    array([[1],
           [2]], dtype=int32)

    References:
      Rank4Class, section 3.2, names class metadata as future work.
    """

    def __init__(self, features: Mapping[str, tf.types.experimental.TensorLike], **kwargs: Any):
        super().__init__(**kwargs)
        self.names = tuple(features)
        # A weight, since lists of all tokens would make the config as large as millions of numbers in JSON.
        # Of 64 bits, since TensorFlow keeps weights of int32 on the host, where XLA's programs for GPUs fail.
        tokens = np.array([features[name] for name in self.names], np.int32)
        options = {"shape": tokens.shape, "dtype": tf.int64, "trainable": False}
        constant = tf.keras.initializers.Constant(tokens)
        self.tokens = self.add_weight(name="tokens", initializer=constant, **options)
        self.num_classes = tokens.shape[1]

    def call(
        self, class_ids: tf.Tensor, encode: Encode | None = None, training: bool | None = None
    ) -> tf.Tensor:
        def encode_block(tokens: tf.Tensor) -> tf.Tensor:
            assert encode is not None
            return encode(dict(zip(self.names, tf.unstack(tokens), strict=True)))

        tokens = tf.stack([_rows(tokens, class_ids) for tokens in tf.unstack(self.tokens)])
        tokens = tf.cast(tokens, tf.int32)
        size = tokens.shape[1]
        if training and size != self.num_classes and not compat.in_xla():  # candidates need less padding
            lengths = tf.reduce_sum(tokens[self.names.index("input_mask")], axis=1)
            tokens = tokens[:, :, : tf.reduce_max(lengths)]
        if training or size is None or size <= _BLOCK:
            return encode_block(tokens)
        blocks = tf.reshape(
            tf.pad(tokens, [[0, 0], [0, -size % _BLOCK], [0, 0]]),
            [len(self.names), -1, _BLOCK, tokens.shape[2]],
        )
        blocks = tf.transpose(blocks, [1, 0, 2, 3])
        first = encode_block(blocks[0])
        spec = tf.TensorSpec(first.shape, first.dtype)
        others = tf.map_fn(encode_block, blocks[1:], fn_output_signature=spec, parallel_iterations=1)
        return tf.concat([first, tf.reshape(others, [-1, first.shape[1]])], axis=0)[:size]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "names": self.names, "shape": self.tokens.shape[1:].as_list()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Text":
        """Returns a layer without its tokens, which its weights hold."""
        options = dict(config)
        names = options.pop("names")
        shape = options.pop("shape")
        return cls({name: np.zeros(shape, np.int32) for name in names}, **options)


@CLASS_ENCODERS.register("frozen_text")
class FrozenText(Part):
    """Fixed vectors of the names or descriptions of the classes, and a learned linear map of them.

    Classes held out of training have a vector too. A map of equal widths is initialized to the identity.

    Args:
      shape: shape of the vectors, `[n, e]`.
      width: `d`.
      vectors: float `[n, e]`; None if weights are loaded later.

    >>> FrozenText(shape=[2, 3], width=4, vectors=[[1.0, 2.0, 3.0]] * 2)(tf.range(2)).shape
    TensorShape([2, 4])
    """

    SAVED = ("shape", "width")

    def __init__(
        self,
        shape: Sequence[int],
        width: int,
        vectors: tf.types.experimental.TensorLike | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.shape = list(shape)
        self.width = width
        self.num_classes = shape[0]
        initializer = "zeros" if vectors is None else tf.keras.initializers.Constant(vectors)
        options = {"shape": self.shape, "trainable": False}
        self.vectors = self.add_weight(name="vectors", initializer=initializer, **options)
        kernel = "identity" if self.shape[1] == width else "glorot_uniform"
        with precision.scope(self.dtype_policy.name):
            self.map = tf.keras.layers.Dense(width, use_bias=False, kernel_initializer=kernel, name="map")

    def build_layers(self, shapes: tf.TensorShape) -> None:
        self.map.build([None, self.shape[1]])

    def call(self, class_ids: tf.Tensor, encode: Encode | None = None) -> tf.Tensor:
        del encode
        return self.map(_rows(self.vectors, class_ids))


def _rows(table: tf.Variable | tf.Tensor, class_ids: tf.Tensor) -> tf.Tensor:
    """Returns the rows of classes; those of all have a dense gradient, those of candidates a sparse one."""
    if class_ids.shape[0] == table.shape[0]:
        return tf.convert_to_tensor(table)
    return tf.gather(table, class_ids)


@tf.keras.utils.register_keras_serializable(package="rank4class")
class Residual(Part):
    """The vectors of another class encoder plus learned ones that start at 0.

    With texts, classes of many examples can leave their texts, and the others keep them.

    Args:
      base: the class encoder that provides the input.
      num_classes: `n`.
      width: `d`.

    >>> base = FrozenText(shape=[2, 3], width=3, vectors=[[1.0, 2.0, 3.0]] * 2)
    >>> Residual(base, num_classes=2, width=3)(tf.constant([1])).numpy()
    array([[1., 2., 3.]], dtype=float32)
    """

    SAVED = ("num_classes", "width")

    def __init__(self, base: tf.keras.layers.Layer, num_classes: int, width: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.base = base
        self.num_classes = num_classes
        self.width = width
        with precision.scope(self.dtype_policy.name):
            self.residual = Embedding(num_classes, width, initial=0.0, name="residual")

    def build_layers(self, shapes: tf.TensorShape) -> None:
        for layer in (self.base, self.residual):
            if not layer.built:  # a loaded one is
                layer.build(shapes)

    def call(
        self, class_ids: tf.Tensor, encode: Encode | None = None, training: bool | None = None
    ) -> tf.Tensor:
        return self.base(class_ids, encode=encode, training=training) + self.residual(class_ids)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "base": tf.keras.layers.serialize(self.base)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Residual":
        return cls(**{**config, "base": tf.keras.layers.deserialize(config["base"])})

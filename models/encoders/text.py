"""Encoders of texts: BERT and ELECTRA."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from rank4class import arguments, compat
from rank4class.models import precision
from rank4class.models.encoders import base
from rank4class.models.registry import ENCODERS, Part


class Block(tf.keras.layers.Layer):
    """Self-attention and two dense layers, each added to its input and normalized, in float32."""

    def __init__(self, sizes: Mapping[str, Any], **kwargs: Any):
        super().__init__(**kwargs)
        width, heads, dropout = (sizes[name] for name in ("hidden_size", "num_heads", "dropout"))
        initial = _initial()
        self.attention = tf.keras.layers.MultiHeadAttention(
            heads, width // heads, dropout=dropout, kernel_initializer=initial, name="self_attention"
        )
        self.attention_norm = _norm("self_attention_layer_norm")
        self.inner = _dense(sizes["inner_size"], "intermediate")
        # With eight bits an error function is coarse, and slow on CPUs.
        in_float32 = self.compute_dtype == "bfloat16"
        self.activation = tf.keras.layers.Activation(
            _ACTIVATIONS[sizes["activation"]], dtype="float32" if in_float32 else None
        )
        self.outer = _dense(width, "output")
        self.norm = _norm("output_layer_norm")
        self.drop = tf.keras.layers.Dropout(dropout)

    def call(self, states: tf.Tensor, attended: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Returns states `[B, length, width]`, each after attention to those of a mask `[B, 1, length]`."""
        change = self.attention(states, states, attention_mask=attended, training=training)
        states = self.attention_norm(_sum(states, self.drop(change, training=training)))
        change = self.outer(self.activation(self.inner(states)))
        return self.norm(_sum(states, self.drop(change, training=training)))


def _sum(states: tf.Tensor, change: tf.Tensor) -> tf.Tensor:
    return tf.cast(states, tf.float32) + tf.cast(change, tf.float32)


def _initial() -> tf.keras.initializers.Initializer:
    return tf.keras.initializers.TruncatedNormal(stddev=0.02)


def _dense(units: int, name: str, activation: Any = None) -> tf.keras.layers.Layer:
    return tf.keras.layers.Dense(units, activation, kernel_initializer=_initial(), name=name)


def _table(size: int, width: int, name: str) -> tf.keras.layers.Layer:
    return tf.keras.layers.Embedding(size, width, embeddings_initializer=_initial(), name=name)


def _norm(name: str) -> tf.keras.layers.Layer:
    return tf.keras.layers.LayerNormalization(epsilon=1e-12, dtype="float32", name=name)


@base.serializable
class Bert(Part):
    """BERT, pooled to one vector. Sums and normalizations are of float32 in any precision.

    Features: `input_word_ids`, `input_mask`, `input_type_ids`, int `[B, length]`.

    Args:
      vocab_size, hidden_size, num_layers, num_heads, inner_size, max_positions, num_types: sizes.
      embedding_size: width of the embeddings; None is `hidden_size`.
      activation: "gelu" (exact), "gelu_new" (the tanh approximation) or "relu".
      dropout: dropout rate of hidden states and attention.
      output_dropout: dropout rate of the pooled vector, 0.1 in the published fine-tuning.
      pooling: "pooler", the default, for the state of the first token through BERT's dense tanh layer, "cls"
        for that state itself, or "mean" for the mean over the tokens without padding.
      pooler: whether there is such a dense layer; without it the default pooling is "cls".

    References:
      Devlin et al. (2019), "BERT"; Rank4Class, appendix B.2.
    """

    FEATURES = ("input_word_ids", "input_mask", "input_type_ids")
    NAME = "bert"
    POOLINGS: tuple[str, ...] = ("pooler", "cls", "mean")

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int = 768,
        num_layers: int = 12,
        num_heads: int = 12,
        inner_size: int = 3072,
        max_positions: int = 512,
        num_types: int = 2,
        embedding_size: int | None = None,
        activation: str = "gelu",
        dropout: float = 0.1,
        output_dropout: float = 0.0,
        pooling: str | None = None,
        pooler: bool = True,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        poolings = [name for name in self.POOLINGS if pooler or name != "pooler"]
        self.width, self.pooling = hidden_size, pooling or poolings[0]
        arguments.check_choice(poolings, pooling=self.pooling)
        arguments.check_choice(_ACTIVATIONS, activation=activation)
        self.config: dict[str, Any] = {
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "num_layers": num_layers,
            "num_heads": num_heads,
            "inner_size": inner_size,
            "max_positions": max_positions,
            "num_types": num_types,
            "embedding_size": embedding_size or hidden_size,
            "activation": activation,
            "dropout": dropout,
            "output_dropout": output_dropout,
            "pooler": pooler,
        }
        embedding_size = self.config["embedding_size"]
        with precision.scope(self.dtype_policy.name):
            self.words = _table(vocab_size, embedding_size, "word_embeddings")
            self.positions = _table(max_positions, embedding_size, "position_embedding")
            self.types = _table(num_types, embedding_size, "type_embeddings")
            self.norm = _norm("layer_norm")
            self.drop = tf.keras.layers.Dropout(dropout)
            self.projection = self.pooler = None
            if embedding_size != hidden_size:
                self.projection = _dense(hidden_size, "embedding_projection")
            self.blocks = [Block(self.config, name=f"layer_{i}") for i in range(num_layers)]
            if "pooler" in poolings:
                self.pooler = _dense(hidden_size, "pooler_transform", "tanh")
                # Without a part in the output, the pooler has no gradient.
                self.pooler.trainable = self.pooling == "pooler"
            self.output_drop = tf.keras.layers.Dropout(output_dropout)

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns the variables that a checkpoint has to provide, by names as in the Model Garden."""
        parts: dict[str, Any] = {"embeddings/layer_norm": self.norm}
        parts |= {f"transformer/{block.name}": block for block in self.blocks}
        others = (self.words, self.positions, self.types, self.projection, self.pooler)
        parts |= {layer.name: layer for layer in others if layer is not None}
        named: dict[str, tf.Variable] = {}
        for name, layer in parts.items():
            scope = f"{layer.name}/" if isinstance(layer, Block) else "/"
            named |= {f"{name}/{compat.variable_path(v).rpartition(scope)[2]}": v for v in layer.weights}
        return named

    def build(self, shapes: Mapping[str, tf.TensorShape]) -> None:
        self.types.build(None)  # `states` reads its table, and pools nothing
        if self.pooler is not None:
            self.pooler.build([None, None, self.width])
        # Keras's attention creates its variables in its first call. Without this call, a reloaded SavedModel
        # would replace the restored variables by new ones.
        with precision.scope(self.dtype_policy.name):  # the blocks create layers in their first call
            self.states({name: tf.zeros([1, 2], tf.int32) for name in self.FEATURES})
        super().build(shapes)

    def call(self, features: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        states = self.states(features, training=training)
        return self.output_drop(self._pool(states, features["input_mask"]), training=training)

    def states(self, features: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Returns the states of the last layer, float32 `[B, length, hidden_size]`."""
        ids, length = features["input_word_ids"], features["input_word_ids"].shape[-1]
        if length is not None and length > self.config["max_positions"]:
            raise ValueError(
                f"max_length={length}: this encoder has {self.config['max_positions']} positions. Lower it."
            )
        # The gradient of a product is faster than that of a look-up in a table of two rows.
        types = tf.one_hot(features["input_type_ids"], self.config["num_types"])
        h = _sum(self.words(ids), self.positions(tf.range(tf.shape(ids)[-1])))
        h = self.norm(h + tf.matmul(types, tf.cast(self.types.embeddings, tf.float32)))
        h = self.drop(h, training=training)
        if self.projection is not None:
            h = self.projection(h)
        attended = tf.cast(features["input_mask"], tf.bool)[:, None, :]
        for block in self.blocks:
            h = block(h, attended, training=training)
        return h

    def _pool(self, states: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        if self.pooling == "pooler":
            assert self.pooler is not None
            return self.pooler(states[:, 0, :])
        if self.pooling == "cls":
            return states[:, 0, :]
        mask = tf.cast(mask, states.dtype)[..., None]
        return tf.math.divide_no_nan(tf.reduce_sum(states * mask, axis=1), tf.reduce_sum(mask, axis=1))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.config, "pooling": self.pooling}


@ENCODERS.register("bert")
def bert(path: str, dropout: float = 0.1, output_dropout: float = 0.0, pooling: str | None = None) -> Bert:
    """Returns the BERT encoder of a checkpoint, with its weights.

    Args:
      path: see `checkpoints.find`.
      dropout, output_dropout: see `Bert`.
      pooling: see `Bert`; None is that of the checkpoint if it is an export of a run, otherwise the default.
    """
    return _load(Bert, path, dropout, output_dropout, pooling)


@base.serializable
class Electra(Bert):
    """ELECTRA's discriminator: BERT's network without a pooler, possibly with narrower embeddings.

    Features and arguments are the same as for `Bert`; `pooling` is "cls", the default, or "mean".

    References:
      Clark et al. (2020), "ELECTRA"; Rank4Class, appendix B.2.
    """

    POOLINGS = ("cls", "mean")
    NAME = "electra"


@ENCODERS.register("electra")
def electra(
    path: str, dropout: float = 0.1, output_dropout: float = 0.0, pooling: str | None = None
) -> Electra:
    """Returns the ELECTRA encoder of a checkpoint, with its weights; see `bert`."""
    return _load(Electra, path, dropout, output_dropout, pooling)


def _load(cls: type[Bert], path: str, dropout: float, output_dropout: float, pooling: str | None) -> Any:
    arguments.check_fraction(dropout=dropout, output_dropout=output_dropout)
    return base.load(cls, path, dropout=dropout, output_dropout=output_dropout, pooling=pooling)


def _gelu_new(x: tf.Tensor) -> tf.Tensor:
    return tf.keras.activations.gelu(x, approximate=True)


_ACTIVATIONS = {"gelu": tf.keras.activations.gelu, "gelu_new": _gelu_new, "relu": tf.keras.activations.relu}

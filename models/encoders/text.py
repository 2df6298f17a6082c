"""Encoders of texts: BERT and ELECTRA."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from rank4class import arguments, compat
from rank4class.models import precision
from rank4class.models.encoders import base
from rank4class.models.registry import ENCODERS


@base.serializable
class Bert(tf.keras.layers.Layer):
    """The BERT encoder of tf-models-official, pooled to one vector.

    Features: `input_word_ids`, `input_mask`, `input_type_ids`, int `[B, length]`.

    Args:
      vocab_size, hidden_size, num_layers, num_heads, inner_size, max_positions, num_types: sizes.
      embedding_size: width of the embeddings; None is `hidden_size`.
      activation: "gelu" (exact), "gelu_new" (the tanh approximation) or "relu".
      dropout: dropout rate of hidden states and attention.
      output_dropout: dropout rate of the pooled vector, 0.1 in the published fine-tuning.
      pooling: "pooler", the default, for the state of the first token through BERT's dense tanh layer, "cls"
        for that state itself, or "mean" for the mean over the tokens without padding.

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
        **kwargs: Any,
    ):
        compat.require_keras_2(f"encoder {self.NAME!r}")
        networks = compat.import_extra("official.nlp.modeling.networks", "models")
        super().__init__(**kwargs)
        self.width, self.pooling = hidden_size, pooling or self.POOLINGS[0]
        arguments.check_choice(self.POOLINGS, pooling=self.pooling)
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
        }
        with precision.scope(self.dtype_policy.name):
            self.network = networks.BertEncoderV2(
                vocab_size=vocab_size,
                hidden_size=hidden_size,
                num_layers=num_layers,
                num_attention_heads=num_heads,
                inner_dim=inner_size,
                max_sequence_length=max_positions,
                type_vocab_size=num_types,
                embedding_width=embedding_size,
                inner_activation=_ACTIVATIONS[activation],
                output_dropout=dropout,
                attention_dropout=dropout,
                name="bert",
            )
            self.drop = tf.keras.layers.Dropout(output_dropout)
        # Without a part in the output, the pooler has no gradient.
        self.network.pooler_layer.trainable = self.pooling == "pooler"

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns the variables that a checkpoint has to provide, by the names of the network."""
        scope = self.network.name + "/"
        named = {v.name.rsplit(scope, 1)[-1].removesuffix(":0"): v for v in self.network.variables}
        return {name: v for name, v in named.items() if "pooler" in self.POOLINGS or "pooler" not in name}

    def call(self, features: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        length = features["input_word_ids"].shape[-1]
        if length is not None and length > self.config["max_positions"]:
            raise ValueError(
                f"max_length={length}: this encoder has {self.config['max_positions']} positions. Lower it."
            )
        return self.drop(self._pool(features, self.network(features, training=training)), training=training)

    def build(self, shapes: Mapping[str, tf.TensorShape]) -> None:
        # Keras's attention creates its variables in its first call. Without this call, a reloaded SavedModel
        # would replace the restored variables by new ones.
        with precision.scope(self.dtype_policy.name):  # its blocks create layers in their first call
            self.network({name: tf.zeros([1, 1], tf.int32) for name in self.FEATURES})
        super().build(shapes)

    def _pool(self, features: Mapping[str, tf.Tensor], outputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        if self.pooling == "pooler":
            return outputs["pooled_output"]
        states = outputs["sequence_output"]
        if self.pooling == "cls":
            return states[:, 0, :]
        mask = tf.cast(features["input_mask"], states.dtype)[..., None]
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

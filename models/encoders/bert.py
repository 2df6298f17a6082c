"""BERT: its layers, the names of its sizes in config files, and those of its weights in checkpoints."""

import math
import os
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from rank4class import arguments, compat, strict_json
from rank4class.models import checkpoints, precision
from rank4class.models.encoders import base
from rank4class.models.registry import ENCODERS, Part

# Argument of `Bert` -> field of `config.json`.
_CONFIG_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "inner_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "num_types": "type_vocab_size",
    "activation": "hidden_act",
}
# Our names of layers -> those of google-research's BERT, and of ELECTRA, which shares its code.
_LAYER = r"layer_(\d+)"
GOOGLE_MODULES = {
    "word_embeddings": "embeddings/word_embeddings",
    "position_embedding": "embeddings/position_embeddings",
    "type_embeddings": "embeddings/token_type_embeddings",
    "layer_norm": "embeddings/LayerNorm",
    "embedding_projection": "embeddings_project",
    f"{_LAYER}/self_attention/(query|key|value)": r"encoder/layer_\1/attention/self/\2",
    f"{_LAYER}/self_attention/attention_output": r"encoder/layer_\1/attention/output/dense",
    f"{_LAYER}/self_attention_layer_norm": r"encoder/layer_\1/attention/output/LayerNorm",
    f"{_LAYER}/(intermediate|output)": r"encoder/layer_\1/\2/dense",
    f"{_LAYER}/output_layer_norm": r"encoder/layer_\1/output/LayerNorm",
    "pooler_transform": "pooler/dense",
}


def hugging_face_names(modules: Mapping[str, str]) -> checkpoints.NameMap:
    """Returns the names in Hugging Face's layout, of which `/` is the dot, and `layer_3` is `layer/3`."""
    return checkpoints.NameMap(
        {ours: name.replace("layer_", "layer/").replace("/", ".") for ours, name in modules.items()},
        # A buffer of positions, and the heads of pre-training, classification and question answering.
        unused=r"embeddings\.position_ids|(cls|lm_head|classifier|qa_outputs|discriminator_predictions)\..*",
        parameters=dict.fromkeys(("embeddings", "kernel", "gamma"), ".weight")
        | dict.fromkeys(("bias", "beta"), ".bias"),
        transposed="kernel",
    )


class Block(tf.keras.layers.Layer):
    """Self-attention and two dense layers, each added to its input and normalized, in float32."""

    def __init__(self, attention: Any, sizes: Mapping[str, Any], epsilon: float, **kwargs: Any):
        super().__init__(**kwargs)
        width, heads, dropout = (sizes[name] for name in ("hidden_size", "num_heads", "dropout"))
        self.attention = attention(heads, width // heads, dropout=dropout, name="self_attention")
        self.attention_norm = _norm("self_attention_layer_norm", epsilon)
        self.inner = dense(sizes["inner_size"], "intermediate")
        # With eight bits an error function is coarse, and slow on CPUs.
        in_float32 = self.compute_dtype == "bfloat16"
        self.activation = tf.keras.layers.Activation(
            _ACTIVATIONS[sizes["activation"]], dtype="float32" if in_float32 else None
        )
        self.outer = dense(width, "output")
        self.norm = _norm("output_layer_norm", epsilon)
        self.drop = tf.keras.layers.Dropout(dropout)

    def call(self, states: tf.Tensor, attended: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Returns states `[B, length, width]`, each after attention to those of `Bert.attended`."""
        change = self.attention(states, states, attention_mask=attended, training=training)
        states = self.attention_norm(_sum(states, self.drop(change, training=training)))
        change = self.outer(self.activation(self.inner(states)))
        return self.norm(_sum(states, self.drop(change, training=training)))


def _attention(num_heads: int, key_dim: int, **kwargs: Any) -> tf.keras.layers.Layer:
    return tf.keras.layers.MultiHeadAttention(num_heads, key_dim, kernel_initializer=initial(), **kwargs)


def _sum(states: tf.Tensor, change: tf.Tensor) -> tf.Tensor:
    return tf.cast(states, tf.float32) + tf.cast(change, tf.float32)


def _mean(vectors: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns the mean `[B, d]` of vectors `[B, n, d]` whose mask is 1."""
    mask = tf.cast(mask, vectors.dtype)[..., None]
    return tf.math.divide_no_nan(tf.reduce_sum(vectors * mask, axis=1), tf.reduce_sum(mask, axis=1))


def initial() -> tf.keras.initializers.Initializer:
    return tf.keras.initializers.TruncatedNormal(stddev=0.02)


def dense(units: int, name: str, activation: Any = None) -> tf.keras.layers.Layer:
    return tf.keras.layers.Dense(units, activation, kernel_initializer=initial(), name=name)


def table(size: int, width: int, name: str) -> tf.keras.layers.Layer:
    return tf.keras.layers.Embedding(size, width, embeddings_initializer=initial(), name=name)


def _norm(name: str, epsilon: float) -> tf.keras.layers.Layer:
    return tf.keras.layers.LayerNormalization(epsilon=epsilon, dtype="float32", name=name)


@base.serializable
@checkpoints.HUGGING_FACE.register("bert")
class Bert(Part):
    """BERT, pooled to one vector. Sums and normalizations are of float32 in any precision.

    Features: `input_word_ids`, `input_mask`, `input_type_ids`, int `[B, length]`, or `[B, windows, length]`.
    Then the vector of a text is the mean of those of its windows with a token.

    Attributes:
      NAME: name of the encoder, and `model_type` in Hugging Face's layout.
      TOKENIZER: name of the tokenizer of its checkpoints.
      ARCHITECTURE, SCOPE: name of the class in transformers, and of its weights in a model with a head.
      CONFIG_FIELDS: argument -> field of `config.json`.
      HUGGING_FACE_NAMES: names of the weights in Hugging Face's layout.
      EPSILON: of the normalizations.
      FIRST_POSITION: index of the first token in the table of positions.
      ATTENTION: function of the number of heads, their width, the dropout rate and a name to the layer of
        self-attention, which is called as Keras's `MultiHeadAttention`.

    Args:
      vocab_size, hidden_size, num_layers, num_heads, inner_size, max_positions: sizes.
      num_types: size of the table of token types; with 0 there is none.
      embedding_size: width of the embeddings; None is `hidden_size`.
      activation: "gelu" (exact), "gelu_new" (the tanh approximation) or "relu".
      dropout: dropout rate of hidden states and attention.
      output_dropout: dropout rate of the pooled vector, 0.1 in the published fine-tuning.
      pooling: "pooler", the default, for the state of the first token through BERT's dense tanh layer, "cls"
        for that state itself, or "mean" for the mean over the tokens without padding. "normalized_cls" and
        "normalized_mean" are these over their root mean squares, as models of sentence similarity compare
        them.
      pooler: whether there is such a dense layer; without it the default pooling is "cls".

    References:
      Devlin et al. (2019), "BERT"; Rank4Class, appendix B.2.
    """

    FEATURES = ("input_word_ids", "input_mask", "input_type_ids")
    NAME = "bert"
    TOKENIZER = "WordPiece"
    ARCHITECTURE = "BertModel"
    SCOPE = "bert"
    CONFIG_FIELDS: Mapping[str, str] = _CONFIG_FIELDS
    HUGGING_FACE_NAMES = hugging_face_names(GOOGLE_MODULES)
    EPSILON = 1e-12
    FIRST_POSITION = 0
    ATTENTION: Any = staticmethod(_attention)
    POOLINGS: tuple[str, ...] = ("pooler", "cls", "mean", "normalized_cls", "normalized_mean")

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
        self.width = hidden_size
        self.pooling = pooling or poolings[0]
        arguments.check_choice(poolings, pooling=self.pooling)
        arguments.check_choice(_ACTIVATIONS, activation=activation)
        arguments.check_fraction(dropout=dropout, output_dropout=output_dropout)
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
            self.words = table(vocab_size, embedding_size, "word_embeddings")
            self.positions = table(max_positions, embedding_size, "position_embedding")
            self.types = table(num_types, embedding_size, "type_embeddings") if num_types else None
            self.norm = _norm("layer_norm", self.EPSILON)
            self.drop = tf.keras.layers.Dropout(dropout)
            self.projection = self.pooler = None
            if embedding_size != hidden_size:
                self.projection = dense(hidden_size, "embedding_projection")
            self.blocks = [
                Block(self.ATTENTION, self.config, self.EPSILON, name=f"layer_{i}") for i in range(num_layers)
            ]
            if "pooler" in poolings:
                self.pooler = dense(hidden_size, "pooler_transform", "tanh")
                # Without a part in the output, the pooler has no gradient.
                self.pooler.trainable = self.pooling == "pooler"
            self.output_drop = tf.keras.layers.Dropout(output_dropout)

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns the variables that a checkpoint has to provide, by layer and parameter."""
        named = {}
        for variable in self.weights:
            name = compat.variable_path(variable).rpartition(f"{self.name}/")[2]
            if "/" not in name:  # of the layers that Keras 2 builds without their names
                name = f"{'type_embeddings' if name == 'embeddings' else 'pooler_transform'}/{name}"
            named[name] = variable
        return named

    def build(self, shapes: Mapping[str, tf.TensorShape]) -> None:
        if self.types is not None:
            self.types.build(None)  # `states` reads its table, and pools nothing
        if self.pooler is not None:
            self.pooler.build([None, None, self.width])
        # Keras's attention creates its variables in its first call. Without this call, a reloaded SavedModel
        # would replace the restored variables by new ones.
        with precision.scope(self.dtype_policy.name):  # the blocks create layers in their first call
            self.states({name: tf.zeros([1, 2], tf.int32) for name in self.FEATURES})
        super().build(shapes)

    def call(self, features: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        mask = features["input_mask"]
        shape = tf.shape(mask)
        windows = {
            name: tf.reshape(features[name], [-1, mask.shape[-1] or shape[-1]]) for name in self.FEATURES
        }
        pooled = self._pool(self.states(windows, training=training), windows["input_mask"])
        if mask.shape.rank > 2:
            by_text = tf.reshape(pooled, [shape[0], shape[1], self.width])
            pooled = self._scaled(_mean(by_text, tf.reduce_max(mask, axis=2)))
        return self.output_drop(pooled, training=training)

    def states(self, features: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Returns the states of the last layer, float32 `[B, length, hidden_size]`."""
        ids = features["input_word_ids"]
        length = features["input_word_ids"].shape[-1]
        first = self.FIRST_POSITION
        max_length = self.config["max_positions"] - self.FIRST_POSITION
        if length is not None and length > max_length:
            raise ValueError(f"max_length={length}: this encoder has {max_length} positions. Lower it.")
        h = _sum(self.words(ids), self.positions(tf.range(first, first + tf.shape(ids)[-1])))
        if self.types is not None:
            # The gradient of a product is faster than that of a look-up in a table of two rows.
            types = tf.one_hot(features["input_type_ids"], self.config["num_types"])
            h += tf.matmul(types, tf.cast(self.types.embeddings, tf.float32))
        h = self.drop(self.norm(h), training=training)
        if self.projection is not None:
            h = self.projection(h)
        attended = self.attended(features["input_mask"])
        for block in self.blocks:
            h = block(h, attended, training=training)
        return h

    def attended(self, mask: tf.Tensor) -> tf.Tensor:
        """Returns the `attention_mask` of all blocks for the mask of a batch `[B, length]`."""
        return tf.cast(mask, tf.bool)[:, None, :]

    def _pool(self, states: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        if self.pooling == "pooler":
            assert self.pooler is not None
            return self.pooler(states[:, 0, :])
        is_first = self.pooling in ("cls", "normalized_cls")
        return self._scaled(states[:, 0, :] if is_first else _mean(states, mask))

    def _scaled(self, vectors: tf.Tensor) -> tf.Tensor:
        if not self.pooling.startswith("normalized_"):
            return vectors
        return math.sqrt(self.width) * tf.math.l2_normalize(vectors, axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.config, "pooling": self.pooling}

    def published_config(self) -> dict[str, Any]:
        """Returns the content of `config.json` in Hugging Face's layout."""
        return {
            "architectures": [self.ARCHITECTURE],
            "model_type": self.NAME,
            **{field: self.config[ours] for ours, field in self.CONFIG_FIELDS.items()},
            "hidden_dropout_prob": self.config["dropout"],
            "attention_probs_dropout_prob": self.config["dropout"],
            "layer_norm_eps": self.EPSILON,
            "pooling": self.pooling,
        }

    @classmethod
    def settings_of_config(
        cls, path: str, config: Mapping[str, Any], names: Collection[str]
    ) -> dict[str, Any]:
        """Returns the arguments that the config file of a checkpoint, with tensors of some names, states."""
        settings = {ours: config.get(field) for ours, field in cls.CONFIG_FIELDS.items()}
        if (epsilon := config.get("layer_norm_eps", cls.EPSILON)) != cls.EPSILON:
            raise ValueError(
                f"{path}: layer_norm_eps {epsilon} is not {cls.EPSILON}, as in {cls.NAME.upper()}. Choose "
                "another checkpoint."
            )
        # Of our exports, whose field Hugging Face ignores, or of sentence-transformers.
        settings["pooling"] = config.get("pooling", checkpoints.sentence_pooling(os.path.dirname(path)))
        if "pooler" in cls.POOLINGS:  # Transformers' models of masked tokens have no pooler
            settings["pooler"] = any("pooler" in name for name in names)
        return settings


@ENCODERS.register("bert")
def bert(path: str, dropout: float = 0.1, output_dropout: float = 0.0, pooling: str | None = None) -> Bert:
    """Returns the BERT encoder of a checkpoint, with its weights.

    Args:
      path: see `checkpoints.find`.
      dropout, output_dropout: see `Bert`.
      pooling: see `Bert`; None is that of the files of an export or of sentence-transformers, if they state
        one, and otherwise the default.
    """
    return base.load(Bert, path, dropout=dropout, output_dropout=output_dropout, pooling=pooling)


def _gelu_new(x: tf.Tensor) -> tf.Tensor:
    return tf.keras.activations.gelu(x, approximate=True)


_ACTIVATIONS = {"gelu": tf.keras.activations.gelu, "gelu_new": _gelu_new, "relu": tf.keras.activations.relu}


@checkpoints.TENSOR_FORMATS.register("encoder")
def _model_garden(tensors: checkpoints.Tensors) -> checkpoints.Checkpoint:
    layer = r"_transformer_layers/\1"
    name_map = checkpoints.model_garden_names(
        {
            "word_embeddings": "_embedding_layer",
            "position_embedding": "_position_embedding_layer",
            "type_embeddings": "_type_embedding_layer",
            "layer_norm": "_embedding_norm_layer",
            "embedding_projection": "_embedding_projection",
            f"{_LAYER}/self_attention/(query|key|value)": rf"{layer}/_attention_layer/_\2_dense",
            f"{_LAYER}/self_attention/attention_output": f"{layer}/_attention_layer/_output_dense",
            f"{_LAYER}/self_attention_layer_norm": f"{layer}/_attention_layer_norm",
            f"{_LAYER}/(intermediate|output)": rf"{layer}/_\2_dense",
            f"{_LAYER}/output_layer_norm": f"{layer}/_output_layer_norm",
            "pooler_transform": "_pooler_layer",
        },
        "encoder",
    )
    settings = settings_of_shapes(tensors, name_map, activation="gelu_new")  # the default there
    return checkpoints.Checkpoint("Model Garden BERT encoder", Bert, settings, name_map, tensors)


@checkpoints.TENSOR_FORMATS.register("bert")
def _google(tensors: checkpoints.Tensors) -> checkpoints.Checkpoint:
    name_map = google_names("bert", "cls/.*")
    config_path = os.path.join(os.path.dirname(tensors.path), "bert_config.json")
    settings = Bert.settings_of_config(config_path, strict_json.read_object(config_path), tensors.shapes)
    if settings["activation"] == "gelu":
        settings["activation"] = "gelu_new"  # google-research's gelu is the tanh approximation
    return checkpoints.Checkpoint("google-research BERT", Bert, settings, name_map, tensors)


def google_names(scope: str, unused: str) -> checkpoints.NameMap:
    """Returns the names in a checkpoint of google-research, under a scope, with a pattern of unused ones."""
    unused = rf"{unused}|global_step|.*/adam_[mv]"
    return checkpoints.NameMap(GOOGLE_MODULES, unused, parameters={"embeddings": ""}, prefix=f"{scope}/")


def settings_of_shapes(
    tensors: checkpoints.Tensors, name_map: checkpoints.NameMap, activation: str
) -> dict[str, Any]:
    """Returns the arguments of a text encoder: its activation, and those that its tensors' shapes show.

    The Model Garden's tensors show the number of heads; ELECTRA's code has one for every 64 units.
    """

    def shape(name: str) -> tuple[int, ...]:
        return tensors.shapes.get(name_map.source(name), (1, 1))  # the import names what is missing

    vocab_size, embedding_size = shape("word_embeddings/embeddings")
    hidden_size, inner_size = shape("layer_0/intermediate/kernel")
    query = shape("layer_0/self_attention/query/kernel")
    num_layers = 0
    while name_map.source(f"layer_{num_layers}/intermediate/kernel") in tensors.shapes:
        num_layers += 1
    return {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "embedding_size": embedding_size,
        "num_layers": num_layers,
        "num_heads": query[1] if len(query) == 3 else max(1, hidden_size // 64),
        "inner_size": inner_size,
        "max_positions": shape("position_embedding/embeddings")[0],
        "num_types": shape("type_embeddings/embeddings")[0],
        "activation": activation,
    }

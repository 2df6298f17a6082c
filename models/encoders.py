"""Instance encoders: features to one vector an instance, `h` of shape `[B, d]`.

An encoder is a Keras layer that is called on the features of `data/` (a dict of tensors). It names
those it takes in `FEATURES`, and its `d` is the property `width`.
"""

import tensorflow as tf
from official.nlp.modeling import networks

from rank4class.models import checkpoints

_serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


@_serializable
class Identity(tf.keras.layers.Layer):
    """Passes on vectors that are encoded already.

    Features: `embedding` float `[B, d]`.
    """

    FEATURES = ("embedding",)

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width

    def call(self, features):
        return features["embedding"]

    def get_config(self):
        return {**super().get_config(), "width": self.width}


class _ImageEncoder(tf.keras.layers.Layer):
    """Runs the image through `layers`, which a subclass sets, one after the other."""

    FEATURES = ("image",)

    def call(self, features, training=None):
        h = features["image"]
        for layer in self.layers:
            h = layer(h, training=training)
        return h


@_serializable
class Mlp(_ImageEncoder):
    """Dense layers with ReLU over the flattened image.

    Features: `image` float `[B, ...]`.

    Args:
      hidden: widths of the layers; the last is the encoder's width.
      dropout: rate after each layer.

    >>> Mlp(hidden=[16, 8])({"image": tf.zeros([2, 4, 4, 1])}).shape
    TensorShape([2, 8])
    """

    def __init__(self, hidden=(128, 64), dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.hidden, self.dropout = tuple(hidden), dropout
        self.layers = [tf.keras.layers.Flatten()]
        for units in self.hidden:
            self.layers.append(tf.keras.layers.Dense(units, activation="relu"))
            self.layers.append(tf.keras.layers.Dropout(dropout))

    @property
    def width(self):
        return self.hidden[-1]

    def get_config(self):
        return {**super().get_config(), "hidden": self.hidden, "dropout": self.dropout}


@_serializable
class SmallCnn(_ImageEncoder):
    """Two 3 x 3 convolutions, a pooling by two, and one dense layer, for small images.

    Features: `image` float `[B, height, width, channels]`.

    Args:
      filters: channels of the two convolutions.
      units: the encoder's width.
      dropout: rate before and after the dense layer.

    >>> SmallCnn(units=8)({"image": tf.zeros([2, 8, 8, 1])}).shape
    TensorShape([2, 8])
    """

    def __init__(self, filters=(32, 64), units=64, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.filters, self.units, self.dropout = tuple(filters), units, dropout
        self.layers = [
            *(tf.keras.layers.Conv2D(f, 3, padding="same", activation="relu") for f in self.filters),
            tf.keras.layers.MaxPooling2D(2),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dropout(dropout),
            tf.keras.layers.Dense(units, activation="relu"),
            tf.keras.layers.Dropout(dropout),
        ]

    @property
    def width(self):
        return self.units

    def get_config(self):
        return {**super().get_config(), "filters": self.filters, "units": self.units, "dropout": self.dropout}


@_serializable
class Bert(tf.keras.layers.Layer):
    """tf-models-official's BERT encoder, pooled to one vector.

    Features: `input_word_ids`, `input_mask`, `input_type_ids`, int `[B, length]`.

    Args:
      vocab_size, hidden_size, num_layers, num_heads, inner_size, max_positions, num_types: the
        network's size.
      activation: "gelu" (exact), "gelu_new" (the tanh approximation) or "relu".
      dropout: rate on hidden states and attention.
      pooling: "mean" of the tokens that are not padding, "cls" for the first token's state, or
        "pooler" for that state through BERT's own dense tanh layer.

    Raises:
      ValueError: unknown `pooling`, or more tokens than positions.

    References:
      Devlin et al. (2019), "BERT"; Rank4Class, appendix B.2.
    """

    FEATURES = ("input_word_ids", "input_mask", "input_type_ids")
    POOLINGS = ("mean", "cls", "pooler")

    def __init__(
        self,
        vocab_size,
        hidden_size=768,
        num_layers=12,
        num_heads=12,
        inner_size=3072,
        max_positions=512,
        num_types=2,
        activation="gelu",
        dropout=0.1,
        pooling="pooler",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if pooling not in self.POOLINGS:
            raise ValueError(f"pooling {pooling!r} is not one of {', '.join(self.POOLINGS)}")
        self.pooling = pooling
        self.config = {
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "num_layers": num_layers,
            "num_heads": num_heads,
            "inner_size": inner_size,
            "max_positions": max_positions,
            "num_types": num_types,
            "activation": activation,
            "dropout": dropout,
        }
        self.network = networks.BertEncoderV2(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            num_attention_heads=num_heads,
            inner_dim=inner_size,
            max_sequence_length=max_positions,
            type_vocab_size=num_types,
            inner_activation=_ACTIVATIONS[activation],
            output_dropout=dropout,
            attention_dropout=dropout,
            name="bert",
        )
        # Where BERT's own pooler has no part in the output it has no gradient either.
        self.network.pooler_layer.trainable = pooling == "pooler"

    @classmethod
    def from_folder(cls, path, dropout=0.1, pooling="pooler"):
        """Builds the encoder that a Hugging Face folder describes and loads its weights.

        Args:
          path: folder with `config.json`, `vocab.txt` and `model.safetensors`.
          dropout, pooling: see the class.

        Raises:
          FileNotFoundError, ValueError: see `checkpoints`.
        """
        encoder = cls(**checkpoints.read_bert_config(path), dropout=dropout, pooling=pooling)
        encoder({name: tf.zeros([1, 1], tf.int32) for name in cls.FEATURES})
        checkpoints.load_hugging_face_bert(encoder.network, path)
        return encoder

    @property
    def width(self):
        return self.config["hidden_size"]

    def call(self, features, training=None):
        length = features["input_word_ids"].shape[-1]
        if length is not None and length > self.config["max_positions"]:
            raise ValueError(
                f"texts of {length} tokens: this encoder has {self.config['max_positions']} positions"
            )
        outputs = self.network(features, training=training)
        if self.pooling == "pooler":
            return outputs["pooled_output"]
        states = outputs["sequence_output"]
        if self.pooling == "cls":
            return states[:, 0, :]
        mask = tf.cast(features["input_mask"], states.dtype)[..., None]
        return tf.math.divide_no_nan(tf.reduce_sum(states * mask, axis=1), tf.reduce_sum(mask, axis=1))

    def get_config(self):
        return {**super().get_config(), **self.config, "pooling": self.pooling}


def _gelu_new(x):
    return tf.keras.activations.gelu(x, approximate=True)


_ACTIVATIONS = {"gelu": tf.keras.activations.gelu, "gelu_new": _gelu_new, "relu": tf.keras.activations.relu}

"""Instance encoders: features to one vector an instance, `h` of shape `[B, d]`.

An encoder is a Keras layer that is called on the features of `data/` (a dict of tensors). It names
those it takes in `FEATURES`, and its `d` is the property `width`.
"""

from collections.abc import Mapping

import tensorflow as tf
from absl import logging
from official.nlp.modeling import networks

from rank4class.models import checkpoints
from rank4class.models.registry import ENCODERS

_serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


def check_features(encoder, features):
    """Raises ValueError where features lack what an encoder takes.

    Args:
      encoder: a layer; one without `FEATURES` takes anything.
      features: tensors, or their shapes, as a call gets them.

    >>> check_features(Identity(), tf.zeros([2, 4]))
    Traceback (most recent call last):
    ...
    ValueError: features=(2, 4): Identity takes a dict of features. Pass {"embedding": ...}.
    """
    expected = getattr(encoder, "FEATURES", ())
    name = type(encoder).__name__
    if expected and not isinstance(features, Mapping):
        shape = getattr(features, "shape", features)
        wanted = ", ".join(f'"{feature}": ...' for feature in expected)
        raise ValueError(f"features={shape}: {name} takes a dict of features. Pass {{{wanted}}}.")
    for feature in expected:
        if feature not in features:
            raise ValueError(
                f"features={sorted(features)}: {name} needs the feature {feature!r}. Add it to the dict."
            )


@ENCODERS.register("identity")
@_serializable
class Identity(tf.keras.layers.Layer):
    """Passes on vectors that are encoded already.

    Features: `embedding` float `[B, d]`.

    Args:
      width: `d`; None takes what the first call brings.
    """

    FEATURES = ("embedding",)

    def __init__(self, width=None, **kwargs):
        super().__init__(**kwargs)
        self.width = width

    def build(self, shapes):
        self.width = self.width or shapes["embedding"][-1]
        super().build(shapes)

    def call(self, features):
        return features["embedding"]

    def get_config(self):
        return {**super().get_config(), "width": self.width}


@ENCODERS.register("embedding")
@_serializable
class InstanceEmbedding(tf.keras.layers.Layer):
    """A learned vector an instance, for instances that are known by their ids alone, such as users.

    Features: `id` int `[B]`, in `0..num_ids-1`.

    Args:
      num_ids: how many instances there are.
      units: the encoder's width.
      dropout: rate.

    >>> InstanceEmbedding(num_ids=5, units=4)({"id": tf.constant([3, 0])}).shape
    TensorShape([2, 4])

    References:
      Rankmax, section 4: users and the movies that are relevant to them.
    """

    FEATURES = ("id",)

    def __init__(self, num_ids=None, units=64, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.num_ids, self.units, self.dropout = num_ids, units, dropout
        self._drop = tf.keras.layers.Dropout(dropout)

    @property
    def width(self):
        return self.units

    def build(self, shapes):
        self.table = self.add_weight("table", [self.num_ids, self.units], initializer="glorot_uniform")
        super().build(shapes)

    def call(self, features, training=None):
        return self._drop(tf.gather(self.table, features["id"]), training=training)

    def get_config(self):
        own = {"num_ids": self.num_ids, "units": self.units, "dropout": self.dropout}
        return {**super().get_config(), **own}


class _ImageEncoder(tf.keras.layers.Layer):
    """Runs the image through `layers`, which a subclass sets, one after the other."""

    FEATURES = ("image",)

    def call(self, features, training=None):
        h = features["image"]
        for layer in self.layers:
            h = layer(h, training=training)
        return h


class WithWeightDecay(tf.keras.layers.Layer):
    """Adds `weight_decay` times the squares of all kernels to the layer's losses."""

    def __init__(self, weight_decay, **kwargs):
        super().__init__(**kwargs)
        self.weight_decay = weight_decay
        if weight_decay:
            self.add_loss(self._penalty)

    def _penalty(self):
        kernels = [v for v in self.trainable_variables if v.name.endswith("kernel:0")]
        return self.weight_decay * sum(tf.reduce_sum(tf.square(kernel)) for kernel in kernels)

    def get_config(self):
        return {**super().get_config(), "weight_decay": self.weight_decay}


@ENCODERS.register("mlp")
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


@ENCODERS.register("small_cnn")
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
class Vgg16(WithWeightDecay, _ImageEncoder):
    """VGG16 for images of 32 x 32: batch norm after each ReLU, dropout, and one dense layer of 512.

    Features: `image` float `[B, 32, 32, 3]`, RGB in `[0, 1]`; it is normalised by the mean and the
    deviation of CIFAR-10's training pixels.

    Args:
      weight_decay: times the squares of the kernels, added to the loss.

    >>> Vgg16()({"image": tf.zeros([2, 32, 32, 3])}).shape
    TensorShape([2, 512])

    References:
      Simonyan & Zisserman (2014); github.com/geifmany/cifar-vgg, which Rank4Class, appendix B.2, names.
    """

    BLOCKS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
    PIXEL_MEAN, PIXEL_DEVIATION = 120.707 / 255, 64.15 / 255

    def __init__(self, weight_decay=5e-4, **kwargs):
        super().__init__(weight_decay, **kwargs)
        rate = 0.3  # after the first convolution; 0.4 later, 0.5 before and after the dense layer
        self.layers = []
        for block, (filters, convolutions) in enumerate(self.BLOCKS, 1):
            for i in range(1, convolutions + 1):
                self._add(tf.keras.layers.Conv2D(filters, 3, padding="same", name=f"conv_{block}_{i}"))
                if i < convolutions:
                    self._drop(rate)
                    rate = 0.4
            self.layers.append(tf.keras.layers.MaxPooling2D(2))
        self._drop(0.5)
        self.layers.append(tf.keras.layers.Flatten())
        self._add(tf.keras.layers.Dense(self.width, name="dense"))
        self._drop(0.5)

    @classmethod
    def from_checkpoint(cls, path=None, weight_decay=5e-4):
        """Builds the encoder with the weights of a checkpoint, or random ones.

        Args:
          path: see `checkpoints.find`; None draws random weights.
          weight_decay: see the class.
        """
        if path is None:
            return cls(weight_decay=weight_decay)
        empty = {"image": tf.zeros([1, 32, 32, 3])}
        return _loaded(cls, path, "vgg16", {"weight_decay": weight_decay}, empty)

    def _add(self, layer):
        self.layers += [layer, tf.keras.layers.ReLU()]
        norm = tf.keras.layers.BatchNormalization(synchronized=_several_replicas(), name=f"{layer.name}_norm")
        self.layers.append(norm)

    def _drop(self, rate):
        self.layers.append(tf.keras.layers.Dropout(rate))

    @property
    def width(self):
        return 512

    def named_variables(self):
        return _by_layer(self.layers)

    def call(self, features, training=None):
        if features["image"].shape[1:] != [32, 32, 3]:
            raise ValueError(f"VGG16 takes images of 32 x 32 x 3, not {features['image'].shape[1:]}")
        image = (features["image"] - self.PIXEL_MEAN) / self.PIXEL_DEVIATION
        return super().call({"image": image}, training=training)


ENCODERS.register("vgg16")(Vgg16.from_checkpoint)


@_serializable
class ResNet50(WithWeightDecay):
    """ResNet50 up to its last pooling.

    There are two networks of that name, whose weights do not fit one another: the Model Garden's, which
    halves the image in the middle convolution of a block, and that of `keras.applications`, which does
    so in the first.

    Features: `image` float `[B, height, width, 3]`, RGB in `[0, 1]`, 224 x 224 as published; it is
    normalised as the variant's published weights ask for.

    Args:
      variant: "model_garden" or "keras", whose batch norm sees only its own replica's examples.
      weight_decay: times the squares of the kernels, added to the loss.

    Raises:
      ValueError: unknown `variant`.

    References:
      He et al. (2016); Rank4Class, appendix B.2.
    """

    FEATURES = ("image",)
    VARIANTS = ("model_garden", "keras")

    def __init__(self, variant="model_garden", weight_decay=1e-4, **kwargs):
        super().__init__(weight_decay, **kwargs)
        if variant not in self.VARIANTS:
            raise ValueError(f"variant {variant!r} is not one of {', '.join(self.VARIANTS)}")
        self.variant = variant
        if variant == "keras":
            self.network = tf.keras.applications.ResNet50(include_top=False, weights=None, pooling="avg")
        else:
            from official.vision.modeling.backbones import resnet  # slow to import, and not needed for texts

            together = _several_replicas()
            self.network = resnet.ResNet(50, norm_momentum=0.9, norm_epsilon=1e-5, use_sync_bn=together)

    @classmethod
    def from_checkpoint(cls, path=None, weight_decay=1e-4):
        """Builds the variant that a checkpoint holds, with its weights, or one of random weights.

        Args:
          path: see `checkpoints.find`; None draws random weights for the Model Garden's variant.
          weight_decay: see the class.
        """
        if path is None:
            return cls(weight_decay=weight_decay)
        empty = {"image": tf.zeros([1, 32, 32, 3])}
        return _loaded(cls, path, "resnet50", {"weight_decay": weight_decay}, empty)

    @property
    def width(self):
        return 2048

    def named_variables(self):
        """Returns the variables by names that do not hang on what else the program has built."""
        if self.variant == "keras":
            return _by_layer(self.network.layers)
        with_weights = [layer for layer in self.network.layers if layer.weights]
        return {
            f"layer_{i}/{name}": variable
            for i, layer in enumerate(with_weights)
            for name, variable in (_of_block(layer) if hasattr(layer, "_conv1") else _of_layer(layer)).items()
        }

    def call(self, features, training=None):
        image = features["image"]
        if self.variant == "keras":
            pixels = tf.keras.applications.resnet50.preprocess_input(255.0 * image)
            return self.network(pixels, training=training)
        image = (image - tf.constant(_IMAGENET_MEAN, image.dtype)) / tf.constant(
            _IMAGENET_DEVIATION, image.dtype
        )
        return tf.reduce_mean(self.network(image, training=training)["5"], axis=(1, 2))

    def get_config(self):
        return {**super().get_config(), "variant": self.variant}


# Of ImageNet's training pixels, per channel: what the Model Garden normalises by.
_IMAGENET_MEAN, _IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


ENCODERS.register("resnet50")(ResNet50.from_checkpoint)


def _several_replicas():
    """Whether batch norm has replicas to meet, so that the batch it normalises by is the whole one."""
    return tf.distribute.get_strategy().num_replicas_in_sync > 1


def _of_layer(layer):
    return {variable.name.rsplit("/", 1)[-1].removesuffix(":0"): variable for variable in layer.weights}


def _by_layer(layers):
    return {f"{layer.name}/{name}": v for layer in layers for name, v in _of_layer(layer).items()}


def _of_block(block):
    parts = ("shortcut", "norm0", "conv1", "norm1", "conv2", "norm2", "conv3", "norm3")
    present = {part: getattr(block, f"_{part}", None) for part in parts}
    return {
        f"{part}/{name}": variable
        for part, layer in present.items()
        if layer is not None
        for name, variable in _of_layer(layer).items()
    }


@_serializable
class Bert(tf.keras.layers.Layer):
    """tf-models-official's BERT encoder, pooled to one vector.

    Features: `input_word_ids`, `input_mask`, `input_type_ids`, int `[B, length]`.

    Args:
      vocab_size, hidden_size, num_layers, num_heads, inner_size, max_positions, num_types: the
        network's size.
      embedding_size: width of the embeddings where it is not that of the layers.
      activation: "gelu" (exact), "gelu_new" (the tanh approximation) or "relu".
      dropout: rate on hidden states and attention.
      output_dropout: rate on the vector that comes out; the published fine-tuning has 0.1 there.
      pooling: "mean" of the tokens that are not padding, "cls" for the first token's state, or
        "pooler", the default, for that state through BERT's own dense tanh layer.

    Raises:
      ValueError: unknown `pooling`, or more tokens than positions.

    References:
      Devlin et al. (2019), "BERT"; Rank4Class, appendix B.2.
    """

    FEATURES = ("input_word_ids", "input_mask", "input_type_ids")
    NAME = "bert"
    HAS_POOLER = True
    POOLINGS = ("pooler", "cls", "mean")

    def __init__(
        self,
        vocab_size,
        hidden_size=768,
        num_layers=12,
        num_heads=12,
        inner_size=3072,
        max_positions=512,
        num_types=2,
        embedding_size=None,
        activation="gelu",
        dropout=0.1,
        output_dropout=0.0,
        pooling=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        pooling = pooling or self.POOLINGS[0]
        if pooling not in self.POOLINGS:
            raise ValueError(f"pooling {pooling!r} is not one of {', '.join(self.POOLINGS)}")
        if activation not in _ACTIVATIONS:
            raise ValueError(f"activation {activation!r} is not one of {', '.join(_ACTIVATIONS)}")
        self.pooling = pooling
        self.config = {
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
        # Where BERT's own pooler has no part in the output it has no gradient either.
        self.network.pooler_layer.trainable = pooling == "pooler"

    @classmethod
    def from_checkpoint(cls, path, dropout=0.1, output_dropout=0.0, pooling=None):
        """Builds the encoder that a checkpoint describes and loads its weights.

        Args:
          path: see `checkpoints.find`.
          dropout, output_dropout, pooling: see the class.

        Raises:
          FileNotFoundError, ValueError: see `checkpoints`; or it is another encoder's.
        """
        knobs = {"dropout": dropout, "output_dropout": output_dropout, "pooling": pooling}
        empty = {name: tf.zeros([1, 1], tf.int32) for name in cls.FEATURES}
        return _loaded(cls, path, cls.NAME, knobs, empty)

    def named_variables(self):
        """Returns the variables by the network's own names, those that a checkpoint is to fill."""
        scope = self.network.name + "/"
        names = [v.name.rsplit(scope, 1)[-1].removesuffix(":0") for v in self.network.variables]
        named = dict(zip(names, self.network.variables, strict=True))
        return {name: v for name, v in named.items() if self.HAS_POOLER or "pooler" not in name}

    @property
    def width(self):
        return self.config["hidden_size"]

    def call(self, features, training=None):
        length = features["input_word_ids"].shape[-1]
        if length is not None and length > self.config["max_positions"]:
            raise ValueError(
                f"texts of {length} tokens: this encoder has {self.config['max_positions']} positions, lower "
                "max_length"
            )
        return self.drop(self._pool(features, self.network(features, training=training)), training=training)

    def build(self, shapes):
        # Keras's attention makes its variables in its first call. Without this call, a reloaded SavedModel
        # would make new ones in the place of those it has read.
        self.network({name: tf.zeros([1, 1], tf.int32) for name in self.FEATURES})
        super().build(shapes)

    def _pool(self, features, outputs):
        if self.pooling == "pooler":
            return outputs["pooled_output"]
        states = outputs["sequence_output"]
        if self.pooling == "cls":
            return states[:, 0, :]
        mask = tf.cast(features["input_mask"], states.dtype)[..., None]
        return tf.math.divide_no_nan(tf.reduce_sum(states * mask, axis=1), tf.reduce_sum(mask, axis=1))

    def get_config(self):
        return {**super().get_config(), **self.config, "pooling": self.pooling}


ENCODERS.register("bert")(Bert.from_checkpoint)


@_serializable
class Electra(Bert):
    """ELECTRA's discriminator: BERT's network without a pooler, its embeddings maybe narrower.

    Features and arguments are those of `Bert`; `pooling` is "cls", the default, or "mean".

    References:
      Clark et al. (2020), "ELECTRA"; Rank4Class, appendix B.2.
    """

    POOLINGS = ("cls", "mean")
    NAME = "electra"
    HAS_POOLER = False


ENCODERS.register("electra")(Electra.from_checkpoint)


def _loaded(cls, path, name, knobs, empty):
    """Builds the encoder that a checkpoint describes, with its weights.

    Args:
      cls: the encoder's class.
      path: see `checkpoints.find`.
      name: what `checkpoints` calls the encoder.
      knobs: the constructor's arguments that are not the checkpoint's to say.
      empty: features of one instance, on which a call creates the variables.

    Raises:
      ValueError: the checkpoint is another encoder's, or does not describe one.
    """
    source = checkpoints.find(path)
    if source.encoder != name:
        raise ValueError(
            f"{path} is a checkpoint of another encoder ({source.format}): set the encoder's name to "
            f"{source.encoder!r}, not {name!r}"
        )
    logging.info("%s: %s", path, source.format)
    try:
        encoder = cls(**{**source.settings, **knobs})
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{source.path}: what stands beside it does not describe this encoder: {error}"
        ) from error
    encoder(empty)
    source.assign(encoder.named_variables())
    return encoder


def _gelu_new(x):
    return tf.keras.activations.gelu(x, approximate=True)


_ACTIVATIONS = {"gelu": tf.keras.activations.gelu, "gelu_new": _gelu_new, "relu": tf.keras.activations.relu}

"""Encoders of images: a small CNN, VGG16 and ResNet50."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from rank4class import arguments, compat
from rank4class.models import precision
from rank4class.models.encoders import base
from rank4class.models.registry import ENCODERS


@ENCODERS.register("small_cnn")
class SmallCnn(base.ImageEncoder):
    """A CNN for small images: 3 x 3 convolutions, each with batch normalization and pooling, a dense layer.

    Features: `image` float `[B, height, width, channels]`.

    Args:
      filters: channels of the convolutions, one per block.
      units: width of the encoder.
      dropout: dropout rate before and after the dense layer.

    >>> SmallCnn(units=8)({"image": tf.zeros([2, 8, 8, 1])}).shape
    TensorShape([2, 8])
    """

    SAVED = ("filters", "units", "dropout")

    def __init__(
        self, filters: tuple[int, ...] = (32, 64, 128), units: int = 64, dropout: float = 0.0, **kwargs: Any
    ):
        super().__init__(**kwargs)
        arguments.check_widths(filters=filters)
        arguments.check_integer(units=units)
        arguments.check_fraction(dropout=dropout)
        self.filters, self.units, self.dropout, self.width = tuple(filters), units, dropout, units
        with precision.scope(self.dtype_policy.name):
            self.layers = [
                *itertools.chain.from_iterable(map(self._block, self.filters)),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dropout(dropout),
                tf.keras.layers.Dense(units, activation="relu"),
                tf.keras.layers.Dropout(dropout),
            ]

    def _block(self, filters: int) -> list[tf.keras.layers.Layer]:
        return [
            tf.keras.layers.Conv2D(filters, 3, padding="same", use_bias=False),
            # The means of 0.99, Keras's default, would be far from those of a training of 100 steps.
            tf.keras.layers.BatchNormalization(momentum=0.9, synchronized=_several_replicas()),
            tf.keras.layers.ReLU(),
            tf.keras.layers.MaxPooling2D(2, padding="same"),
        ]


@base.serializable
class Vgg16(base.WithWeightDecay, base.ImageEncoder):
    """VGG16 for 32 x 32 images, with batch normalization after each ReLU, dropout, and a dense layer of 512.

    Features: `image` float `[B, 32, 32, 3]`, RGB in `[0, 1]`; normalized by the mean and the
    standard deviation of CIFAR-10's training pixels.

    Args:
      weight_decay: factor of the squared kernels that are added to the loss.

    >>> Vgg16()({"image": tf.zeros([2, 32, 32, 3])}).shape
    TensorShape([2, 512])

    References:
      Simonyan & Zisserman (2014); github.com/geifmany/cifar-vgg, cited by Rank4Class, appendix B.2.
    """

    NAME = "vgg16"
    width = 512
    BLOCKS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
    PIXEL_MEAN, PIXEL_DEVIATION = 120.707 / 255, 64.15 / 255

    def __init__(self, weight_decay: float = 5e-4, **kwargs: Any):
        super().__init__(weight_decay, **kwargs)
        with precision.scope(self.dtype_policy.name):
            self.layers = list(self._make_layers())

    def _make_layers(self) -> Iterator[tf.keras.layers.Layer]:
        layers, rate = tf.keras.layers, 0.3  # after the first convolution; 0.4 after the others
        for block, (filters, convolutions) in enumerate(self.BLOCKS, 1):
            for i in range(1, convolutions + 1):
                yield from _normalized(layers.Conv2D(filters, 3, padding="same", name=f"conv_{block}_{i}"))
                if i < convolutions:
                    yield layers.Dropout(rate)
                    rate = 0.4
            yield layers.MaxPooling2D(2)
        yield layers.Dropout(0.5)
        yield layers.Flatten()
        yield from _normalized(layers.Dense(self.width, name="dense"))
        yield layers.Dropout(0.5)

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns the variables by names that are the same in every program."""
        return _by_layer(self.layers)

    def call(self, features: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        image = (features["image"] - self.PIXEL_MEAN) / self.PIXEL_DEVIATION
        if min(sides := image.shape[1:3]) < 32:
            raise ValueError(
                f"encoder='vgg16': images of {sides[0]} x {sides[1]}, below 32 x 32. Choose another."
            )
        return super().call({"image": image}, training=training)


@ENCODERS.register("vgg16")
def vgg16(path: str | None = None, weight_decay: float = 5e-4) -> Vgg16:
    """Returns the encoder with the weights of a checkpoint, or with random weights.

    Args:
      path: see `checkpoints.find`, such as `cifar10vgg.h5` of github.com/geifmany/cifar-vgg.
      weight_decay: see `Vgg16`.
    """
    return base.load(Vgg16, path, weight_decay=weight_decay)


@base.serializable
class ResNet50(base.WithWeightDecay):
    """ResNet50 up to its last pooling.

    There are two variants, whose weights are not compatible: the Model Garden's has the stride in the middle
    convolution of a block, and that of `keras.applications` in the first.

    Features: `image` float `[B, height, width, 3]`, RGB in `[0, 1]`, 224 x 224 as published,
    normalized as the published weights of the variant require.

    Args:
      variant: "model_garden", or "keras", whose batch normalization is per replica.
      weight_decay: factor of the squared kernels that are added to the loss.

    References:
      He et al. (2016); Rank4Class, appendix B.2.
    """

    NAME = "resnet50"
    width = 2048
    FEATURES = ("image",)
    SAVED = ("variant", "weight_decay")
    VARIANTS = ("model_garden", "keras")
    # Of ImageNet's training pixels, per channel, as in the Model Garden.
    PIXEL_MEANS, PIXEL_DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

    def __init__(self, variant: str = "model_garden", weight_decay: float = 1e-4, **kwargs: Any):
        super().__init__(weight_decay, **kwargs)
        arguments.check_choice(self.VARIANTS, variant=variant)
        self.variant = variant
        with precision.scope(self.dtype_policy.name):
            if variant == "keras":
                self.network = tf.keras.applications.ResNet50(include_top=False, weights=None, pooling="avg")
            else:
                compat.require_keras_2("encoder 'resnet50' of variant 'model_garden'")
                resnet = compat.import_extra("official.vision.modeling.backbones.resnet", "garden")
                self.network = resnet.ResNet(
                    50, norm_momentum=0.9, norm_epsilon=1e-5, use_sync_bn=_several_replicas()
                )

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns the variables by names that are the same in every program."""
        if self.variant == "keras":
            return _by_layer(self.network.layers)
        with_weights = [layer for layer in self.network.layers if layer.weights]
        return {
            f"layer_{i}/{name}": variable
            for i, layer in enumerate(with_weights)
            for name, variable in _of_block(layer).items()
        }

    def call(self, features: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        image = features["image"]
        if self.variant == "keras":
            pixels = tf.keras.applications.resnet50.preprocess_input(255.0 * image)
            return self.network(pixels, training=training)
        mean, deviation = (tf.constant(x, image.dtype) for x in (self.PIXEL_MEANS, self.PIXEL_DEVIATIONS))
        image = (image - mean) / deviation
        return tf.reduce_mean(self.network(image, training=training)["5"], axis=(1, 2))


@ENCODERS.register("resnet50")
def resnet50(path: str | None = None, weight_decay: float = 1e-4) -> ResNet50:
    """Returns the variant of a checkpoint with its weights, or one with random weights.

    Args:
      path: see `checkpoints.find`; None for the Model Garden's variant with random weights.
      weight_decay: see `ResNet50`.
    """
    return base.load(ResNet50, path, weight_decay=weight_decay)


def _normalized(layer: tf.keras.layers.Layer) -> list[tf.keras.layers.Layer]:
    """Returns a layer with ReLU and batch normalization."""
    norm = tf.keras.layers.BatchNormalization(synchronized=_several_replicas(), name=f"{layer.name}_norm")
    return [layer, tf.keras.layers.ReLU(), norm]


def _several_replicas() -> bool:
    """Returns whether batch normalization has to synchronize replicas to use the whole batch."""
    return tf.distribute.get_strategy().num_replicas_in_sync > 1


def _of_layer(layer: tf.keras.layers.Layer) -> dict[str, tf.Variable]:
    return {compat.variable_path(v).rsplit("/", 1)[-1]: v for v in layer.weights}


def _by_layer(layers: Iterable[tf.keras.layers.Layer]) -> dict[str, tf.Variable]:
    return {f"{layer.name}/{name}": v for layer in layers for name, v in _of_layer(layer).items()}


def _of_block(layer: tf.keras.layers.Layer) -> dict[str, tf.Variable]:
    """Returns the variables of a block of convolutions with the names of its layers, or those of a layer."""
    names = ("shortcut", "norm0", "conv1", "norm1", "conv2", "norm2", "conv3", "norm3")
    parts = {name: getattr(layer, f"_{name}") for name in names if hasattr(layer, f"_{name}")}
    if not parts:
        return _of_layer(layer)
    return {f"{part}/{name}": variable for part in parts for name, variable in _of_layer(parts[part]).items()}

"""VGG16, and the weights of github.com/geifmany/cifar-vgg."""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from rank4class.models import checkpoints, precision
from rank4class.models.encoders import base
from rank4class.models.registry import ENCODERS


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
    PIXEL_MEAN = 120.707 / 255
    PIXEL_DEVIATION = 64.15 / 255

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
        return base.by_layer(self.layers)

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


def _normalized(layer: tf.keras.layers.Layer) -> list[tf.keras.layers.Layer]:
    """Returns a layer with ReLU and batch normalization."""
    norm = tf.keras.layers.BatchNormalization(synchronized=base.several_replicas(), name=f"{layer.name}_norm")
    return [layer, tf.keras.layers.ReLU(), norm]


# The layers of github.com/geifmany/cifar-vgg, which Keras numbers in order; `dense_2` is the head.
_CONVOLUTIONS = [f"conv_{block}_{i}" for block, (_, n) in enumerate(Vgg16.BLOCKS, 1) for i in range(1, n + 1)]
_CIFAR_NAMES = checkpoints.NameMap(
    {
        **{name: f"conv2d_{i}" for i, name in enumerate(_CONVOLUTIONS, 1)},
        "dense": "dense_1",
        **{f"{name}_norm": f"batch_normalization_{i}" for i, name in enumerate([*_CONVOLUTIONS, "dense"], 1)},
    },
    unused=r"dense_2/.*",
)


@checkpoints.TENSOR_FORMATS.register("conv2d_1")
def _cifar_vgg(tensors: checkpoints.Tensors) -> checkpoints.Checkpoint:
    return checkpoints.Checkpoint("Keras VGG16 weights for CIFAR", Vgg16, {}, _CIFAR_NAMES, tensors)

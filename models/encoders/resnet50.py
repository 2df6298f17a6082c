"""ResNet50, and the weights of the Model Garden and of `keras.applications`."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from rank4class import arguments, compat
from rank4class.models import checkpoints, precision
from rank4class.models.encoders import base
from rank4class.models.registry import ENCODERS


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
    PIXEL_MEANS = (0.485, 0.456, 0.406)
    PIXEL_DEVIATIONS = (0.229, 0.224, 0.225)

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
                    50, norm_momentum=0.9, norm_epsilon=1e-5, use_sync_bn=base.several_replicas()
                )

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns the variables by names that are the same in every program."""
        if self.variant == "keras":
            return base.by_layer(self.network.layers)
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


def _of_block(layer: tf.keras.layers.Layer) -> dict[str, tf.Variable]:
    """Returns the variables of a block of convolutions with the names of its layers, or those of a layer."""
    names = ("shortcut", "norm0", "conv1", "norm1", "conv2", "norm2", "conv3", "norm3")
    parts = {name: getattr(layer, f"_{name}") for name in names if hasattr(layer, f"_{name}")}
    if not parts:
        return base.of_layer(layer)
    return {
        f"{part}/{name}": variable for part in parts for name, variable in base.of_layer(parts[part]).items()
    }


@checkpoints.TENSOR_FORMATS.register("backbone")
def _model_garden(tensors: checkpoints.Tensors) -> checkpoints.Checkpoint:
    name_map = checkpoints.model_garden_names(
        {r"layer_(\d+)": r"layer_with_weights-\1", r"layer_(\d+)/(\w+)": r"layer_with_weights-\1/_\2"},
        "backbone",
    )
    settings = {"variant": "model_garden"}
    return checkpoints.Checkpoint("Model Garden ResNet50 backbone", ResNet50, settings, name_map, tensors)


@checkpoints.TENSOR_FORMATS.register("conv1_conv")
def _keras(tensors: checkpoints.Tensors) -> checkpoints.Checkpoint:
    name_map = checkpoints.NameMap({r"(.*)": r"\1"}, unused=r"predictions/.*")
    return checkpoints.Checkpoint("Keras ResNet50 weights", ResNet50, {"variant": "keras"}, name_map, tensors)

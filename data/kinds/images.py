"""Arrays of images in memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class.data.kind import KINDS, Arrays, Kind
from rank4class.data.preprocessing import images


@KINDS.register("image")
class Images(Kind):
    """Arrays of pixels: uint8 ones are rescaled to `[0, 1]`."""

    preprocessor: Any = images.Rescale
    has_pixels = True

    def preprocess(self, features: Arrays, image_size: int, tokenizer: Callable) -> Callable | None:
        return images.Rescale() if features["image"].dtype == np.uint8 else None

    def augment(self, name: str, image_size: int, preprocess: Callable | None) -> Callable:
        if name == "random_crop":
            raise ValueError(
                "data.augmentation='random_crop': it needs images that are read from files. Choose "
                "'affine_flip'."
            )
        augment: Callable = images.AUGMENTATIONS[name]
        return augment if preprocess is None else lambda features, seeds: augment(preprocess(features), seeds)

    def _numbers(self, source: str, array: np.ndarray, spec: tf.TensorSpec) -> np.ndarray:
        if spec.dtype.is_floating and array.dtype.kind in "iu":
            raise ValueError(
                f"{source}: {array.dtype}, expected {spec.dtype.name} in the range of the training data. "
                "Scale the array."
            )
        return super()._numbers(source, array, spec)

"""Images: arrays in memory, and files that are read batch by batch; the inputs to predict are their bytes."""

import glob
import itertools
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class.data.kind import KINDS
from rank4class.data.kinds.arrays import Arrays, Kind, Specs, digests
from rank4class.data.preprocessing import images
from rank4class.data.readers import files, tables


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


@KINDS.register("file")
class ImageFiles(Images):
    """Paths of image files, or of TFRecords with the `offset` of an image."""

    preprocessor = images.DecodeAndCrop
    reads_files = True
    has_pixels = False
    usage: Mapping[str, str] = {"image_bytes": '[open("image.jpg", "rb").read()]'}
    duplicates = "Images whose files have the same bytes are duplicates."

    def contents(self, *splits: Arrays) -> np.ndarray:
        paths = np.concatenate([features["file"] for features in splits])
        sizes = [os.path.getsize(path) for path in paths]
        _, of_size, counts = np.unique(sizes, return_inverse=True, return_counts=True)
        is_shared = counts[of_size] > 1  # other files are not read
        return digests(
            (files.sha256(path) if shared else path).encode()
            for path, shared in zip(paths, is_shared, strict=True)
        )

    def preprocess(self, features: Arrays, image_size: int, tokenizer: Callable) -> Callable:
        return images.DecodeAndCrop(image_size)

    def augment(self, name: str, image_size: int, preprocess: Callable | None) -> Callable:
        if name == "random_crop":
            return images.DecodeAndRandomCrop(image_size)
        return super().augment(name, image_size, preprocess)

    def raw_specs(self, specs: Specs) -> dict[str, tf.TensorSpec]:
        return {"image_bytes": specs["file"]}  # an image to predict is a file

    def _read(self, path, specs, bad_rows, columns, ids):
        if columns.image_column is not None and tables.is_table(path):
            for example in tables.Reader(columns.without_labels(), bad_rows).examples(path):
                yield example.where, {"image_bytes": _bytes(example.features["file"])}
            return
        if os.path.isfile(path):
            yield path, {"image_bytes": _bytes(path)}
            return
        count = 0
        paths = sorted(glob.glob(os.path.join(glob.escape(path), "**"), recursive=True))  # no hidden ones
        for image in itertools.filterfalse(os.path.isdir, paths):
            with bad_rows.row():
                files.check_image(image)
                count += 1
                yield image, {"image_bytes": _bytes(image)}
        if not count:
            raise ValueError(f"{path}: no image ({', '.join(files.IMAGE_ENDINGS)}). Add one.")

    def features_of(self, value: Any, specs: Specs, ids: Mapping[str, int], where: str) -> dict[str, Any]:
        if not isinstance(value, str | os.PathLike):
            raise ValueError(f"{where}={value!r}: the model takes paths of images. Give strings.")
        return {"image_bytes": _bytes(value)}


def _bytes(path: str | os.PathLike) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}. Correct or remove it.") from error

"""Caltech 101 silhouettes."""

import os
import zlib
from typing import Any

import numpy as np
import scipy.io

from rank4class.data.dataset import Dataset, Split
from rank4class.data.readers import files
from rank4class.data.registry import DATASETS

FILE = "caltech101_silhouettes_28_split1.mat"
PARTS = {"train": "train", "validation": "val", "test": "test"}


@DATASETS.register("caltech101_silhouettes")
def caltech101_silhouettes(path: str) -> Dataset:
    """Caltech 101 silhouettes, binary outlines of 28 x 28 pixels in 101 classes (n-choose-k, section 5.3).

    The splits are those of the file: 4,100 for training, 2,264 for validation and 2,307 for test.

    Args:
      path: the published `caltech101_silhouettes_28_split1.mat`, or its folder. It holds `train_data`,
        `[N, 784]` of 0 and 1, `train_labels` of `1..n`, those of `val` and `test`, and `classnames`.

    Returns:
      A `Dataset` with the feature `image` uint8 `[N, 28, 28, 1]` of 0 and 255.

    Raises:
      FileNotFoundError: no such file.
      ValueError: the file is broken, or is not a file of splits of 28 x 28 pixels.

    References:
      Marlin, Swersky, Chen, de Freitas (2010), "Inductive principles for restricted Boltzmann machine
      learning".
    """
    file = os.path.join(path, FILE) if os.path.isdir(path) else path
    if not os.path.isfile(file):
        raise FileNotFoundError(f"{file}: no such file. Set data.path to {FILE}, or to its folder.")
    try:
        content = scipy.io.loadmat(file)
    except (OSError, TypeError, ValueError, zlib.error, scipy.io.matlab.MatReadError) as error:
        raise files.damaged(file, f"truncated, or not a file of MATLAB: {error}") from error
    names = [name for part in PARTS.values() for name in (f"{part}_data", f"{part}_labels")]
    if missing := {*names, "classnames"} - set(content):
        raise ValueError(
            f"{file}: no array {min(missing)!r}. Set data.path to a file of splits, such as {FILE}."
        )
    class_names = tuple(str(np.squeeze(name)) for name in np.ravel(content["classnames"]))
    splits = {name: _split(file, content, part, len(class_names)) for name, part in PARTS.items()}
    return Dataset(class_names, splits, files={file: files.sha256(file)})


def _split(path: str, content: dict[str, Any], part: str, num_classes: int) -> Split:
    pixels, labels = content[f"{part}_data"], content[f"{part}_labels"].ravel()
    if pixels.shape != (len(labels), 28 * 28):
        raise files.damaged(path, f"{part}_data has shape {pixels.shape}, expected [{len(labels)}, 784]")
    if not (np.isin(pixels, (0, 1)).all() and np.isin(labels, range(1, num_classes + 1)).all()):
        raise files.damaged(path, f"{part}: a pixel other than 0 and 1, or a label outside 1..{num_classes}")
    images = 255 * pixels.astype(np.uint8).reshape(-1, 28, 28).transpose(0, 2, 1)  # MATLAB stores columns
    origins = np.array([f"{part}_data row {i}" for i in range(1, len(labels) + 1)], object)
    return Split({"image": images[..., None]}, labels.astype(np.int32) - 1, origins)

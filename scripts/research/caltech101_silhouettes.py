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
    content = _load(file)
    names = [name for part in PARTS.values() for name in (f"{part}_data", f"{part}_labels")]
    for name in [*names, "classnames"]:
        if name not in content:
            raise ValueError(f"{file}: no array {name!r}. Set data.path to a file of splits, such as {FILE}.")
    class_names = tuple(str(np.squeeze(name)) for name in np.ravel(content["classnames"]))
    splits = {name: _split(file, content, part, len(class_names)) for name, part in PARTS.items()}
    return Dataset(class_names, splits, files={file: files.sha256(file)})


def _load(path: str) -> dict[str, Any]:
    try:
        return scipy.io.loadmat(path)
    except NotImplementedError as error:
        raise ValueError(f"{path}: a file of MATLAB 7.3 or later. Save it with -v7.") from error
    except (OSError, TypeError, ValueError, zlib.error, scipy.io.matlab.MatReadError) as error:
        raise files.damaged(path, f"truncated, or not a file of MATLAB: {error}") from error


def _split(path: str, content: dict[str, Any], part: str, num_classes: int) -> Split:
    pixels, labels = content[f"{part}_data"], content[f"{part}_labels"].ravel()
    if pixels.ndim != 2 or pixels.shape[1] != 28 * 28:
        raise files.damaged(path, f"{part}_data has shape {pixels.shape}, expected [N, 784]")
    if len(pixels) != len(labels):
        raise files.damaged(path, f"{len(pixels)} rows in {part}_data, but {len(labels)} labels")
    _check(path, f"{part}_data", np.isin(pixels, (0, 1)), "a pixel other than 0 and 1")
    is_class = np.isin(labels, range(1, num_classes + 1))
    _check(path, f"{part}_labels", is_class, f"a label outside 1..{num_classes}")
    images = 255 * pixels.astype(np.uint8).reshape(-1, 28, 28).transpose(0, 2, 1)  # MATLAB stores columns
    origins = np.array([f"{part}_data row {i}" for i in range(1, len(labels) + 1)], object)
    return Split({"image": images[..., None]}, labels.astype(np.int32) - 1, origins)


def _check(path: str, name: str, is_valid: np.ndarray, problem: str) -> None:
    invalid = np.argwhere(~is_valid)
    if len(invalid):
        raise files.damaged(path, f"{name} row {invalid[0, 0] + 1} has {problem}")

"""Datasets of small images, held in memory: scikit-learn's digits and CIFAR-10."""

import os
import pathlib

import numpy as np
import sklearn.datasets
import sklearn.model_selection

from rank4class.data import sources
from rank4class.data.splits import Dataset, Split


def digits():
    """Handwritten digits, 8 x 8 pixels in `[0, 1]`, embedded in scikit-learn.

    The split, 60/20/20 and stratified, is fixed.

    Returns:
      A `Dataset` with the feature `image` float32 `[N, 8, 8, 1]`.

    >>> {name: len(split) for name, split in digits().splits.items()}
    {'train': 1078, 'validation': 359, 'test': 360}
    """
    bunch = sklearn.datasets.load_digits()
    images = (bunch.images / 16.0).astype(np.float32)[..., None]
    labels = bunch.target.astype(np.int32)
    indices = np.arange(len(labels))
    train, rest = sklearn.model_selection.train_test_split(
        indices, test_size=0.4, random_state=0, stratify=labels
    )
    validation, test = sklearn.model_selection.train_test_split(
        rest, test_size=0.5, random_state=0, stratify=labels[rest]
    )
    parts = {"train": train, "validation": validation, "test": test}
    splits = {name: Split({"image": images[part]}, labels[part]) for name, part in parts.items()}
    return Dataset(tuple(str(name) for name in bunch.target_names), splits)


def cifar10(path=None):
    """CIFAR-10, photographs of ten kinds of things, 32 x 32 pixels.

    It has no validation split of its own: a tenth of the training images, fixed and stratified, is
    held out for it. The test split is the published one, on which the paper reports.

    Args:
      path: folder of the published binary files, `data_batch_*.bin` (one to five of them),
        `test_batch.bin` (records of a label byte and 32 x 32 pixels, all red, then all green, then
        all blue) and `batches.meta.txt` (a name a line, in the order of the ids). Without it the
        dataset comes from TensorFlow Datasets, which downloads it once.

    Returns:
      A `Dataset` with the feature `image` uint8 `[N, 32, 32, 3]`, RGB.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: a file is broken, the message names file and record; or a class has too few training
        images to hold a tenth out.
    """
    class_names, (images, labels), test = _cifar10_from_folder(path) if path else _cifar10_from_tfds()
    counts = np.bincount(labels, minlength=len(class_names))
    if counts.min() < 10:
        raise ValueError(
            f"CIFAR-10 has {counts.min()} training images of class {class_names[counts.argmin()]!r}: a "
            "tenth of each class is held out for validation, which takes 10"
        )
    train, validation = sklearn.model_selection.train_test_split(
        np.arange(len(labels)), test_size=0.1, random_state=0, stratify=labels
    )
    parts = {
        "train": (images[train], labels[train]),
        "validation": (images[validation], labels[validation]),
        "test": test,
    }
    return Dataset(class_names, {name: Split({"image": part[0]}, part[1]) for name, part in parts.items()})


def _cifar10_from_folder(folder):
    names_path = os.path.join(folder, "batches.meta.txt")
    class_names = tuple(name.strip() for _, name in sources.lines(names_path) if name.strip())
    if len(set(class_names)) != 10:
        raise ValueError(f"{names_path} has {len(set(class_names))} different class names, not 10")
    train_paths = sorted(pathlib.Path(folder).glob("data_batch_*.bin"))
    if not train_paths:
        raise FileNotFoundError(f"no file {os.path.join(folder, 'data_batch_*.bin')}")
    images, labels = zip(*map(_cifar10_records, train_paths), strict=True)
    test = _cifar10_records(os.path.join(folder, "test_batch.bin"))
    return class_names, (np.concatenate(images), np.concatenate(labels)), test


def _cifar10_records(path):
    """Returns the images uint8 `[N, 32, 32, 3]` and labels int32 `[N]` of a file."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no file {path}")
    content = np.fromfile(path, np.uint8)
    if not content.size:
        raise ValueError(f"{path} is empty")
    count, left_over = divmod(content.size, 1 + 3 * 32 * 32)
    if left_over:
        raise ValueError(
            f"{path} is truncated: {left_over} bytes are left over after {count} records of 3073 bytes"
        )
    records = content.reshape(count, -1)
    labels = records[:, 0].astype(np.int32)
    outside = np.flatnonzero(labels > 9)
    if outside.size:
        raise ValueError(
            f"{path}: record {outside[0] + 1} of {count} has the label {labels[outside[0]]}, outside the "
            "classes 0..9"
        )
    return records[:, 1:].reshape(count, 3, 32, 32).transpose(0, 2, 3, 1), labels


def _cifar10_from_tfds():
    builder = sources.tfds_builder("cifar10", "CIFAR-10")
    parts = []
    for name in ("train", "test"):
        batches = builder.as_dataset(split=name, shuffle_files=False, batch_size=1000)
        images, labels = zip(*((b["image"], b["label"]) for b in batches.as_numpy_iterator()), strict=True)
        parts.append((np.concatenate(images), np.concatenate(labels).astype(np.int32)))
    return (tuple(builder.info.features["label"].names), *parts)

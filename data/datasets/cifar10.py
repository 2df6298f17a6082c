"""CIFAR-10."""

import os
import reprlib

import numpy as np

from rank4class.data.dataset import Dataset, Split
from rank4class.data.readers import array_pickles, files, rows, small_images
from rank4class.data.registry import DATASETS


@DATASETS.register("cifar10")
def cifar10(path: str | None = None, tfds_dir: str | None = None) -> Dataset:
    """CIFAR-10, photographs of 32 x 32 pixels in ten classes.

    A fixed, stratified tenth of the training images is held out for validation: 45,000 images train and
    5,000 select the checkpoint. Rank4Class trains on all 50,000, without validation; no field does so here.
    The test split is the published one, which the paper reports.

    Args:
      path: folder of the published files, or the folder with `cifar-10-batches-bin/` or
        `cifar-10-batches-py/`. Binary: `data_batch_*.bin` (one to five), `test_batch.bin` (records of a
        label byte and 32 x 32 pixels, all red, then all green, then all blue) and `batches.meta.txt` (one
        name per line). Python: the pickles `data_batch_*`, `test_batch` and `batches.meta`, read as
        `array_pickles` does. None takes the dataset from TensorFlow Datasets, which downloads it once.
      tfds_dir: folder of prepared datasets; None is TensorFlow Datasets' default.

    Returns:
      A `Dataset` with the feature `image` uint8 `[N, 32, 32, 3]`, RGB.

    Raises:
      FileNotFoundError: a file is missing.
      OSError: TensorFlow Datasets cannot download the dataset.
      ValueError: a file is broken, or a class has fewer than ten training images.
    """
    if not path:
        return small_images.hold_out_tenth(
            "CIFAR-10", *small_images.from_tfds("cifar10", "CIFAR-10", tfds_dir)
        )
    folder, is_python = _layout(path)
    read, ending = (_read_pickle, "") if is_python else (_read_records, ".bin")
    names_path = os.path.join(folder, "batches.meta" if is_python else "batches.meta.txt")
    class_names = _class_names(names_path, is_python)
    train_paths = [os.path.join(folder, f"data_batch_{i}{ending}") for i in range(1, 6)]
    train_paths = [path for path in train_paths if os.path.isfile(path)]
    if not train_paths:
        raise FileNotFoundError(
            f"{os.path.join(folder, f'data_batch_*{ending}')}: no such file. Check data.path."
        )
    test_path = os.path.join(folder, f"test_batch{ending}")
    train, test = _concatenate([read(path) for path in train_paths]), read(test_path)
    hashes = {path: files.sha256(path) for path in (names_path, *train_paths, test_path)}
    return small_images.hold_out_tenth("CIFAR-10", class_names, train, test, hashes)


def _layout(path):
    """Returns the folder with the published files, and whether they are the Python ones."""
    batches = ("test_batch", *(f"data_batch_{i}" for i in range(1, 6)))
    folders = [os.path.join(path, name) for name in ("", "cifar-10-batches-bin", "cifar-10-batches-py")]
    for folder in folders:
        for ending in (".bin", ""):
            if any(os.path.isfile(os.path.join(folder, name + ending)) for name in batches):
                return folder, not ending
    raise FileNotFoundError(
        f"data.path={path}: neither CIFAR-10's binary files (data_batch_*.bin) nor its Python files "
        "(data_batch_*). Set it to their folder."
    )


def _class_names(path, is_python):
    if is_python:
        names = [
            _class_name(path, i, name)
            for i, name in enumerate(_list(path, array_pickles.read(path), "label_names"), 1)
        ]
    else:
        names = [name.strip() for _, name in rows.lines(path) if name.strip()]
    if len(set(names)) != 10:
        raise files.damaged(path, f"{len(set(names))} different class names, expected 10")
    return tuple(names)


def _class_name(path, number, name):
    encoded = array_pickles.to_bytes(name)
    if encoded is None:
        shown = reprlib.repr(name)  # short, however deep the lists are nested
        raise files.damaged(path, f"class name {number} is {shown}, not a string")
    return encoded.decode(errors="backslashreplace")


def _list(path, content, key):
    values = content.get(key.encode())
    if not isinstance(values, list):
        raise files.damaged(path, f"no list {key!r}")
    return values


def _read_records(path):
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: no such file. Check data.path.")
    content = np.fromfile(path, np.uint8)
    if not content.size:
        raise files.damaged(path, "the file is empty")
    count, left_over = divmod(content.size, 1 + 3 * 32 * 32)
    if left_over:
        raise files.damaged(path, f"truncated, {left_over} bytes after {count} records of 3073 bytes")
    records = content.reshape(count, -1)
    return _split(path, records[:, 1:], records[:, 0])


def _read_pickle(path):
    content = array_pickles.read(path)
    pixels = array_pickles.to_rows(path, content.get(b"data"), 3 * 32 * 32)
    labels = _list(path, content, "labels")
    for number, label in enumerate(labels, 1):
        if type(label) is not int:
            problem = f"record {number} of {len(labels)} has label {reprlib.repr(label)}, not an integer"
            raise files.damaged(path, problem)
    if len(pixels) != len(labels):
        raise files.damaged(path, f"{len(pixels)} images, but {len(labels)} labels")
    return _split(path, pixels, np.array(labels, object))  # integers of any size until they are checked


def _split(path, pixels, labels):
    small_images.check_ids(path, labels)
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return small_images.numbered_split(os.path.basename(path), images, labels)


def _concatenate(splits):
    images = np.concatenate([split.features["image"] for split in splits])
    labels, origins = (np.concatenate([getattr(s, name) for s in splits]) for name in ("labels", "origins"))
    return Split({"image": images}, labels, origins)

"""CIFAR-10."""

import glob
import os

import numpy as np

from rank4class.data.dataset import Dataset, Split
from rank4class.data.readers import files, prepared, rows
from rank4class.data.registry import DATASETS


@DATASETS.register("cifar10")
def cifar10(path: str | None = None, tfds_dir: str | None = None) -> Dataset:
    """CIFAR-10, photographs of 32 x 32 pixels in ten classes.

    A fixed, stratified tenth of the training images is held out for validation. Rank4Class trains on all
    50,000.

    Args:
      path: folder of the published binary files, or the folder with `cifar-10-batches-bin/`:
        `data_batch_*.bin` (one to five), `test_batch.bin` and `batches.meta.txt`. None downloads the dataset
        once with TensorFlow Datasets.
      tfds_dir: folder of prepared datasets; None is TensorFlow Datasets' default.

    Returns:
      A `Dataset` with the feature `image` uint8 `[N, 32, 32, 3]`, RGB.
    """
    if not path:
        return prepared.hold_out_tenth(*prepared.from_tfds("cifar10", "CIFAR-10", tfds_dir))
    inner = os.path.join(path, "cifar-10-batches-bin")
    folder = inner if os.path.isdir(inner) else path
    train_paths = sorted(glob.glob(os.path.join(glob.escape(folder), "data_batch_[1-5].bin")))
    if not train_paths:
        raise FileNotFoundError(
            f"data.path={path}: no binary files of CIFAR-10 (data_batch_*.bin). Set it to the folder of the "
            "binary version."
        )
    names_path, test_path = (os.path.join(folder, name) for name in ("batches.meta.txt", "test_batch.bin"))
    class_names = tuple(name.strip() for _, name in rows.lines(names_path) if name.strip())
    parts = [_read_records(path) for path in train_paths]
    test = _read_records(test_path)
    images = np.concatenate([part.features["image"] for part in parts])
    labels, origins = (np.concatenate([getattr(p, name) for p in parts]) for name in ("labels", "origins"))
    train = Split({"image": images}, labels, origins)
    hashes = {path: files.sha256(path) for path in (names_path, *train_paths, test_path)}
    return prepared.hold_out_tenth(class_names, train, test, hashes)


def _read_records(path):
    content = np.fromfile(path, np.uint8)
    count, left_over = divmod(content.size, 1 + 3 * 32 * 32)
    if left_over or not count:
        raise files.damaged(path, f"truncated, {left_over} bytes after {count} records of 3073 bytes")
    records = content.reshape(count, -1)
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return prepared.numbered_split(os.path.basename(path), images, records[:, 0])

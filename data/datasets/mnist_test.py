"""MNIST: split sizes, positions of pixels, and errors for invalid files."""

import gzip
import struct

import numpy as np
import pytest

from rank4class import data

IMAGES = "t10k-images-idx3-ubyte"
LABELS = "t10k-labels-idx1-ubyte.gz"
TRAIN_LABELS = "train-labels-idx1-ubyte.gz"


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + bytes(array.astype(np.uint8))


@pytest.fixture
def tiny_mnist(tmp_path):
    """Writes a small folder in MNIST's published layout; returns its path.

    In image `i` of a file, the pixel in row `r` and column `c` is `r + 2 * c + i`.
    """
    rows, columns = np.indices([28, 28])
    for name, size in (("train", 100), ("t10k", 20)):
        numbers = np.arange(size)
        images = rows + 2 * columns + numbers[:, None, None]
        (tmp_path / f"{name}-images-idx3-ubyte").write_bytes(idx(images))
        (tmp_path / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(numbers % 10)))
    return tmp_path


def test_images_labels_and_origins(tiny_mnist):
    dataset = data.get("mnist", path=tiny_mnist)
    assert dataset.class_names == tuple("0123456789")
    assert set(dataset.files) == {str(path) for path in tiny_mnist.iterdir()}
    numbers = {}
    for name, split in dataset.splits.items():
        images = split.features["image"]
        assert images.dtype == np.uint8
        assert images.shape == (len(split), 28, 28, 1)
        numbers[name] = images[:, 0, 0, 0].astype(int)
        np.testing.assert_array_equal(images[:, 20, 3, 0], numbers[name] + 26)
        np.testing.assert_array_equal(numbers[name] % 10, split.labels)
        file = "t10k" if name == "test" else "train"
        assert split.origin(1) == f"{file}-images-idx3-ubyte record {numbers[name][1] + 1}"
    assert np.bincount(dataset.splits["validation"].labels).tolist() == [1] * 10
    assert sorted([*numbers["train"], *numbers["validation"]]) == list(range(100))
    assert numbers["test"].tolist() == list(range(20))


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (IMAGES, lambda b: b[:-1], r"PATH: 15695 bytes, but 15696 by its header"),
        (IMAGES, lambda b: b + b"a", r"PATH: 15697 bytes, but 15696 by its header"),
        (IMAGES, lambda b: b[:9], r"PATH: 9 bytes, but 16 by its header"),
        (IMAGES, lambda b: b"", r"PATH: 0 bytes, but 16 by its header"),
        (LABELS, lambda b: b[:-9], r"PATH: truncated, or not gzip"),
        (LABELS, lambda b: b[2:], r"PATH: truncated, or not gzip"),
        (LABELS, lambda b: b[:10] + b"\xff" + b[11:], r"PATH: truncated, or not gzip"),
        (TRAIN_LABELS, lambda b: gzip.compress(idx(np.arange(101) % 10)), r"feature 'image': an array of"),
        (LABELS, lambda b: gzip.compress(idx(np.arange(20))), r"t10k-images-idx3-ubyte record 11: label 10"),
    ],
)
def test_invalid_files(tiny_mnist, file, change, message):
    path = tiny_mnist / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=f"^{message}".replace("PATH", str(path))):
        data.get("mnist", path=tiny_mnist)


def test_missing_file(tiny_mnist):
    (tiny_mnist / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte: no such file, nor .*ubyte\.gz"):
        data.get("mnist", path=tiny_mnist)

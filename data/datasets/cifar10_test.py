"""CIFAR-10: split sizes, positions of pixels, and errors for invalid files."""

import os

import numpy as np
import pytest

from rank4class import data

CIFAR10_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def write_cifar10(folder):
    """Writes a small folder in CIFAR-10's published layout; returns its path.

    In image `i` of a file, the pixel in row `r` and column `c` is `(r, c, i)`.
    """
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10_NAMES) + "\n\n")
    rows, columns = np.indices([32, 32], dtype=np.uint8)
    for name, size in (("data_batch_1", 100), ("data_batch_2", 50), ("test_batch", 20)):
        records = [bytes([i % 10, *rows.ravel(), *columns.ravel(), *[i] * 1024]) for i in range(size)]
        (folder / f"{name}.bin").write_bytes(b"".join(records))
    return folder


@pytest.fixture
def tiny_cifar10(tmp_path):
    return write_cifar10(tmp_path)


def load(path, **options):
    return data.get("cifar10", path=path, **options)


def test_binary_files(tiny_cifar10):
    dataset = load(tiny_cifar10)
    assert dataset.class_names == tuple(CIFAR10_NAMES)
    sizes = {"train": 135, "validation": 15, "test": 20}
    assert {name: len(split) for name, split in dataset.splits.items()} == sizes
    for name, split in dataset.splits.items():
        images = split.features["image"]
        assert images.shape == (sizes[name], 32, 32, 3)
        assert images.dtype == np.uint8
        np.testing.assert_array_equal(images[:, 7, 30, :2], [[7, 30]] * len(split))
        np.testing.assert_array_equal(images[:, 0, 0, 2] % 10, split.labels)
    numbers = {name: split.features["image"][:, 0, 0, 2].tolist() for name, split in dataset.splits.items()}
    assert numbers["test"] == list(range(20))
    assert sorted(numbers["train"] + numbers["validation"]) == sorted([*range(100), *range(50)])
    assert np.bincount(dataset.splits["validation"].labels).min() >= 1
    assert dataset.splits["test"].origin(16) == "test_batch.bin record 17"
    for name, split in dataset.splits.items():
        records = [int(origin.rpartition(" ")[2]) - 1 for origin in split.origins]
        assert records == numbers[name]
    files = {"batches.meta.txt", "data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"}
    assert {os.path.basename(path) for path in dataset.files} == files


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("test_batch.bin", lambda b: b[:-1], r"PATH: truncated, 3072 bytes after 19 records"),
        ("data_batch_1.bin", lambda b: b"", r"PATH: truncated, 0 bytes after 0 records"),
        ("batches.meta.txt", lambda b: b"", r"PATH: the file is empty"),
    ],
)
def test_invalid_binary_files(tiny_cifar10, file, change, message):
    path = tiny_cifar10 / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=f"^{message}".replace("PATH", str(path))):
        load(tiny_cifar10)


@pytest.mark.parametrize("file", ["test_batch.bin", "batches.meta.txt"])
def test_missing_binary_files(tiny_cifar10, file):
    (tiny_cifar10 / file).unlink()
    with pytest.raises(FileNotFoundError, match=f"[Nn]o such file.*{file}|{file}: no such file"):
        load(tiny_cifar10)


def test_folder_of_an_unpacked_archive(tiny_cifar10):
    folder = tiny_cifar10 / "cifar-10-batches-bin"
    folder.mkdir()
    for path in tiny_cifar10.glob("*.*"):
        path.rename(folder / path.name)
    dataset = load(tiny_cifar10)
    assert len(dataset.splits["train"]) == 135
    assert "cifar-10-batches-bin" in next(iter(dataset.files))


def test_folder_without_cifar10(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^data\.path=.*: no binary files of CIFAR-10 .* Set it to"):
        load(tmp_path)

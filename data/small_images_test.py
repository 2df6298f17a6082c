"""Small images: counts, pixels in their places, and one clear line for every broken file."""

import numpy as np
import pytest
import sklearn.datasets
import tensorflow as tf
import tensorflow_datasets as tfds

from rank4class import data

CIFAR10_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def test_digits_are_scikit_learns_each_in_one_split():
    splits = data.get("digits").splits
    images = np.concatenate([split.features["image"] for split in splits.values()])
    labels = np.concatenate([split.labels for split in splits.values()])
    bunch = sklearn.datasets.load_digits()
    assert sorted(zip(images.sum(axis=(1, 2, 3)), labels, strict=True)) == sorted(
        zip((bunch.images / 16).astype(np.float32).sum(axis=(1, 2)), bunch.target, strict=True)
    )
    for split in splits.values():
        shares = np.bincount(split.labels) / len(split)
        np.testing.assert_allclose(shares, np.bincount(bunch.target) / len(bunch.target), atol=0.005)
    assert images.min() == 0.0
    assert images.max() == 1.0


@pytest.fixture
def tiny_cifar10(tmp_path):
    """Writes a small folder in CIFAR-10's published layout; returns its path.

    In image `i` of a file the red of row `r` and column `c` is `r`, the green `c` and the blue `i`.
    """
    (tmp_path / "batches.meta.txt").write_text("\n".join(CIFAR10_NAMES) + "\n\n")
    rows, columns = np.indices([32, 32], dtype=np.uint8)
    for name, size in (("data_batch_1", 100), ("data_batch_2", 50), ("test_batch", 20)):
        records = [
            bytes([i % 10]) + rows.tobytes() + columns.tobytes() + bytes([i]) * 1024 for i in range(size)
        ]
        (tmp_path / f"{name}.bin").write_bytes(b"".join(records))
    return tmp_path


def test_cifar10_by_hand(tiny_cifar10):
    dataset = data.get("cifar10", path=str(tiny_cifar10))
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


def test_cifar10_holds_out_the_same_tenth_of_each_class(tiny_cifar10):
    (tiny_cifar10 / "data_batch_2.bin").unlink()
    first, second = (data.get("cifar10", path=str(tiny_cifar10)).splits for _ in range(2))
    assert np.bincount(first["validation"].labels).tolist() == [1] * 10
    for name in first:
        np.testing.assert_array_equal(first[name].features["image"], second[name].features["image"])


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "test_batch.bin",
            lambda b: b[:-1],
            r"test_batch\.bin is truncated: 3072 bytes are left over after 19 ",
        ),
        (
            "data_batch_2.bin",
            lambda b: b + b"ab",
            r"data_batch_2\.bin is truncated: 2 bytes .* after 50 records",
        ),
        ("data_batch_1.bin", lambda b: b"", r"data_batch_1\.bin is empty"),
        (
            "data_batch_2.bin",
            lambda b: b[: 2 * 3073] + b"\x0a" + b[2 * 3073 + 1 :],
            r"data_batch_2\.bin: record 3 of 50 has the label 10, outside the classes 0\.\.9",
        ),
        (
            "data_batch_1.bin",
            lambda b: b.replace(b"\x03" + bytes(9), b"\x04" + bytes(9)),
            "CIFAR-10 has 5 training images of class 'cat': a tenth .* takes 10",
        ),
        (
            "batches.meta.txt",
            lambda b: b.replace(b"cat", b"dog"),
            r"meta\.txt has 9 different class names, not 10",
        ),
        ("batches.meta.txt", lambda b: b + b"eleventh\n", r"meta\.txt has 11 different class names"),
        ("batches.meta.txt", lambda b: b"", r"meta\.txt is empty"),
    ],
)
def test_a_broken_cifar10_file_is_named(tiny_cifar10, file, change, message):
    path = tiny_cifar10 / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        data.get("cifar10", path=str(tiny_cifar10))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("test_batch.bin", r"no file .*test_batch\.bin"),
        ("data_batch_*.bin", r"no file .*data_batch_\*\.bin"),
        ("batches.meta.txt", r"no file .*batches\.meta\.txt"),
    ],
)
def test_a_missing_cifar10_file_is_named(tiny_cifar10, pattern, message):
    for path in tiny_cifar10.glob(pattern):
        path.unlink()
    with pytest.raises(FileNotFoundError, match=message):
        data.get("cifar10", path=str(tiny_cifar10))


def test_cifar10_from_tfds():
    def as_dataset(self, split, **_):
        numbers = np.arange({"train": 100, "test": 20}[split])
        images = np.tile(numbers.astype(np.uint8)[:, None, None, None], [1, 32, 32, 3])
        return tf.data.Dataset.from_tensor_slices({"image": images, "label": numbers % 10})

    with tfds.testing.mock_data(as_dataset_fn=as_dataset):
        dataset = data.get("cifar10")
    assert len(dataset.class_names) == 10
    assert {name: len(split) for name, split in dataset.splits.items()} == {
        "train": 90,
        "validation": 10,
        "test": 20,
    }
    for split in dataset.splits.values():
        assert split.labels.dtype == np.int32
        np.testing.assert_array_equal(split.features["image"][:, 5, 5, 1] % 10, split.labels)


def test_without_a_network_the_remedy_is_named(monkeypatch):
    def fail(self):
        raise ConnectionError("no route")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    with pytest.raises(OSError, match=r"CIFAR-10 could not be downloaded; set data\.path .* \(no route\)"):
        data.get("cifar10")


def test_real_cifar10_is_balanced(real_data):
    dataset = data.get("cifar10", path=real_data("cifar10"))
    assert dataset.class_names == tuple(CIFAR10_NAMES)
    for name, size in (("train", 900), ("validation", 100), ("test", 200)):
        split = dataset.splits[name]
        assert np.bincount(split.labels).tolist() == [size] * 10
        # A photograph's neighbouring pixels are alike: planes, rows and columns are where they belong.
        pixels = split.features["image"].astype(np.float32)
        assert np.abs(np.diff(pixels, axis=1)).mean() < 20
        assert np.abs(np.diff(pixels, axis=2)).mean() < 20
        assert np.corrcoef(pixels[..., 0].ravel(), pixels[..., 1].ravel())[0, 1] > 0.9

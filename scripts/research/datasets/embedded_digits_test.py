"""Embedded digits: labels, positions, disjoint splits, features, and errors for invalid files."""

import gzip
import os
import re

import numpy as np
import pytest
import sklearn.datasets
import sklearn.neural_network

from rank4class import data
from rank4class.data.datasets.mnist_test import idx
from rank4class.scripts.research.datasets import embedded_digits


def write_part(folder, part, brightness, whole=False):
    """Writes a part in MNIST's published layout; a digit is one lit pixel at (14, 14), or lit as a whole.

    The brightness identifies a digit on the canvas. Modulo 10 it is the label.
    """
    images = np.zeros([len(brightness), 28, 28])
    lit = slice(None) if whole else slice(14, 15)
    images[:, lit, lit] = np.array(brightness)[:, None, None]
    (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
    (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.array(brightness) % 10)))


@pytest.fixture
def tiny_t10k(tmp_path):
    """Writes a folder with only the test files of MNIST, 200 digits; returns its path."""
    write_part(tmp_path, "t10k", range(1, 201))
    return str(tmp_path)


def load(path=None, num_examples=300, **options):
    return data.get("embedded_digits", path=path, num_examples=num_examples, **options)


def records_of(split):
    """Returns the record numbers of the digits of each image."""
    return [[int(number) for number in re.findall(r"(\d+)(?:,|$)", origins)] for origins in split.origins]


def test_labels_are_the_digits_shown(tiny_t10k):
    dataset = load(tiny_t10k)
    assert dataset.class_names == tuple("0123456789")
    assert {os.path.basename(path) for path in dataset.files} == set(os.listdir(tiny_t10k))
    for split in dataset.splits.values():
        images = split.features["image"]
        assert images.shape == (300, 60, 60, 1)
        assert images.dtype == np.uint8
        assert split.labels.shape == (300, 10)
        assert split.labels.dtype == np.float32
        assert split.labels.has_sorted_indices
        for image, labels, records in zip(images, split.labels.toarray(), records_of(split), strict=True):
            assert sorted(image[image > 0]) == sorted(records)
            np.testing.assert_array_equal(np.bincount(np.array(records) % 10, minlength=10), labels)


def test_positions_are_on_a_grid_with_jitter(tiny_t10k):
    images = load(tiny_t10k, num_examples=3000).splits["train"].features["image"][..., 0]
    numbers, *positions = np.nonzero(images)
    corners = np.stack(positions, axis=1) - 10
    assert corners.min() == 0
    assert corners.max() == 40
    grid = np.array([0, 13, 27, 40])
    nearest = np.abs(corners[..., None] - grid).argmin(axis=-1)
    jitter = corners - grid[nearest]
    inner = (nearest == 1) | (nearest == 2)
    np.testing.assert_allclose(np.bincount(jitter[inner] + 1) / inner.sum(), [1 / 3] * 3, atol=0.03)
    outer = np.bincount(jitter[nearest == 0]) / (nearest == 0).sum()
    np.testing.assert_allclose(outer, [2 / 3, 1 / 3], atol=0.03)
    cells = nearest @ [4, 1]
    np.testing.assert_allclose(np.bincount(cells, minlength=16) / len(cells), 1 / 16, atol=0.015)
    cells_by_image = numbers * 16 + cells
    assert len(np.unique(cells_by_image)) == len(cells_by_image)  # one digit per cell


def test_overlapping_digits_show_the_brighter_pixel(tmp_path):
    write_part(tmp_path, "t10k", range(1, 201), whole=True)
    test = load(str(tmp_path)).splits["test"]
    for image, records in zip(test.features["image"], records_of(test), strict=True):
        assert set(image[image > 0]) <= set(records)
        assert np.count_nonzero(image == max(records)) == 20 * 20


def all_records(split):
    return {record for records in records_of(split) for record in records}


def test_splits_have_disjoint_digits(tiny_t10k):
    splits = load(tiny_t10k, num_examples=1000).splits
    shown = {name: all_records(split) for name, split in splits.items()}
    assert {name: len(each) for name, each in shown.items()} == {"train": 120, "validation": 40, "test": 40}
    assert set.union(*shown.values()) == set(range(1, 201))
    for name, records in shown.items():
        assert set(splits[name].features["image"].ravel()) == {0} | records
        assert len(set(np.bincount([record % 10 for record in records]))) == 1  # stratified


def test_test_split_shows_the_test_digits_of_mnist(tmp_path):
    write_part(tmp_path, "t10k", range(151, 251))
    write_part(tmp_path, "train", range(1, 151))
    dataset = load(str(tmp_path), num_examples=1000)
    brightness = {name: set(split.features["image"].ravel()) - {0} for name, split in dataset.splits.items()}
    assert brightness["test"] == set(range(151, 251))
    assert {len(brightness["train"]), len(brightness["validation"])} == {120, 30}
    assert brightness["train"] | brightness["validation"] == set(range(1, 151))
    assert dataset.splits["test"].origin(0).startswith("t10k-images-idx3-ubyte record ")
    assert dataset.splits["validation"].origin(0).startswith("train-images-idx3-ubyte record ")
    assert {os.path.basename(path) for path in dataset.files} == set(os.listdir(tmp_path))


def test_single_label_is_one_of_the_digits_shown():
    multi, single = (load(num_examples=4000, multi_label=multi_label).splits for multi_label in (True, False))
    for name, split in single.items():
        assert split.labels.dtype == np.int32
        np.testing.assert_array_equal(split.features["image"], multi[name].features["image"])
        shown = multi[name].labels.toarray()
        assert shown[np.arange(4000), split.labels].all()
        has_four = shown.sum(axis=1) == 4
        rank = np.cumsum(shown, axis=1)[np.arange(4000), split.labels][has_four].astype(int) - 1
        np.testing.assert_allclose(np.bincount(rank) / has_four.sum(), 0.25, atol=0.06)


def test_rbm_is_fitted_to_the_training_images():
    size = embedded_digits.BATCH + 7  # the last batch is not full
    pixels = load(num_examples=size, features="pixels", split_seed=3).splits
    splits = load(num_examples=size, features="rbm", width=7, split_seed=3).splits
    rbm = sklearn.neural_network.BernoulliRBM(
        7,
        learning_rate=embedded_digits.LEARNING_RATE,
        batch_size=embedded_digits.BATCH,
        n_iter=embedded_digits.PASSES,
        random_state=3,
    )
    rbm.fit(pixels["train"].features["embedding"][: embedded_digits.BATCH])
    for name, split in splits.items():
        h = split.features["embedding"]
        assert (h.shape, h.dtype) == ((size, 7), np.float32)
        assert h.std(axis=0).min() > 0.0
        np.testing.assert_allclose(h, rbm.transform(pixels[name].features["embedding"]), rtol=1e-5)
    other = load(num_examples=size, features="rbm", width=7, split_seed=4).splits  # the machine is cached
    assert not np.allclose(other["train"].features["embedding"], splits["train"].features["embedding"])

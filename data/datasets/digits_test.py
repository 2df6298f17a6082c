"""Digits: the images of scikit-learn, each in one split."""

import numpy as np
import sklearn.datasets

from rank4class import data


def test_every_scikit_learn_digit_is_in_one_split():
    splits = data.get("digits").splits
    images = np.concatenate([split.features["image"] for split in splits.values()])
    labels = np.concatenate([split.labels for split in splits.values()])
    bunch = sklearn.datasets.load_digits()
    assert sorted(zip(images.sum(axis=(1, 2, 3)), labels, strict=True)) == sorted(
        zip((bunch.images / 16).astype(np.float32).sum(axis=(1, 2)), bunch.target, strict=True)
    )
    for split in splits.values():
        fractions = np.bincount(split.labels) / len(split)
        np.testing.assert_allclose(fractions, np.bincount(bunch.target) / len(bunch.target), atol=0.005)
    assert images.min() == 0.0
    assert images.max() == 1.0

"""Synthetic vectors: spread around the centers of their classes, and numbers of examples."""

import numpy as np
import pytest

from rank4class import data
from rank4class.scripts.research.datasets import synthetic  # noqa: F401, registers it


def test_examples_lie_around_the_centres_of_their_classes():
    dataset = data.get("synthetic", num_classes=4, num_examples=4000, width=50, spread=0.1)
    train = dataset.splits["train"]
    test = dataset.splits["test"]
    assert train.features["embedding"].dtype == np.float32
    centers = np.stack([train.features["embedding"][train.labels == i].mean(axis=0) for i in range(4)])
    offsets = test.features["embedding"] - centers[test.labels]
    assert np.square(offsets).sum(axis=1).mean() == pytest.approx(0.1**2, rel=0.05)
    assert np.square(centers).sum(axis=1).mean() == pytest.approx(1.0, rel=0.4)
    distances = np.linalg.norm(test.features["embedding"][:, None] - centers, axis=2)
    np.testing.assert_array_equal(distances.argmin(axis=1), test.labels)


def test_the_seed_and_fewer_examples_than_classes():
    splits = data.get("synthetic", num_classes=1000, num_examples=100).splits
    assert sorted(splits["train"].labels) == list(range(60))
    assert sorted(splits["test"].labels) == list(range(20))
    again, other = (data.get("synthetic", num_classes=1000, num_examples=100, split_seed=i) for i in (0, 1))
    same = splits["train"].features["embedding"]
    np.testing.assert_array_equal(again.splits["train"].features["embedding"], same)
    assert (other.splits["train"].features["embedding"] != same).all()

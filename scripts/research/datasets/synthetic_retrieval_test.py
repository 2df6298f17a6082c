"""Synthetic retrieval: the hidden factors explain the labels, and the counts are as requested."""

import numpy as np
import pytest

from rank4class import data
from rank4class.scripts.research.datasets import synthetic_retrieval


def recall(split, scores, k):
    """Returns the mean recall at `k` of the scores, without the excluded classes."""
    ranked = np.where(split.excluded.toarray(), -np.inf, scores)
    top = np.argsort(-ranked, axis=1, kind="stable")[:, :k]
    labels = split.labels.toarray()
    return np.mean(np.take_along_axis(labels, top, axis=1).sum(axis=1) / labels.sum(axis=1))


@pytest.mark.parametrize("seed", [0, 1])
def test_hidden_factors_explain_the_labels(seed):
    n = 2000
    dataset = data.get("synthetic_retrieval", num_classes=n, num_examples=300, split_seed=seed)
    test = dataset.splits["test"]
    rng = np.random.default_rng([seed, 1])
    instances, classes, popularity = synthetic_retrieval.draw_factors(rng, n, num_examples=300, width=16)
    affinity = instances[test.features["id"]] @ classes.T
    affinity_recall = recall(test, affinity, 20)
    popularity_recall = recall(test, dataset.splits["train"].class_counts(n)[None], 20)
    assert affinity_recall > 2.5 * popularity_recall
    assert popularity_recall > 3 * 20 / n
    assert recall(test, affinity + popularity, 20) > affinity_recall


def test_relevant_classes_are_drawn_in_proportion_to_their_rates():
    zeros = np.zeros([20_000, 1], np.float32)
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    factors = (zeros, zeros[:4], np.log(weights).astype(np.float32))
    counts = np.ones(20_000, int)
    drawn = synthetic_retrieval._draw_classes(np.random.default_rng(0), factors, slice(0, 20_000), counts)
    np.testing.assert_allclose(np.bincount(drawn) / 20_000, weights / weights.sum(), atol=0.01)
    drawn = synthetic_retrieval._draw_classes(np.random.default_rng(0), factors, slice(0, 20_000), 2 * counts)
    p = weights / weights.sum()
    # The probability of a pair in either order.
    expected = [p[i] * p[j] * (1 / (1 - p[i]) + 1 / (1 - p[j])) for i, j in ((0, 1), (2, 3))]
    pairs = drawn.reshape(-1, 2)
    assert (pairs[:, 0] < pairs[:, 1]).all()
    actual = [np.mean((pairs == pair).all(axis=1)) for pair in ((0, 1), (2, 3))]
    np.testing.assert_allclose(actual, expected, atol=0.01)


@pytest.mark.parametrize(("num_classes", "num_relevant"), [(10, 3), (40, 20), (3000, 30)])
def test_counts(num_classes, num_relevant):
    sizes = {"num_classes": num_classes, "num_examples": 200, "num_relevant": num_relevant}
    dataset = data.get("synthetic_retrieval", **sizes)
    assert len(dataset.class_names) == num_classes
    relevant = np.zeros([200, num_classes])
    for split in dataset.splits.values():
        np.add.at(relevant, split.features["id"], split.labels.toarray())
    assert relevant.max() == 1.0  # no pair is in two splits
    counts = relevant.sum(axis=1)
    assert counts.min() >= 3
    assert counts.max() <= num_classes // 2
    if num_classes == 3000:
        assert counts.mean() == pytest.approx(num_relevant, rel=0.1)
        assert len(np.unique(counts)) > 20
    nnz = np.array([split.labels.nnz for split in dataset.splits.values()])
    np.testing.assert_allclose(nnz, np.array([0.8, 0.1, 0.1]) * counts.sum(), atol=2)


def test_labels_depend_on_the_seed_and_not_on_the_chunk_size(monkeypatch):
    def labels(seed=0):
        splits = data.get("synthetic_retrieval", num_classes=100, num_examples=50, split_seed=seed).splits
        return splits["train"].labels.toarray()

    whole = labels()
    assert (labels(1) != whole).any()
    monkeypatch.setattr(synthetic_retrieval, "CHUNK", 700)
    np.testing.assert_array_equal(labels(), whole)


def test_invalid_options():
    for options, message in (
        ({"num_classes": 9}, "data.num_classes=9: too small. Choose at least 10"),
        ({"num_relevant": 2}, "data.num_relevant=2: outside 3..500, half the classes"),
        ({"num_relevant": 501}, "data.num_relevant=501: outside 3..500, half the classes"),
        ({"num_examples": 1, "num_relevant": 3}, "data.validation_fraction=0.1: 0 of 3 pairs; 2 can be"),
    ):
        with pytest.raises(ValueError, match=message):
            data.get("synthetic_retrieval", **options)

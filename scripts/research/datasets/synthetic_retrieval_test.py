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

"""Tasks for losses on ranks: their splits, and what there is to learn in them."""

import numpy as np
import pytest
import scipy.stats
import sklearn.datasets
import sklearn.linear_model
import sklearn.metrics

from rank4class.data.sorting import sorting_tasks

LOADS = [sorting_tasks.diabetes, sorting_tasks.relevant_vectors, sorting_tasks.pairs]


@pytest.mark.parametrize("load", LOADS)
def test_a_seed_draws_the_same_and_another_seed_does_not(load):
    first, again, other = load(seed=3), load(seed=3), load(seed=4)
    assert tuple(first) == sorting_tasks.PARTS
    for part in sorting_tasks.PARTS:
        for mine, same, different in zip(first[part], again[part], other[part], strict=True):
            assert mine.dtype == np.float32
            np.testing.assert_array_equal(mine, same)
            assert (mine != different).any()


@pytest.mark.parametrize("load", LOADS)
def test_no_example_is_in_two_parts(load):
    rows = [row.tobytes() for features, _ in load(seed=0).values() for row in features]
    assert len(set(rows)) == len(rows)


def test_diabetes_is_scikit_learns():
    parts = sorting_tasks.diabetes(seed=1)
    features, targets = sklearn.datasets.load_diabetes(return_X_y=True)
    ours = np.concatenate([t for _, t in parts.values()])
    # But for scale and offset, which are those of the training part.
    assert scipy.stats.pearsonr(np.sort(ours), np.sort(targets)).statistic == pytest.approx(1.0)
    for values in parts["train"]:
        np.testing.assert_allclose(values.mean(axis=0, dtype=np.float64), 0.0, atol=1e-6)
        np.testing.assert_allclose(values.std(axis=0, dtype=np.float64), 1.0, atol=1e-6)
    assert sum(len(t) for _, t in parts.values()) == len(features)


def test_a_share_is_relevant_and_no_line_tells_which():
    parts = sorting_tasks.relevant_vectors(seed=0)
    for vectors, relevant in parts.values():
        assert relevant.mean() == pytest.approx(0.2, abs=1e-3)
        assert set(relevant) == {0.0, 1.0}
        assert vectors.mean() == pytest.approx(0.0, abs=0.02)
    line = sklearn.linear_model.LogisticRegression().fit(*parts["train"])
    precision = sklearn.metrics.average_precision_score(
        parts["test"][1], line.decision_function(parts["test"][0])
    )
    assert 0.3 < precision < 0.7


def test_the_views_of_a_pair_belong_together():
    (first, second), (other_first, other_second) = (sorting_tasks.pairs(seed=0)[p] for p in ("train", "test"))
    # What the first view tells of the second holds for pairs never seen, and not for shuffled ones.
    line = sklearn.linear_model.LinearRegression().fit(first, second)
    assert line.score(other_first, other_second) > 0.3
    assert line.score(other_first, other_second[::-1]) < 0.0

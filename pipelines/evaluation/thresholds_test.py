"""Thresholds against scikit-learn's curves and a search over all thresholds."""

import functools
import math

import numpy as np
import pytest
import sklearn.metrics
from scipy.sparse import csr_array

from rank4class.pipelines.evaluation import thresholds
from rank4class.pipelines.evaluation.thresholds import Thresholds

RATES = {
    "f1": thresholds.f1,
    "precision": functools.partial(thresholds.precision, at_least=0.7),
    "recall": functools.partial(thresholds.recall, at_least=0.6),
}


def best_rating(rule, positive, scores):
    """Returns the best rating over scikit-learn's curve of precision and recall."""
    precision, recall, _ = (curve[:-1] for curve in sklearn.metrics.precision_recall_curve(positive, scores))
    with np.errstate(invalid="ignore"):
        ratings = {
            "f1": np.nan_to_num(2 * precision * recall / (precision + recall)),
            "precision": np.where(precision >= 0.7, recall, 0.0),
            "recall": np.where(recall >= 0.6, precision, 0.0),
        }
    return ratings[rule].max()


def rating(rule, positive, decided):
    hits = np.array([np.sum(positive & decided)])
    decided = np.array([max(1, np.sum(decided))])
    return RATES[rule](hits, decided, positive.sum())[0]


@pytest.mark.parametrize("rule", RATES)
@pytest.mark.parametrize("digits", [1, 6])  # with many equal scores, and with none
def test_thresholds_are_the_best_of_scikit_learns_curve(rule, digits, rng):
    positive = rng.random([300, 4]) < [0.5, 0.2, 0.1, 0.05]
    scores = np.round(rng.normal(size=[300, 4]) + 1.5 * positive, digits).astype(np.float32)
    fitted = thresholds.fit(RATES[rule], scores, csr_array(positive))
    decided = fitted.decide(scores).numpy()
    for j in range(4):
        expected = best_rating(rule, positive[:, j], scores[:, j])
        assert rating(rule, positive[:, j], decided[:, j]) == pytest.approx(expected)
        assert fitted.values[j] not in scores[:, j]


def test_rare_classes_share_a_threshold(rng):
    fit = functools.partial(thresholds.fit, least=4)
    positive = rng.random([100, 5]) < [0.5, 0.3, 0.0, 0.0, 0.0]
    positive[:2, 2:4] = True
    scores = rng.normal(size=[100, 5]) + 2.0 * positive
    values = fit(RATES["f1"], scores, csr_array(positive)).values
    assert len(set(values)) == 4 - 1
    rare = fit(RATES["f1"], scores[:, 2:].reshape(-1, 1), csr_array(positive[:, 2:].reshape(-1, 1)))
    assert values[2:] == rare.values * 3
    few = fit(RATES["f1"], scores[:, [0, 4]], csr_array(positive[:, [0, 4]])).values
    both = fit(RATES["f1"], scores[:, [0, 4]].reshape(-1, 1), csr_array(positive[:, [0, 4]].reshape(-1, 1)))
    assert few[1] == both.values[0]


def test_certain_precision_on_new_examples(rng):
    """Above a threshold of t, the precision of these examples is (1 + t) / 2."""
    certain = functools.partial(thresholds.precision, at_least=0.8, confidence=0.9)
    missed = {certain: 0, RATES["precision"]: 0}
    for _ in range(200):
        scores = rng.random([1000, 1])
        positive = csr_array(rng.random([1000, 1]) < scores)
        for rate in missed:
            (value,) = thresholds.fit(rate, scores, positive, least=0).values
            missed[rate] += (1 + value) / 2 < (0.8 if rate is certain else 0.7)
    assert missed[certain] <= 20 < 60 < missed[RATES["precision"]]
    assert thresholds.fit(certain, scores[:13], positive[:13], least=0).values == (math.inf,)


def test_certain_precision_rejects_a_lower_one_by_a_binomial_test():
    # Of 44 examples, one sequence begins at 22, the fewest with 0.9**k < 0.1, another at 44: both at 0.1 / 2.
    hits = np.arange(1.0, 45.0)
    decided = np.arange(1.0, 45.0)
    ratings = thresholds.precision(hits, decided, 44, at_least=0.9, confidence=0.9)
    assert 0.9**22 > 0.05 > 0.9**44
    assert np.flatnonzero(ratings).tolist() == [43]  # the first sequence has failed at 22
    hits[35:] -= 1
    assert 0.9**44 + 44 * 0.1 * 0.9**43 > 0.05
    assert not thresholds.precision(hits, decided, 43, at_least=0.9, confidence=0.9).any()


def test_classes_and_scores_without_an_answer(rng):
    positive = rng.random([50, 2]) < 0.4
    scores = np.stack([-1.0 * positive[:, 0], rng.normal(size=50)], axis=1)  # the first is ranked backwards
    values = thresholds.fit(RATES["precision"], scores, csr_array(positive)).values
    assert values[0] == math.inf
    assert Thresholds.from_json(Thresholds(values).to_json()) == Thresholds(values)
    nothing = thresholds.fit(RATES["f1"], scores, csr_array(np.zeros([50, 2])))
    assert nothing.values == (math.inf, math.inf)
    assert not nothing.decide([[1e30, np.nan]]).numpy().any()
    assert not Thresholds((0.0,)).decide([[1.0, np.nan]], [[False, True]]).numpy().any()
    broken = np.append(scores, [[np.nan, 9.0]], axis=0)
    labels = csr_array(np.append(positive, [[False, False]], axis=0))
    whole = thresholds.fit(RATES["f1"], scores, csr_array(positive))
    assert thresholds.fit(RATES["f1"], broken, labels) == whole


def test_excluded_classes_are_left_out(rng, monkeypatch):
    monkeypatch.setattr(thresholds, "LEAST", 1)
    positive, where = rng.random([2, 80, 2]) < 0.5
    scores = rng.normal(size=[80, 2]) + positive
    fitted = thresholds.fit(RATES["f1"], scores, csr_array(positive), where)
    for j, rows in enumerate(where.T):
        alone = thresholds.fit(RATES["f1"], scores[rows][:, [j]], csr_array(positive[rows][:, [j]]))
        assert fitted.values[j] == alone.values[0]


def test_no_threshold_is_between_the_scores_of_an_input_in_two_batches(rng):
    """Scores of two inputs, with rounding errors by which positive examples of the lower one look better."""
    positive = np.arange(40) % 4 < np.repeat([1, 3], 20)
    rounding = np.where(positive, 1e-7, -1e-7).astype(np.float32)
    scores = (np.repeat([np.float32(0.1), np.float32(0.3)], 20) + rounding)[:, None]
    (value,) = thresholds.fit(RATES["f1"], scores, csr_array(positive[:, None])).values
    assert value == pytest.approx(0.2, abs=1e-6)
    apart = scores + np.float32([[0.0], [0.01]] * 20)
    assert 0.1 < thresholds.fit(RATES["f1"], apart, csr_array(positive[:, None])).values[0] < 0.3


def test_many_scores_have_as_good_a_threshold(rng):
    positive = rng.random([100_000, 1]) < 0.3
    scores = (rng.normal(size=positive.shape) + positive).astype(np.float32)
    decided = thresholds.fit(RATES["f1"], scores, csr_array(positive)).decide(scores).numpy()
    best = best_rating("f1", positive[:, 0], scores[:, 0])
    assert rating("f1", positive[:, 0], decided[:, 0]) == pytest.approx(best, abs=5e-5)

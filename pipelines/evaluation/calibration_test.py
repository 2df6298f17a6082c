"""Calibrations against arithmetic, scikit-learn and brute force; NumPy and TensorFlow agree."""

import numpy as np
import pytest
import scipy.sparse
import scipy.special
import sklearn.linear_model
import tensorflow as tf

from rank4class.pipelines.evaluation import calibration
from rank4class.pipelines.evaluation.calibration import Platt, Temperature

PLATT = Platt((1.0, 3.0, -0.2), (0.0, -2.0, 1.0))
CALIBRATIONS = [Temperature(0.7), PLATT, Platt((0.5,), (-1.0,))]
EACH = pytest.mark.parametrize("fitted", CALIBRATIONS, ids=lambda one: f"{one.method}-{len(one.to_json())}")


def draw_classes(rng, scores):
    """Returns classes that are drawn from the softmax of scores."""
    ends = scipy.special.softmax(scores, axis=1).cumsum(axis=1)
    return (ends > rng.random([len(scores), 1])).argmax(axis=1)


def draw_sets(rng, probabilities):
    return scipy.sparse.csr_array((rng.random(probabilities.shape) < probabilities).astype(np.float32))


@EACH
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_tensorflow_agrees_with_numpy_and_excluded_classes_have_probability_0(rng, fitted, scale):
    scores = (scale * rng.normal(size=[50, 3])).astype(np.float32)
    where = rng.random(scores.shape) < 0.7
    where[:, 0] = True
    for mask in (None, where):
        probabilities = fitted.probabilities(scores, mask)
        applied = tf.function(fitted.apply)(scores, mask)
        assert applied.dtype == tf.float32
        np.testing.assert_allclose(applied, probabilities, atol=1e-6)
    assert (probabilities[~where] == 0.0).all()
    assert (applied.numpy()[~where] == 0.0).all()
    if fitted.method == "temperature":
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)


FLAT = Platt((0.0, 1.0, 0.0), (0.5, 0.5, 1.5))


@pytest.mark.parametrize("fitted", [*CALIBRATIONS, FLAT, Platt((-0.5,), (1.0,)), Platt((0.0,), (1.0,))])
def test_ranking_is_by_probability_and_then_by_score(rng, fitted):
    scores = rng.integers(-3, 3, size=[50, 3]).astype(np.float32)  # with ties
    scores[0] = 2.0
    pairs = [
        sorted(set(zip(*row, strict=True))) for row in zip(fitted.probabilities(scores), scores, strict=True)
    ]
    ranking = tf.function(fitted.ranking)(scores).numpy()
    for row, p, s, distinct in zip(ranking, fitted.probabilities(scores), scores, pairs, strict=True):
        places = [distinct.index(pair) for pair in zip(p, s, strict=True)]
        np.testing.assert_array_equal(np.unique(row, return_inverse=True)[1], places)
    if fitted.keeps_order:
        np.testing.assert_array_equal(ranking, scores)
    else:
        scores[1, 2] = np.nan
        np.testing.assert_array_equal(np.isnan(fitted.ranking(scores)).all(axis=1), np.arange(50) == 1)


def test_ranking_of_probabilities_that_are_rounded_to_1():
    assert Platt((1.0, 2.0), (0.0, 0.0)).ranking(np.float32([[60.0, 40.0]])).numpy().tolist() == [[-1.0, 0.0]]


@EACH
def test_json(fitted):
    assert calibration.from_json(fitted.to_json()) == fitted


def test_a_list_whose_classes_are_all_excluded_has_no_probability():
    probabilities = Temperature(1.0).probabilities(np.array([[1.0, 2.0]]), np.array([[False, False]]))
    assert probabilities.tolist() == [[0.0, 0.0]]


def test_likelihoods_by_hand():
    scores = np.array([[np.log(3.0), 0.0, 5.0]])
    where = np.array([[True, True, False]])
    labels = np.array([[True, False, False]])
    tempered = Temperature(0.5).negative_log_likelihood(scores, np.array([1]), where)  # odds of 3^2
    assert tempered == pytest.approx(np.log(10))
    # -log(3/4) - log(1/2)
    platt = Platt((1.0,), (0.0,)).negative_log_likelihood(scores, labels, where)
    assert platt == pytest.approx(np.log(4 / 3) + np.log(2))


@pytest.mark.parametrize("n", [2, 7])
def test_temperature_minimizes_the_likelihood(rng, n):
    scores = rng.normal(size=[300, n])
    labels = np.where(rng.random(300) < 0.5, scores.argmax(axis=1), rng.integers(n, size=300))
    fitted = calibration.fit(scores, labels).temperature
    grid = fitted * np.exp(np.linspace(-1.0, 1.0, 2001))
    log_p = [scipy.special.log_softmax(scores / temperature, axis=1) for temperature in grid]
    assert np.argmin([-each[np.arange(300), labels].mean() for each in log_p]) == 1000
    for factor in (1e-4, 3.0, 1e6):
        assert calibration.fit(factor * scores, labels).temperature == pytest.approx(
            factor * fitted, rel=1e-9
        )


def test_excluded_classes_do_not_change_the_temperature(rng):
    scores = rng.normal(size=[200, 4])
    labels = draw_classes(rng, scores)
    wider = np.concatenate([scores, np.full([200, 1], 9.0)], axis=1)
    where = np.full(wider.shape, True)
    where[:, 4] = False
    expected = calibration.fit(scores, labels)
    assert calibration.fit(wider, labels, where).temperature == pytest.approx(expected.temperature, rel=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_scores_that_are_always_right_claim_the_error_of_laplace(ties):
    scores = np.tile([[2.0, 0.0, -1.0]], [8, 1])
    if ties:
        scores[0, 1] = 2.0
    fitted = calibration.fit(scores, np.zeros(8, int))
    outside = fitted.probabilities(scores)[scores < 2.0]
    assert outside.sum() / 8 == pytest.approx(1 / (8 + 2))


def test_temperatures_of_scores_without_information(rng):
    labels = rng.integers(3, size=20)
    assert calibration.fit(np.full([20, 3], 5.0), labels).temperature == 1.0
    wrong = np.eye(3)[(labels + 1) % 3]  # always the highest score for a wrong class
    uniform = calibration.fit(wrong, labels).probabilities(wrong)
    np.testing.assert_allclose(uniform, 1 / 3, atol=1e-4)


def test_a_fit_of_many_scores_takes_a_part_of_the_examples(rng, monkeypatch):
    scores = rng.normal(size=[4000, 5])
    labels = draw_classes(rng, scores)
    monkeypatch.setattr(calibration, "MAX_FITTED", 5000)
    part = np.sort(np.random.default_rng(0).choice(4000, 1000, replace=False))
    expected = calibration.fit(scores[part], labels[part])
    assert calibration.fit(scores, labels) == expected


def test_platt_equals_logistic_regression_on_the_targets_of_platt(rng):
    scores = rng.normal(3.0, 5.0, size=[200, 2])
    labels = draw_sets(rng, scipy.special.expit(0.5 * scores - 1.0))
    fitted = calibration.fit(scores, labels)
    for j in range(2):
        positive = labels.toarray()[:, j] > 0
        ones = positive.sum()
        targets = np.where(positive, (ones + 1) / (ones + 2), 1 / (200 - ones + 2))
        regression = sklearn.linear_model.LogisticRegression(C=1e12, tol=1e-10, max_iter=1000)
        regression.fit(
            np.tile(scores[:, [j]], [2, 1]), np.repeat([1, 0], 200), np.concatenate([targets, 1 - targets])
        )
        assert fitted.slopes[j] == pytest.approx(regression.coef_[0, 0], rel=1e-4)
        assert fitted.intercepts[j] == pytest.approx(regression.intercept_[0], rel=1e-4)


def test_platt_of_separable_and_of_constant_scores():
    positive = np.arange(20) < 10
    labels = scipy.sparse.csr_array(positive[:, None])
    fitted = calibration.fit(np.where(positive, 1.0, -1.0)[:, None], labels)
    # The targets 11 / 12 and 1 / 12.
    np.testing.assert_allclose(fitted.probabilities(np.array([[1.0], [-1.0]])), [[11 / 12], [1 / 12]])
    constant = calibration.fit(np.full([20, 1], 1e6), labels)
    assert constant.slopes == (0.0,)
    assert constant.probabilities(np.array([[1e6]])) == pytest.approx(0.5)


def test_classes_with_few_examples_of_either_kind_have_the_pooled_fit(rng, monkeypatch):
    scores = rng.normal(size=[40, 4])
    labels = scores > 0.0
    labels[:, 1], labels[:, 2] = np.arange(40) < 9, True
    labels[:, 3] = np.arange(40) < 10
    labels = scipy.sparse.csr_array(labels)
    fitted = calibration.fit(scores, labels).to_json()
    monkeypatch.setattr(calibration, "MAX_PER_CLASS", 3)
    pooled = calibration.fit(scores, labels).to_json()
    for name in fitted.keys() - {"method"}:
        each, [one] = fitted[name], pooled[name]
        assert [value == one for value in each] == [False, True, True, False]


def test_many_classes_share_one_fit_of_their_ranked_pairs(rng):
    scores = rng.normal(size=[30, calibration.MAX_PER_CLASS + 1])
    labels = draw_sets(rng, scipy.special.expit(scores))
    where = rng.random(scores.shape) < 0.5
    column = scores[where][:, None], scipy.sparse.csr_array(labels.toarray()[where][:, None])
    assert calibration.fit(scores, labels, where) == calibration.fit(*column)


def test_a_shared_fit_keeps_the_order_of_the_scores(rng):
    scores = rng.normal(size=[30, calibration.MAX_PER_CLASS + 1])
    fitted = calibration.fit(scores, draw_sets(rng, scipy.special.expit(-scores)))  # worse than chance
    assert fitted.slopes == (0.0,)
    assert fitted.keeps_order


def test_no_class_has_a_fit_that_turns_its_scores(rng):
    scores = rng.normal(scale=3.0, size=[200, 3])
    labels = draw_sets(rng, scipy.special.expit(scores * [1.0, -1.0, 1.0]))
    fitted = calibration.fit(scores, labels)
    assert fitted.slopes[1] == 0.0 < min(fitted.slopes[0], fitted.slopes[2])
    share = (labels.toarray()[:, 1].sum() + 1) / 202  # of Platt's targets
    assert fitted.probabilities(scores)[:, 1] == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize("several", [False, True])
def test_added_scores_have_the_weight_of_the_model_that_drew_the_labels(rng, several):
    scores, added = rng.normal(scale=2.0, size=[2, 4000, 5])
    for weight in (0.0, 0.5, 2.0):
        drawn = scores + weight * added
        labels = draw_sets(rng, scipy.special.expit(drawn)) if several else draw_classes(rng, drawn)
        assert calibration.weigh(0.1 * scores, 0.1 * added, labels) == weight
    where = rng.random(scores.shape) < 0.7
    where[:, 0] = True
    labels = np.where(where, drawn, -np.inf).argmax(axis=1)
    assert calibration.weigh(np.where(where, scores, np.nan_to_num(np.inf)), added, labels, where) == weight

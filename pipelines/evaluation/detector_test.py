"""Detection of unknown inputs: arithmetic, the law of its false alarms, and inputs far away."""

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import tensorflow as tf

from rank4class.pipelines.evaluation import detector
from rank4class.pipelines.evaluation.detector import Detector, Outputs


def calibrated(scores, rate=0.05):
    """Returns a detector whose scores are given as logits: it has no training vectors."""
    empty = {name: np.zeros([0, 0], np.float32) for name in ("directions", "means", "neighbours")}
    empty |= {name: np.zeros(0, np.float32) for name in ("references", "sums", "center", "contrast")}
    unfitted = Detector(1.0, **empty)
    return unfitted.calibrated(np.float32(scores), rate)


def outputs(vectors, scores):
    return Outputs(np.float32(vectors), detector.logits_of(tf.constant(scores, tf.float32)).numpy())


def auroc(known, unknown):
    marks = np.repeat([1, 0], [len(known), len(unknown)])
    return sklearn.metrics.roc_auc_score(marks, np.concatenate([known, unknown]))


def test_p_values_by_ranks(rng):
    scores = rng.normal(size=[30, 2]).round(1)  # with ties
    inputs = rng.normal(size=[50, 2]).round(1)
    sums = [sum(np.log(np.sum(scores[:, k] <= row[k]) / 31) for k in range(2)) for row in scores]
    expected = []
    for row in inputs:
        own = sum(np.log((1 + np.sum(scores[:, k] <= row[k])) / 31) for k in range(2))
        expected.append((1 + sum(each <= own + 1e-6 for each in sums)) / 31)
    p_values = calibrated(scores).p_values_of(Outputs(np.zeros([50, 1], np.float32), np.float32(inputs)))
    np.testing.assert_allclose(p_values, expected, rtol=1e-5)
    not_finite = Outputs(np.zeros([2, 1]), np.float32([[np.nan, 9.0], [9.0, np.inf]]))
    expected = 1 / 31  # less than all examples
    np.testing.assert_allclose(calibrated(scores).p_values_of(not_finite), expected, rtol=1e-5)


def test_limits_are_the_same_in_a_graph(rng):
    """Where a limit is a p-value: a division by a constant may become another product."""
    fitted = calibrated(rng.normal(size=[59, 2]))
    inputs = np.float32(rng.normal(size=[400, 2]))
    p_values = tf.function(fitted.p_values, autograph=False)(np.zeros([400, 1], np.float32), inputs).numpy()
    eager = fitted.p_values_of(Outputs(np.zeros([400, 1], np.float32), inputs))
    np.testing.assert_array_equal(p_values <= 0.05, eager <= 0.05)
    exact = np.round(60 * eager).astype(int)
    np.testing.assert_array_equal(p_values.astype(float) <= 0.05, exact <= 3)
    assert (exact == 3).any()


@pytest.mark.parametrize("draws", [100, pytest.param(1_000, marks=pytest.mark.nightly)])
def test_false_alarms_follow_their_law(rng, draws):
    """Over draws of the calibration examples, of dependent scores."""
    rate, size = 0.1, 99
    shares = []
    for _ in range(draws):
        common = rng.normal(size=[size + 400, 1])
        scores = np.float32(common + 0.7 * rng.normal(size=[size + 400, 2]))
        p_values = calibrated(scores[:size], rate).p_values_of(Outputs(np.zeros([400, 1]), scores[size:]))
        shares.append(np.mean(p_values <= rate))
    law = scipy.stats.beta(10, 90)  # of the share that the 10 lowest of 99 examples bound
    error = np.std(shares) / np.sqrt(draws)
    assert rate - 0.012 < np.mean(shares) < rate + 3 * error
    assert np.mean(np.array(shares) > law.ppf(0.95) + 1.64 * np.sqrt(rate / 400)) < 0.05


def test_scores_by_arithmetic(rng):
    centers = 4 * rng.normal(size=[3, 5])
    labels = np.arange(240) % 3
    vectors = centers[labels] + rng.normal(size=[240, 5])
    fitted = detector.fit(np.float32(vectors), labels)
    inputs = rng.normal(size=[8, 5]) * 3
    logits, nearest, distances = np.split(fitted.scores_of(outputs(inputs, np.eye(8))), [2, 3], axis=1)
    np.testing.assert_allclose(logits[:, 1], np.log(np.exp(1) + 7), rtol=1e-5)
    cosines = sklearn.metrics.pairwise.cosine_similarity(inputs, vectors)
    np.testing.assert_allclose(nearest[:, 0], np.sort(cosines, axis=1)[:, -5:].mean(axis=1), rtol=1e-4)
    means = np.stack([vectors[labels == j].mean(axis=0) for j in range(3)])
    residuals = vectors - means[labels]
    within = sklearn.covariance.ledoit_wolf(residuals, assume_centered=True)[0]
    spread = means - means.mean(axis=0)
    ratios, axes = scipy.linalg.eigh(spread.T @ spread / 3, within)  # axes' within axes = I
    weights = np.maximum(ratios, 0) / (1 + np.maximum(ratios, 0))
    z, m = (inputs - means.mean(axis=0)) @ axes, spread @ axes
    expected = np.min([np.sum(weights * np.square(z - row), axis=1) for row in m], axis=0)
    np.testing.assert_allclose(-distances[:, 0], expected, rtol=1e-3)


def test_inputs_far_away_are_found_in_a_narrow_domain(rng):
    """Where the distance of the class means, less that of all examples, ranks them as known."""
    basis = rng.normal(size=[4, 40])
    labels = np.arange(400) % 4
    vectors = 3 * np.eye(4)[labels] @ basis + rng.normal(size=[400, 40])
    far = 8 * rng.normal(size=[200, 40])
    near = 3 * (np.eye(4)[labels[:200]] + np.eye(4)[labels[1:201]]) / 2 @ basis + rng.normal(size=[200, 40])
    heads = basis.T
    fitted = detector.fit(np.float32(vectors[:200]), labels[:200])
    fitted = fitted.calibrated(fitted.scores_of(outputs(vectors[200:300], vectors[200:300] @ heads)), 0.05)
    known, *unknown = (fitted.p_values_of(outputs(x, x @ heads)) for x in (vectors[300:], far, near))
    assert np.mean(known <= 0.05) < 0.15
    assert min(auroc(known, each) for each in unknown) > 0.97
    distance = fitted.scores_of(outputs(far, far @ heads))[:, 3]
    assert auroc(fitted.scores_of(outputs(vectors[300:], vectors[300:] @ heads))[:, 3], distance) > 0.95


def test_folds_calibrate_by_detectors_without_them(rng):
    labels = np.arange(300) % 3
    vectors = 4 * np.eye(3)[labels] + rng.normal(size=[300, 3])
    train = outputs(vectors, vectors)
    folds = np.append(rng.integers(0, 5, 290), np.full(10, -1))
    fitted = detector.fit_out_of_folds(train, labels, folds, 0.05)
    assert fitted.sums.shape == (290,)
    new = 4 * np.eye(3)[labels] + rng.normal(size=[300, 3])
    assert 0.01 < np.mean(fitted.p_values_of(outputs(new, new)) <= 0.05) < 0.1
    itself = detector.fit(train.vectors, labels)
    itself = itself.calibrated(itself.scores_of(train), 0.05)  # an example is its nearest one
    assert np.mean(itself.p_values_of(outputs(new, new)) <= 0.05) > 0.05


def test_unknown_examples_are_learned(rng):
    labels = np.arange(400) % 2
    vectors = np.float32(4 * np.eye(2, 3)[labels] + rng.normal(size=[400, 3]))
    like_known = vectors[:200] + np.float32([0.0, 0.0, 1.5])  # which no other score tells from known ones
    scores = vectors[:, :2]
    aurocs = []
    for unknown in (None, like_known[:100]):
        fitted = detector.fit(vectors[200:], labels[200:], unknown)
        fitted = fitted.calibrated(fitted.scores_of(outputs(vectors[200:], scores[200:])), 0.05)
        parts = outputs(vectors[100:200], scores[100:200]), outputs(like_known[100:], scores[100:200])
        aurocs.append(auroc(*map(fitted.p_values_of, parts)))
    assert aurocs[0] < 0.7
    assert aurocs[1] > aurocs[0] + 0.08


def test_measures(rng):
    known, unknown = rng.random(400), rng.random(300) ** 3
    fitted = calibrated(rng.normal(size=[99, 2]))
    measured = detector.measure(fitted, known, unknown)
    assert measured["auroc"] == pytest.approx(100 * auroc(known, unknown))
    assert measured["false_alarms"] == pytest.approx(100 * np.mean(known <= 0.05))
    assert measured["recall"] == pytest.approx(100 * np.mean(unknown <= 0.05))
    limit = np.sort(known)[20]  # the lowest of the 95% that pass
    assert measured["fpr95"] == pytest.approx(100 * np.mean(unknown >= limit))
    for name, (low, high) in measured["intervals"].items():
        assert low < measured[name] < high, name
    assert [each for each in detector.measure(fitted, known, None)["intervals"]] == ["false_alarms"]
    curve = np.array(measured["curve"])
    assert (np.diff(curve, axis=0) >= 0).all()
    assert curve[:, 0] == pytest.approx(100 * np.array(detector._SHARES), abs=0.5)


def test_vectors_of_words_and_classes_of_one_example():
    wide = detector.fit(np.zeros([4, 0], np.float32), np.arange(4))
    assert wide.scores_of(outputs(np.zeros([2, 0]), np.eye(2))).shape == (2, 2)
    equal = detector.fit(np.ones([30, 3], np.float32), np.arange(30) % 3)
    assert np.isfinite(equal.scores_of(outputs(np.ones([2, 3]), np.eye(2)))).all()
    few = detector.fit(np.eye(4, dtype=np.float32), np.arange(4))
    scores = few.scores_of(outputs(np.eye(4), np.eye(4)))
    assert np.isfinite(scores).all()
    assert scores[:, 3] == pytest.approx(0.0, abs=1.0)  # where others are some 1e6 away


def test_too_few_examples():
    with pytest.raises(ValueError, match=r"unknown=0\.05: needs 19 calibration examples, and there are 18\."):
        calibrated(np.zeros([18, 2]))
    assert calibrated(np.zeros([19, 2])).sums.shape == (19,)

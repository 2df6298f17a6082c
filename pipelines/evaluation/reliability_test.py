"""Calibration errors, likelihoods and risks against arithmetic, brute force and scikit-learn; intervals."""

import numpy as np
import pytest
import scipy.sparse
import scipy.special
import scipy.stats
import sklearn.metrics

from rank4class.pipelines.evaluation import reliability, statistics
from rank4class.pipelines.evaluation.calibration import Platt, Temperature

pytestmark = pytest.mark.usefixtures("all_resamples")

IDENTITY = Platt((1.0,), (0.0,))


def test_top_classes_by_hand():
    # Confidences 0.5, 0.7, 0.7 and 0.9 in the bins (7/15, 8/15], (10/15, 11/15] twice and (13/15, 14/15].
    p = np.array([[0.5, 0.3, 0.2], [0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.05, 0.05, 0.9]])
    measured = reliability.measure(Temperature(1.0), np.log(p), np.array([0, 1, 1, 2]))
    # Right: 1, then 1 of 2, then 1.
    assert measured.ece == pytest.approx((0.5 + 2 * abs(0.5 - 0.7) + 0.1) / 4)
    summary = measured.summarize()
    assert summary["ece"] == pytest.approx(100 * measured.ece)
    assert summary["nll"] == pytest.approx(-np.log([0.5, 0.2, 0.7, 0.9]).mean())
    table = measured.table()
    assert table["count"].tolist() == [0] * 7 + [1, 0, 0, 2, 0, 0, 1, 0]
    np.testing.assert_allclose(table.loc[10, ["confidence", "accuracy"]], [0.7, 0.5])
    np.testing.assert_allclose(table.loc[10, ["low", "high"]], statistics.wilson(np.array(0.5), np.array(2)))
    np.testing.assert_allclose(table.loc[10, ["from", "to"]], [10 / 15, 11 / 15])
    assert table.loc[0, ["confidence", "accuracy", "low", "high"]].isna().all()


def test_risk_coverage_by_hand():
    # Confidences 0.9 (right), 0.8 (wrong), 0.6 (one right, one wrong).
    p = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.6, 0.4]])
    measured = reliability.measure(Temperature(1.0), np.log(p), np.array([0, 0, 1, 0]))
    share, error = measured.risk_coverage()
    np.testing.assert_allclose(share, [0.25, 0.5, 1.0])
    np.testing.assert_allclose(error, [0.0, 0.5, 0.5])
    summary = measured.summarize()
    # Errors among the first 1, 2, 3, 4: in the mean over both orders of 0.6 the third adds a half.
    assert summary["aurc"] == pytest.approx(100 * (0 + 1 / 2 + 1.5 / 3 + 2 / 4) / 4)
    assert summary["aurc_optimal"] == pytest.approx(100 * (0 + 0 + 1 / 3 + 2 / 4) / 4)
    low, high = summary["intervals"]["aurc"]
    assert 0 <= low < summary["aurc"] < high <= 100


def test_pairs_by_hand():
    # Ranked pairs: 0.1 (wrong), 0.9 (right), 0.95 (wrong), and 0.12 (right); one pair is excluded.
    p = np.array([[0.1, 0.9, 0.5], [0.95, 0.12, 0.3]])
    where = np.array([[True, True, False], [True, True, False]])
    labels = scipy.sparse.csr_array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    measured = reliability.measure(IDENTITY, scipy.special.logit(p), labels, where)
    # 0.1 and 0.12 share the bin (1/15, 2/15]; 0.9 and 0.95 are in (13/15, 14/15] and above.
    assert measured.ece == pytest.approx((abs(1.0 - 0.22) + 0.1 + 0.95) / 4)
    expected = -(np.log([0.9, 0.9]).sum() + np.log([0.05, 0.12]).sum()) / 2
    assert measured.summarize()["nll"] == pytest.approx(expected)
    assert measured.table()["count"].sum() == 4
    assert "aurc" not in measured.summarize()


def test_brute_force_in_blocks(rng, monkeypatch):
    scores = rng.normal(size=[101, 4])
    labels = rng.integers(4, size=101)
    p = scipy.special.softmax(scores / 0.5, axis=1)
    error = 0.0
    for b in range(15):
        chosen = [i for i in range(101) if b / 15 < p[i].max() <= (b + 1) / 15]
        error += abs(sum((p[i].argmax() == labels[i]) - p[i].max() for i in chosen)) / 101
    whole = reliability.measure(Temperature(0.5), scores, labels)
    assert whole.ece == pytest.approx(error)
    assert whole.nlls.mean() == pytest.approx(sklearn.metrics.log_loss(labels, p))
    monkeypatch.setattr(reliability, "_BLOCK", 40)
    parts = reliability.measure(Temperature(0.5), scores, labels)
    for name, values in vars(whole).items():
        np.testing.assert_allclose(getattr(parts, name), values, err_msg=name)


def test_equal_scores_are_right_in_their_share():
    measured = reliability.measure(Temperature(1.0), np.zeros([4, 4]), np.arange(4))
    assert measured.ece == pytest.approx(0.0)
    assert measured.summarize()["aurc"] == pytest.approx(75.0)  # whatever the order
    assert measured.summarize()["intervals"]["aurc"] is None
    assert measured.nlls == pytest.approx(np.log(4))


def test_intervals_cover_the_true_reliability(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 200)
    # Two classes with confidence 0.9 are right in 0.7, those with 0.6 in 0.5.
    covered = {"nll": 0, "aurc": 0}
    truth = {"nll": -0.5 * (np.log([0.9, 0.1]) @ [0.7, 0.3] + np.log([0.6, 0.4]) @ [0.5, 0.5])}
    # The error of the most confident share c is 0.3 up to 1/2, and then (0.15 + 0.5 (c - 1/2)) / c.
    truth["aurc"] = 100.0 * (0.15 + 0.25 - 0.1 * np.log(2.0))
    for seed in range(100):
        rng = np.random.default_rng(seed)
        sure = rng.random(400) < 0.5
        p = np.where(sure, 0.9, 0.6)
        labels = (rng.random(400) > np.where(sure, 0.7, 0.5)).astype(int)
        scores = np.log(np.stack([p, 1 - p], axis=1))
        summary = reliability.measure(Temperature(1.0), scores, labels).summarize()
        assert summary["ece"] > summary["ece_if_calibrated"][1]  # it is 15%
        for name, (low, high) in summary["intervals"].items():
            covered[name] += low <= truth[name] <= high
            assert low <= summary[name] <= high
    assert all(0.9 * 100 <= count <= 0.99 * 100 for count in covered.values()), covered


def test_error_of_a_calibrated_model_by_hand():
    """100 examples of confidence 0.8: the number of right ones has the law B(100, 0.8)."""
    scores = np.tile(np.log([[0.8, 0.2]]), [100, 1])
    labels = (np.arange(100) < 30).astype(int)  # 70 are right
    measured = reliability.measure(Temperature(1.0), scores, labels).summarize()
    assert measured["ece"] == pytest.approx(10.0)
    errors = np.abs(np.arange(101) - 80)
    law = scipy.stats.binom.pmf(np.arange(101), 100, 0.8)
    cumulative = [law[errors <= error].sum() for error in range(101)]
    expected = [next(e for e in range(101) if cumulative[e] >= level) for level in (0.025, 0.975)]
    assert measured["ece_if_calibrated"] == pytest.approx(expected)


def simulated(kind, size, n, seed):
    """Returns the reliability of a calibrated model; of several classes each depends on the others."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=[size, n]) * 2.0
    if kind == "one":
        classes = scipy.special.softmax(scores, axis=1).cumsum(axis=1) > rng.random([size, 1])
        return reliability.measure(Temperature(1.0), scores, classes.argmax(axis=1))
    normal = np.sqrt(0.4) * rng.normal(size=[size, 1]) + np.sqrt(0.6) * rng.normal(size=[size, n])
    labels = scipy.stats.norm.cdf(normal) < scipy.special.expit(scores)
    return reliability.measure(IDENTITY, scores, scipy.sparse.csr_array(labels.astype(np.float32)))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "size", "n"),
    [("one", 500, 5), ("one", 2000, 5), ("one", 2000, 77), ("one", 5000, 28), ("several", 1000, 28)],
)
def test_calibrated_models_have_the_error_of_calibrated_models(kind, size, n):
    inside = 0
    for seed in range(200):
        measured = simulated(kind, size, n, seed)
        low, high = np.percentile(measured._errors_if_calibrated(), [2.5, 97.5])
        inside += low <= measured.ece <= high
    assert 0.9 * 200 <= inside <= 0.98 * 200


def test_a_calibration_is_compared_with_raw_scores(rng):
    scores = rng.normal(size=[50, 3])
    labels = rng.integers(3, size=50)
    summary = reliability.evaluate(Temperature(2.0), scores, labels).summarize()
    assert (summary["method"], summary["parameters"]) == ("temperature", "temperature 2")
    for when, temperature in (("before", 1.0), ("after", 2.0)):
        expected = reliability.measure(Temperature(temperature), scores, labels).summarize()
        assert summary[when] == expected

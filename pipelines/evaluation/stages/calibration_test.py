"""Which runs are calibrated, and the calibration that a run writes and reports."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import scipy.sparse
import scipy.special
import tensorflow as tf
from absl import logging

from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import calibration, trained_model
from rank4class.pipelines.evaluation.stages import calibration as stage
from rank4class.pipelines.evaluation.stages.sets_test import GRADED, ITEMS, SEVERAL, result_of
from rank4class.pipelines.evaluation.stages.stage import Context, Fitted
from rank4class.pipelines.task_data.inputs import Inputs
from rank4class.pipelines.task_data.task_data import TaskData


@pytest.fixture
def messages(monkeypatch):
    """Returns the logged messages."""
    logged = []
    monkeypatch.setattr(logging, "info", lambda text, *values: logged.append(text % values))
    return logged


def task_of(labels, excluded=None):
    splits = dict.fromkeys(("train", "validation", "test"), data.Split({}, labels, excluded=excluded))
    return TaskData(("a", "b", "c"), splits, None, tf.keras.layers.Dense, Inputs({}))


def has_calibration(split, **changes):
    return stage.has_calibration(config.override(config.Experiment(), changes), split)


def fit(result, loaded):
    fits = stage.CalibrationStage(config.Experiment())
    fits.check(loaded)
    return fits.fit(Context(loaded, "validation"), result, None).calibration


def measure(result, fitted, split):
    """Returns the evaluation of a split of `task_of`."""
    loaded = TaskData(("a", "b", "c"), {"test": split}, None, tf.keras.layers.Dense, Inputs({}))
    context = Context(loaded, "test", Fitted(calibration=fitted))
    return stage.CalibrationStage(config.Experiment()).measure(context, result)


def test_calibration_of_one_and_of_several_classes():
    assert has_calibration(data.Split({}, np.array([0, 1, 2, 0])))
    assert has_calibration(SEVERAL)
    assert not has_calibration(SEVERAL, calibration="none")


@pytest.mark.parametrize(
    ("split", "changes", "reason"),
    [
        (GRADED, {}, "the labels are graded"),
        (ITEMS, {}, "the items of a list are not classes"),
        (
            SEVERAL,
            {"count_prior.name": "learned"},
            "losses.ops.set_sizes.marginals are the probabilities under count prior 'learned'",
        ),
    ],
)
def test_scores_that_are_not_calibrated(messages, split, changes, reason):
    assert not has_calibration(split, **changes)
    assert messages == [f"No calibration: {reason}"]


def test_excluded_classes_are_left_out(rng):
    scores = rng.normal(size=[60, 3])
    labels = scipy.sparse.csr_array(scores > 0.3)
    excluded = scipy.sparse.csr_array(scores < -0.5)
    loaded = task_of(labels, excluded)
    fitted = fit(result_of(scores), loaded)
    assert fitted == calibration.fit(np.float32(scores), labels, scores >= -0.5)
    measured = measure(result_of(scores), fitted, loaded.splits["test"])
    assert measured.calibrated.after.predictions.sum() == np.sum(scores >= -0.5)


def test_metrics_rank_the_classes_by_their_probabilities():
    # The logits (2 - 3, 1, 0) rank the first class last.
    scores = [[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]]
    fitted = calibration.Platt((1.0,) * 3, (-3.0, 0.0, 0.0))
    split = data.Split({}, scipy.sparse.csr_array(np.float32([[1, 0, 0], [1, 1, 0]])))
    measured = measure(result_of(scores), fitted, split)
    assert measured.values.tolist() == [[1.0], [0.0]]  # top1_error
    assert measured.top_classes.tolist() == [1, 1]
    assert measured.right.tolist() == [0, 1]
    assert measured.ranks.tolist() == [3.0, 1.0]
    excluded = dataclasses.replace(split, excluded=scipy.sparse.csr_array([[0, 1, 0], [0, 0, 1]], dtype=bool))
    without = measure(result_of(scores), fitted, excluded)
    assert (without.top_classes.tolist(), without.ranks.tolist()) == ([2, 1], [2.0, 1.0])
    scores[0][2] = np.nan
    broken = measure(result_of(scores), fitted, split)
    assert broken.top_classes.tolist() == [-1, 1]
    assert broken.ranks.tolist() == [np.inf, 1.0]
    shared = calibration.Platt((0.5,), (0.0,))
    result = result_of([[2.0, 1.0, 0.0]] * 2)
    assert measure(result, shared, split).values is result.values


def test_of_many_scores_a_random_part_of_the_examples_is_calibrated(rng, monkeypatch):
    monkeypatch.setattr(stage, "MAX_SCORES", 60)
    assert len(stage.measured_examples(100, 3)) == 100
    monkeypatch.setattr(calibration, "MAX_PER_CLASS", 2)
    scores = rng.normal(size=[100, 3])
    labels = rng.integers(0, 3, 100)
    loaded = task_of(labels)
    split = task_of(labels).splits["test"]
    rows = stage.measured_examples(100, 3)
    assert len(rows) == 20
    assert np.all(np.diff(rows) > 0)
    fitted = calibration.fit(np.float32(scores[rows]), labels[rows])
    part = dataclasses.replace(result_of(scores), scores=np.float32(scores[rows]))
    for result in (result_of(scores), part):
        assert fit(result, loaded) == fitted
        measured = measure(result, fitted, split).calibrated.after
        np.testing.assert_allclose(
            measured.nlls, fitted.negative_log_likelihood(scores[rows], labels[rows]), rtol=1e-5
        )
    monkeypatch.setattr(stage, "MAX_SCORES", 300)
    np.testing.assert_array_equal(stage.measured_examples(100, 3), np.arange(100))


def test_scores_that_are_not_finite_are_neither_fitted_nor_measured(messages):
    scores = [[0.0, np.nan, 1.0]]
    loaded = task_of(np.array([0]))
    assert fit(result_of(scores), loaded) is None
    fitted = calibration.Temperature(1.0)
    measured = measure(result_of(scores), fitted, loaded.splits["test"])
    assert "calibration" not in measured.summarize()
    reason = "some of its scores are not finite"
    assert messages == [f"No calibration of the {split} split: {reason}" for split in ("validation", "test")]


def test_a_run_writes_the_temperature_of_its_validation_split(digits_run):
    path = pathlib.Path(digits_run.workdir)
    results = digits_run.results
    restored = trained_model.restore(path)
    loaded = restored.load_task()
    content = json.loads((path / "calibration.json").read_text())
    assert content.keys() == {"method", "temperature"}
    for split in ("validation", "test"):
        scores = restored.evaluate(loaded, split, keep_scores=True).scores
        labels = loaded.splits[split].labels
        if split == "validation":
            expected = calibration.fit(scores, labels).temperature
            assert content["temperature"] == pytest.approx(expected, rel=1e-5)
        entry = results[split]["calibration"]
        for when, temperature in (("before", 1.0), ("after", content["temperature"])):
            log_p = scipy.special.log_softmax(scores / temperature, axis=1)
            assert entry[when]["nll"] == pytest.approx(
                -log_p[np.arange(len(labels)), labels].mean(), rel=1e-5
            )
    fitted = results["validation"]["calibration"]
    assert fitted["after"]["nll"] < fitted["before"]["nll"]

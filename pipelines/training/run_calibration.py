"""Calibration of a run's scores: whether it has one, its fit on validation, its reliability on a split."""

import dataclasses

import numpy as np
from absl import logging

from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import calibration, predictions, reliability
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.task.task import Task


def method_of(experiment: config.Experiment, loaded: Task) -> str | None:
    """Returns the method that calibrates the scores of an experiment; logs a reason against a calibration.

    Returns:
      A method of `calibration.fit`, or None for scores that are not calibrated: by `calibration="none"`, of
      lists of items, of graded labels, of models with a count prior, and of splits whose scores exceed
      `predictions.LARGEST_SCORES`.

    Raises:
      ValueError: the method does not fit the dataset or the model.
    """
    method, validation = experiment.calibration, loaded.splits["validation"]
    if method == "none":
        return None
    reason = _reason_against(experiment, validation)
    if method != "auto":
        calibration.check_method(method, validation.multi_label)
        if reason:
            raise ValueError(f"calibration={method!r}: {reason}. Set it to 'auto'.")
    if not reason:
        for split in ("validation", "test"):
            examples, classes = len(loaded.splits[split]), loaded.num_scored(split)
            if not predictions.scores_fit(examples, classes):
                limit = f"the limit of {predictions.LARGEST_SCORES / 1e9:.1f} GB"
                reason = f"{examples:,} x {classes:,} scores of the {split} split exceed {limit}"
                break
    if reason:
        logging.info("No calibration: %s", reason)
        return None
    return method


def _reason_against(experiment, validation):
    if experiment.encoder.name == "items":
        return "the items of a list are not classes"
    if validation.multi_label and np.any(validation.label_matrix.data != 1.0):
        return "the labels are graded"
    if experiment.count_prior.name != "none":
        prior = experiment.count_prior.name
        return f"losses.ops.set_sizes.marginals are the probabilities under count prior {prior!r}"
    return None


def fit(result: EvaluationResult, method: str, loaded: Task) -> calibration.Calibration | None:
    """Fits a calibration to the scores of the validation split; returns None if a score is not finite.

    With `data.held_out`, validation ranks only the other classes. Its temperature is applied to the scores of
    all classes, which the test split ranks.
    """
    scores = _finite_scores(result, "validation")
    if scores is None:
        return None
    validation = loaded.splits["validation"]
    return calibration.fit(scores, validation.labels, _ranked(validation), method=method)


def measure(
    result: EvaluationResult, fitted: calibration.Calibration | None, name: str, split: data.Split
) -> EvaluationResult:
    """Returns an evaluation with the reliability of its scores, but for scores that are not finite.

    Args:
      result: with scores.
      fitted: the calibration, or None for no reliability.
      name: of the split.
      split: the evaluated examples.
    """
    scores = None if fitted is None else _finite_scores(result, name)
    if fitted is None or scores is None:
        return result
    calibrated = reliability.evaluate(fitted, scores, split.labels, _ranked(split))
    return dataclasses.replace(result, calibrated=calibrated)


def without_scores(result: EvaluationResult) -> EvaluationResult:
    """Returns an evaluation without its scores, which may be large."""
    return dataclasses.replace(result, scores=None, log_counts=None)


def _finite_scores(result: EvaluationResult, name: str) -> np.ndarray | None:
    """Returns the scores of an evaluation, or None, with a logged reason, if some are not finite."""
    assert result.scores is not None
    if all(np.isfinite(scores).all() for scores in result.scores):  # without an array of their size
        return result.scores
    logging.info("No calibration of the %s split: some of its scores are not finite", name)
    return None


def _ranked(split):
    return None if split.excluded is None else ~split.excluded.toarray()

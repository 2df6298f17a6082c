"""The stage that calibrates scores: whether a run does, its fit to validation, its reliability on a split."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import calibration, evaluator, reliability
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.evaluation.stages.stage import Context, Fitted, Needs, Stage
from rank4class.pipelines.task_data.task_data import ModelOutputs, TaskData

_BATCH = 256  # examples that are ranked at a time

MAX_SCORES = 250_000_000  # that are calibrated, 1 GB; of more, those of a random part of the examples


def has_calibration(experiment: config.Experiment, validation: data.Split) -> bool:
    """Returns whether a run calibrates its scores; logs why one with "auto" does not."""
    if experiment.calibration == "none":
        return False
    prior = experiment.count_prior.name
    if validation.kind.ranks_items:
        reason = "the items of a list are not classes"
    elif validation.multi_label and np.any(validation.label_matrix.data != 1.0):
        reason = "the labels are graded"
    elif prior != "none":
        reason = f"losses.ops.set_sizes.marginals are the probabilities under count prior {prior!r}"
    else:
        return True
    logging.info("No calibration: %s", reason)
    return False


def measured_examples(examples: int, classes: int) -> np.ndarray:
    """Returns the increasing indices of the examples whose scores are calibrated: all, or a random part.

    A fit for each class needs the scores of all examples, to rank them by probability.
    """
    most = max(1, MAX_SCORES // classes)
    if examples <= most or classes <= calibration.MAX_PER_CLASS:
        return np.arange(examples)
    return np.sort(np.random.default_rng(0).choice(examples, most, replace=False))


class CalibrationStage(Stage):
    """Calibrates the scores by those of the validation split at the end of a training."""

    def __init__(self, experiment: config.Experiment):
        self._experiment = experiment
        self.fits = False  # to the data that `check` has seen

    def check(self, task_data: TaskData) -> None:
        self.fits = has_calibration(self._experiment, task_data.splits["validation"])

    def needs(self, context: Context) -> Needs:
        # All evaluations of a training keep the scores: the last ones run the function that is compiled.
        if context.split == "calibration" or not (self.fits or context.fitted.calibration):
            return Needs()
        return Needs(measured_examples(len(context.examples), context.task_data.num_scored(context.split)))

    def fit(self, context: Context, result: EvaluationResult, consumer: Any) -> Fitted:
        """Fits a calibration to finite scores.

        With `data.held_out`, validation ranks only the other classes. Its temperature is applied to the
        scores of all classes, which the test split ranks.
        """
        if context.split != "validation" or not self.fits:
            return context.fitted
        scores, validation = _measured(result, "validation", context.examples)
        if scores is None:
            return context.fitted
        fitted = calibration.fit(scores, validation.labels, ranked_classes(validation))
        return dataclasses.replace(context.fitted, calibration=fitted)

    def measure(self, context: Context, result: EvaluationResult, consumer: Any = None) -> EvaluationResult:
        """Returns an evaluation ranked by `Calibration.ranking`, with the reliability of finite scores.

        It has the scores of all examples, or of the `measured_examples`. Without a calibration it stays as it
        is.
        """
        fitted = context.fitted.calibration
        split = context.examples
        if fitted is None:
            return result
        if not fitted.keeps_order:
            result = _ranked_by_probability(result, fitted, split)
        scores, split = _measured(result, context.split, split)
        if scores is None:
            return result
        calibrated = reliability.evaluate(fitted, scores, split.labels, ranked_classes(split))
        return dataclasses.replace(result, calibrated=calibrated)


def _ranked_by_probability(
    result: EvaluationResult, fitted: calibration.Calibration, split: data.Split
) -> EvaluationResult:
    """Returns an evaluation with the metrics and the order of `Calibration.ranking`."""

    def ranking(features: dict[str, tf.Tensor], training: bool) -> ModelOutputs:
        where = ~features["excluded"] if "excluded" in features else None
        return ModelOutputs(fitted.ranking(features["scores"]), where)

    assert result.scores is not None
    examples = dataclasses.replace(split, features={"scores": result.scores})
    evaluate = evaluator.Evaluator(ranking, result.names, max_relevant=split.max_relevant())
    best = 0 if result.best_classes is None else result.best_classes.shape[1]
    batches = data.evaluation_batches(examples, batch_size=_BATCH)
    ranked = evaluate(data.naming_errors(batches, examples, _BATCH, None), best=best)
    assert ranked is not None
    if ranked.best_classes is not None:
        best_scores = np.take_along_axis(result.scores, ranked.best_classes, axis=1)
        ranked = dataclasses.replace(ranked, best_scores=best_scores)
    changed = ("values", "top_classes", "right", "ranks", "best_classes", "best_scores")
    return dataclasses.replace(result, **{name: getattr(ranked, name) for name in changed})


def _measured(result: EvaluationResult, name: str, split: data.Split) -> tuple[np.ndarray | None, data.Split]:
    """Returns the scores of the `measured_examples`, None if some are not finite, and these examples."""
    assert result.scores is not None
    scores = result.scores
    rows = measured_examples(len(split), result.scores.shape[1])
    if len(rows) < len(split):
        scores = scores if len(scores) == len(rows) else scores[rows]
        split = split.select(rows)
    if all(np.isfinite(row).all() for row in scores):  # without an array of their size
        return scores, split
    logging.info("No calibration of the %s split: some of its scores are not finite", name)
    return None, split


def ranked_classes(split: data.Split) -> np.ndarray | None:
    """Returns whether each class is ranked, bool `[N, n]`; None if all are."""
    return None if split.excluded is None else ~split.excluded.toarray()

"""The stage of prediction sets: their fit to the split "calibration", and their metrics."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import data
from rank4class.losses.metrics.names import stated_coverage
from rank4class.losses.ops import set_sizes
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import prediction_sets
from rank4class.pipelines.evaluation.calibration import Calibration
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.evaluation.prediction_sets import PredictionSets
from rank4class.pipelines.evaluation.stages.stage import Context, Fitted, Needs, Stage
from rank4class.pipelines.task_data import count_priors
from rank4class.pipelines.task_data.task_data import TaskData

FEW = 500  # calibration examples, with fewer of which a warning says how far the coverage may be


class SetStage(Stage):
    """Fits prediction sets to the split "calibration", and measures those of other splits."""

    def __init__(self, experiment: config.Experiment):
        self._experiment = experiment
        self._part = experiment.sets

    def check(self, task_data: TaskData) -> None:
        """Raises ValueError if prediction sets do not fit the data; logs how far their coverage may be."""
        part = self._part
        if part.name == "none":
            return
        if self._experiment.data.held_out:
            raise ValueError(
                f"sets={part.name!r}: cannot cover the classes of data.held_out, which no calibration "
                "example has. Set sets to 'none'."
            )
        examples = task_data.splits["calibration"]
        check_examples(part, examples)
        for metric in self._experiment.metrics:
            needed = prediction_sets.least_examples(stated_coverage(metric) or 0.0)
            if len(examples) < needed:
                raise ValueError(
                    f"metrics={metric!r}: needs {needed} calibration examples, and there are "
                    f"{len(examples)}. Leave it out, or give more validation examples."
                )
        log = logging.warning if len(examples) < FEW else logging.info
        log("%s", describe(examples))

    def needs(self, context: Context) -> Needs:
        fitted = context.fitted
        if context.split != "calibration":
            return Needs(consumer=None if fitted.sets is None else Measurement(self._experiment, context))
        if can_fit(self._experiment, fitted.calibration):
            return Needs(consumer=Fit(self._part, context.examples, fitted.calibration))
        if self._part.name != "none":
            logging.warning("No prediction sets: the scores are not calibrated")
        return Needs()

    def fit(self, context: Context, result: EvaluationResult, consumer: Any) -> Fitted:
        if context.split != "calibration":
            return context.fitted
        return dataclasses.replace(context.fitted, sets=consumer and consumer.sets())

    def measure(self, context: Context, result: EvaluationResult, consumer: Any) -> EvaluationResult:
        return result if consumer is None else consumer.add_to(result)


def check_examples(part: config.Sets, examples: data.Split) -> None:
    """Raises ValueError if prediction sets do not fit the labels of calibration examples."""
    several = examples.multi_label
    for is_wrong, reason in (
        (examples.kind.ranks_items, "the items of a list are not classes. Set it to 'none'."),
        (several and np.any(examples.label_matrix.data != 1.0), "the labels are graded. Set it to 'none'."),
        (several and part.name == "adaptive", "an example may have several classes. Choose 'threshold'."),
    ):
        if is_wrong:
            raise ValueError(f"sets={part.name!r}: {reason}")
    if several and part.by_class:
        raise ValueError("sets.by_class=True: an example may have several classes. Set it to False.")


def describe(examples: data.Split) -> str:
    """Returns a sentence on the number of calibration examples, and on the coverage of sets for 90%."""
    size = len(examples)
    needed = prediction_sets.least_examples(0.9)
    if size < needed:
        return f"calibration: {size:,} examples; sets for 90% need {needed}."
    if examples.multi_label:
        return f"calibration: {size:,} examples."
    low, high = prediction_sets.coverage_interval(size, 0.9)
    return f"calibration: {size:,} examples; sets for 90% will cover {low:.1%} to {high:.1%} (95% of draws)."


def can_fit(experiment: config.Experiment, calibration: Calibration | None) -> bool:
    """Returns whether the experiment has sets, and the run the probabilities that they need."""
    if experiment.sets.name in ("none", "rank"):
        return experiment.sets.name == "rank"
    return calibration is not None or count_priors.get(experiment.count_prior).is_model


class Fit:
    """Prediction sets from the scores of calibration examples, batch after batch."""

    def __init__(self, part: config.Sets, examples: data.Split, calibration: Calibration | None):
        self._part = part
        self._examples = examples
        self._calibration = calibration
        labels = examples.labels
        self._ends = np.arange(len(examples) + 1) if isinstance(labels, np.ndarray) else labels.indptr
        self._pairs = np.empty(self._ends[-1], np.float32)
        self._num_classes = 0

    def add(self, rows: np.ndarray, scores: np.ndarray, log_counts: np.ndarray | None) -> None:
        """Adds the scores of the examples `rows`; see `evaluator.Evaluator`."""
        block = _block(self._examples, rows, scores, log_counts, self._calibration)
        pairs = np.concatenate([np.arange(self._ends[row], self._ends[row + 1]) for row in rows])
        labels = self._examples.labels[rows]
        part = self._part
        self._pairs[pairs] = prediction_sets.true_scores(part.name, part.options(), block, labels)
        self._num_classes = scores.shape[1]

    def sets(self) -> PredictionSets:
        """Returns the sets, after all examples were added."""
        part = self._part
        labels = self._examples.labels
        n = self._num_classes
        return prediction_sets.fit(part.name, part.options(), self._pairs, labels, part.by_class, n)


class Measurement:
    """Prediction sets of evaluated examples, batch after batch."""

    def __init__(self, experiment: config.Experiment, context: Context):
        examples = context.examples
        sets = context.fitted.sets
        assert sets is not None
        self._examples = examples
        self._sets = sets
        self._calibration = context.fitted.calibration
        stated = ((name, stated_coverage(name)) for name in experiment.metrics)
        self._stated = {name: coverage for name, coverage in stated if coverage is not None}
        evaluated = prediction_sets.evaluated_coverages(sets, [*self._stated.values(), *context.coverages])
        self._limits = [sets.limits(coverage) for coverage in evaluated.tolist()]
        shape = len(examples), len(evaluated)
        arrays = np.empty(shape, np.int32), np.empty(shape, np.float32)
        self._evaluated = prediction_sets.Evaluated(sets.name, evaluated, *arrays)

    def add(self, rows: np.ndarray, scores: np.ndarray, log_counts: np.ndarray | None) -> None:
        """Adds the scores of the examples `rows`; see `evaluator.Evaluator`."""
        block = _block(self._examples, rows, scores, log_counts, self._calibration)
        sizes, covered = prediction_sets.measure(self._sets, block, self._examples.labels[rows], self._limits)
        self._evaluated.sizes[rows], self._evaluated.covered[rows] = sizes, covered

    def add_to(self, result: EvaluationResult) -> EvaluationResult:
        """Returns the evaluation of all examples with their prediction sets, and the metrics of these."""
        columns = {name: self._evaluated.metrics(each)[name] for name, each in self._stated.items()}
        return dataclasses.replace(result.with_metrics(columns), sets=self._evaluated)


def _block(
    examples: data.Split,
    rows: np.ndarray,
    scores: np.ndarray,
    log_counts: np.ndarray | None,
    calibration: Calibration | None,
) -> prediction_sets.Block:
    """Returns probabilities, ranking and ranked classes of some examples."""
    where = None if examples.excluded is None else ~examples.excluded[rows].toarray()
    probabilities = None
    if log_counts is not None:
        probabilities = set_sizes.marginals(scores, log_counts, where=where)
    elif calibration is not None:
        probabilities = calibration.apply(tf.constant(scores), where)
    ranking = tf.constant(scores) if calibration is None else calibration.ranking(scores)
    return probabilities, ranking, where

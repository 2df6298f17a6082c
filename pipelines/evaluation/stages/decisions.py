"""The stage of the decided classes: the rule that selects them for each example, and their metrics.

An example of one class decides for its top class, those of several classes by `decision_rule`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf
from absl import logging

from rank4class.losses.metrics import DECISION_METRICS
from rank4class.losses.ops import set_sizes
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import predictions, thresholds
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.evaluation.split_metrics import Decisions, of_counts
from rank4class.pipelines.evaluation.stages.calibration import ranked_classes
from rank4class.pipelines.evaluation.stages.stage import Context, Fitted, Needs, Stage
from rank4class.pipelines.evaluation.thresholds import Thresholds
from rank4class.pipelines.task_data import count_priors
from rank4class.pipelines.task_data.task_data import TaskData
from rank4class.registry import LOSSES, THRESHOLDS

Rule = Callable[[Any, Any, Any], tf.Tensor]  # see `decision_rule`
_BLOCK = 1 << 20  # scores whose classes are decided at a time


class DecisionStage(Stage):
    """Decides the classes of each example by the rule of an experiment, and measures the decisions."""

    def __init__(self, experiment: config.Experiment):
        self._experiment = experiment
        self._part = experiment.thresholds
        self._names = [name for name in experiment.metrics if name in DECISION_METRICS]
        self._has_prior = count_priors.get(experiment.count_prior).is_model

    @property
    def _field(self) -> str:
        """The field that asks for decisions, for errors."""
        name = self._part.name
        return f"metrics={self._names[0]!r}" if name == "none" else f"thresholds={name!r}"

    @property
    def _is_needed(self) -> bool:
        return self._part.name != "none" or bool(self._names)

    def check(self, task_data: TaskData) -> None:
        if not self._is_needed:
            return
        rule = self._part.name
        prior = self._experiment.count_prior.name
        loss = self._experiment.loss.name
        validation = task_data.splits["validation"]
        has_rule = rule != "none" or self._has_prior or of_loss(self._experiment) is not None
        if validation.kind.ranks_items:
            raise ValueError(f"{self._field}: the items of a list are not classes. Leave it out.")
        for name in self._names:
            if validation.multi_label and DECISION_METRICS[name].one_class:
                raise ValueError(f"metrics={name!r}: an example may have several classes. Choose 'f1_macro'.")
        several = validation.multi_label
        for is_wrong, reason in (
            (rule != "none" and not several, "each example has one class. Set it to 'none'."),
            (rule != "none" and self._has_prior, f"count prior {prior!r} decides. Set one to 'none'."),
            (several and not has_rule, f"loss {loss!r} has no threshold. Set thresholds to 'f1'."),
        ):
            if is_wrong:
                raise ValueError(f"{self._field}: {reason}")
        confidence = self._part.options().get("confidence")
        if confidence and self._experiment.sets.name == "none":
            raise ValueError(
                f"thresholds.confidence={confidence}: needs calibration examples. Set sets to 'threshold'."
            )
        for name in task_data.evaluated:
            self.needs(Context(task_data, name))

    def needs(self, context: Context) -> Needs:
        if not (context.examples.multi_label and self._is_needed):
            return Needs()
        size, num_classes = context.examples.labels.shape
        predictions.check_size(self._field, size, num_classes, "Leave it out, or lower data.max_examples.")
        return Needs(scores=True)

    def fit(self, context: Context, result: EvaluationResult, consumer: Any = None) -> Fitted:
        """Fits the thresholds to validation, and certain ones to the calibration examples."""
        confidence = self._part.options().get("confidence")
        if self._part.name == "none" or (context.split == "calibration" and not confidence):
            return context.fitted
        assert result.scores is not None
        rate = functools.partial(THRESHOLDS[self._part.name], **self._part.options())
        # The pairs of an example are not independent, so that no certain threshold is shared by classes.
        least = 0 if confidence else thresholds.LEAST
        where = ranked_classes(context.examples)
        values = thresholds.fit(rate, result.scores, context.examples.label_matrix, where, least)
        return dataclasses.replace(context.fitted, thresholds=values)

    def measure(self, context: Context, result: EvaluationResult, consumer: Any = None) -> EvaluationResult:
        """Returns an evaluation with the metrics of the decided classes that the experiment names.

        An example with a score that is not finite decides for no class.
        """
        names = self._names
        examples = context.examples
        finite = result.top_classes >= 0
        if not names:
            return result
        if self._part.name != "none" and context.fitted.thresholds is None:
            logging.info("No %s: the thresholds are fitted at the end of the training", ", ".join(names))
            return result
        relevant = examples.class_matrix(context.task_data.num_scored(context.split))
        if examples.multi_label:
            decided = scipy.sparse.csr_array(self._decide(result, context) & finite[:, None])
        else:
            entries = np.flatnonzero(finite), result.top_classes[finite]
            decided = scipy.sparse.csr_array((finite[finite], entries), relevant.shape)
        if "subset_accuracy" in names:
            exact = np.where(finite, (decided != relevant).sum(axis=1) == 0, False)
            result = result.with_metrics({"subset_accuracy": exact})
        return dataclasses.replace(result, decisions=Decisions(of_counts(names), decided, relevant))

    def _decide(self, result: EvaluationResult, context: Context) -> np.ndarray:
        """Returns the decided classes of examples that may have several, bool `[N, n]`."""
        scores = result.scores
        where = ranked_classes(context.examples)
        rule = decision_rule(self._experiment, context.fitted)
        assert scores is not None
        assert rule is not None
        decided = np.zeros(scores.shape, bool)
        rows = max(1, _BLOCK // scores.shape[1])
        for first in range(0, len(scores), rows):
            block = slice(first, first + rows)
            ranked = None if where is None else where[block]
            log_counts = None if result.log_counts is None else result.log_counts[block]
            decided[block] = rule(scores[block], log_counts, ranked)
        return decided


def decision_rule(experiment: config.Experiment, fitted: Fitted) -> Rule | None:
    """Returns the rule that decides the classes of an example that may have several; None if there is none.

    They are, by the first of these that a run has:

    1. the most probable set by its count prior,
    2. the classes with scores above its fitted thresholds,
    3. those with scores above the threshold of its loss, such as 0 for `sigmoid_cross_entropy`,
    4. those with a calibrated probability of at least 1/2.

    Trainings, evaluations, comparisons, predictions, exports, servers and `RankClassifier` decide by it. The
    rule takes scores `[B, n]`, log-probabilities of the number of classes `[B, m + 1]`, or None, and which
    classes are ranked, bool `[B, n]`, or None for all. It returns bool `[B, n]`.
    """
    if count_priors.get(experiment.count_prior).is_model:
        return lambda scores, log_counts, where: set_sizes.most_probable(scores, log_counts, where=where)
    values = fitted.thresholds
    if values is None and (threshold := of_loss(experiment)) is not None:
        values = Thresholds((threshold,))
    if values is not None:
        return lambda scores, log_counts, where: values.decide(scores, where)
    calibration = fitted.calibration
    if calibration is None:
        return None
    return lambda scores, log_counts, where: calibration.apply(scores, where) >= 0.5


def of_loss(experiment: config.Experiment) -> float | None:
    """Returns the score above which the loss of an experiment decides for a class; None without one."""
    return LOSSES[experiment.loss.name].threshold if experiment.loss.name in LOSSES else None

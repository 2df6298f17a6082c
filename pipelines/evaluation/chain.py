"""The chain of stages that evaluates a model, in a training and after it."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rank4class.pipelines import config
from rank4class.pipelines.evaluation.evaluator import Consume, EvaluationResult
from rank4class.pipelines.evaluation.stages.calibration import CalibrationStage
from rank4class.pipelines.evaluation.stages.decisions import DecisionStage
from rank4class.pipelines.evaluation.stages.sets import SetStage
from rank4class.pipelines.evaluation.stages.split_metrics import SplitMetricStage
from rank4class.pipelines.evaluation.stages.stage import Context, Fitted, Stage
from rank4class.pipelines.task_data.task_data import TaskData

# Of the name of a split, and `keep_scores`, `best` and `consume` of `Evaluator`; None: it was stopped.
Score = Callable[[str, bool | np.ndarray, int, Consume | None], EvaluationResult | None]


class Chain:
    """Calibration, metrics of a split, decisions and prediction sets, each by the results of those before.

    Args:
      experiment: of which calibration, metrics, thresholds and sets are read.
      training_sizes: see `SplitMetricStage`.
    """

    def __init__(self, experiment: config.Experiment, training_sizes: tuple[Any, Any]):
        self._has_sets = experiment.sets.name != "none"
        self._calibration = CalibrationStage(experiment)
        self._decisions = DecisionStage(experiment)
        self._sets = SetStage(experiment)
        self._stages: tuple[Stage, ...] = (
            self._calibration,
            SplitMetricStage(experiment, training_sizes),
            self._decisions,
            self._sets,
        )

    def check(self, task_data: TaskData) -> None:
        """Raises ValueError if a stage does not fit the data of a training."""
        for stage in self._stages:
            stage.check(task_data)

    @property
    def calibrates(self) -> bool:
        """Whether the scores of the data that `check` has seen are calibrated."""
        return self._calibration.fits

    def evaluate(
        self,
        context: Context,
        score: Score,
        *,
        keep_scores: bool = False,
        best: int = 0,
        fits: Iterable[Stage] = (),
    ) -> tuple[EvaluationResult, Fitted] | None:
        """Evaluates a split; returns the result, and what the run has fitted, also by the stages `fits`.

        The result has the `best` classes of each example, and with `keep_scores` the scores. None if `score`
        was stopped.
        """
        needs = [stage.needs(context) for stage in self._stages]
        rows = next((each.scores for each in needs if isinstance(each.scores, np.ndarray)), False)
        has_all = keep_scores or any(each.scores is True for each in needs)
        consume = next((each.consumer.add for each in needs if each.consumer is not None), None)
        most = max(best, *(each.best for each in needs))
        result = score(context.split, has_all or rows, most, consume)
        if result is None:
            return None
        for stage, each in zip(self._stages, needs, strict=True):
            if stage in fits:
                context = dataclasses.replace(context, fitted=stage.fit(context, result, each.consumer))
            if context.split != "calibration":
                result = stage.measure(context, result, each.consumer)
        scores = result.scores if keep_scores else None
        unseen = context.task_data.unseen(context.split)
        return dataclasses.replace(result, scores=scores, unseen=unseen), context.fitted

    def validate(
        self, task_data: TaskData, score: Score, fitted: Fitted, *, is_last: bool, calibrates: bool = False
    ) -> tuple[EvaluationResult, Fitted] | None:
        """Evaluates the validation split in a training; see `evaluate`.

        Each evaluation fits the thresholds, the last one, or each that `calibrates`, the calibration too, and
        the last one the prediction sets.
        """
        fits = self._stages if is_last or calibrates else (self._decisions,)
        evaluated = self.evaluate(Context(task_data, "validation", fitted), score, fits=fits)
        if evaluated is None or not (is_last and self._has_sets):
            return evaluated
        calibrated = self.calibrate(task_data, score, evaluated[1])
        return None if calibrated is None else (evaluated[0], calibrated)

    def calibrate(self, task_data: TaskData, score: Score, fitted: Fitted) -> Fitted | None:
        """Fits to the split "calibration"; returns all that the run has fitted, or None if stopped."""
        context = Context(task_data, "calibration", fitted)
        evaluated = self.evaluate(context, score, fits=(self._decisions, self._sets))
        return None if evaluated is None else evaluated[1]

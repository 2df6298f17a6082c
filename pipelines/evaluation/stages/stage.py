"""The protocol of the stages of an evaluation: the scores they need, their fits and their metrics."""

import dataclasses
from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

import numpy as np

from rank4class import data
from rank4class.pipelines.evaluation.calibration import Calibration
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.evaluation.prediction_sets import PredictionSets
from rank4class.pipelines.evaluation.thresholds import Thresholds
from rank4class.pipelines.task_data.task_data import TaskData


@dataclasses.dataclass(frozen=True)
class Fitted:
    """Functions of the scores that a run has fitted after its training; those that it lacks are None."""

    calibration: Calibration | None = None
    thresholds: Thresholds | None = None
    sets: PredictionSets | None = None


class Consumer(Protocol):
    """Takes the scores of a split, batch after batch, in place of an array of all."""

    def add(self, rows: np.ndarray, scores: np.ndarray, log_counts: np.ndarray | None) -> None: ...


class Needs(NamedTuple):
    """The scores of a split that a stage needs."""

    scores: bool | np.ndarray = False  # of all examples, or the increasing indices of those that it needs
    best: int = 0  # number of best classes of each example
    consumer: Consumer | None = None


@dataclasses.dataclass(frozen=True)
class Context:
    """A split of some data that is evaluated, and what the run has fitted before."""

    task_data: TaskData
    split: str
    fitted: Fitted = Fitted()
    coverages: Collection[float] = ()  # of prediction sets, besides those of the metrics and of `COVERAGES`

    @property
    def examples(self) -> data.Split:
        return self.task_data.splits[self.split]


class Stage(Protocol):
    """A part of each evaluation, built once from an experiment."""

    def check(self, task_data: TaskData) -> None:
        """Raises ValueError if the experiment does not fit the data of a training."""

    def needs(self, context: Context) -> Needs:
        """Returns the scores that the stage needs; ValueError if they take too much memory."""
        return Needs()

    def fit(self, context: Context, result: EvaluationResult, consumer: Any) -> Fitted:
        """Returns all that the run has fitted, with the fit of this stage by its `Needs.consumer`."""
        return context.fitted

    def measure(self, context: Context, result: EvaluationResult, consumer: Any) -> EvaluationResult:
        """Returns the evaluation with the metrics of this stage."""
        return result

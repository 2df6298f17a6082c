"""A budget of minutes for a training: the steps that fit, and the end of the training at its time."""

import os
import time
from typing import NamedTuple

from absl import logging

from rank4class.pipelines import config
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import read_json, write_json
from rank4class.pipelines.task_data.task_data import TaskData

FILE = "budget.json"
_MOST_EPOCHS = 10.0  # or those of the experiment, if they are more
_LEAST_EPOCHS = 0.1
_OF_REPORT = 0.05  # share of the budget for what follows the last evaluation
_OF_TRIAL = 0.04  # share of the budget in which steps are timed
_OF_ESTIMATE = 0.9  # share of the time for steps that is planned: their speed varies


class Speed(NamedTuple):
    """Seconds of a step of training, and of an evaluation of the validation split."""

    step: float
    evaluation: float


class Budget:
    """The time that a run may take, over all its starts.

    Its file holds the seconds until the last save, the number of steps once it is fixed, so that a run that
    is resumed has the same, and the seconds that are kept for the final evaluations.

    Args:
      folder: of the run.
      minutes: of the budget.
      started: value of `time.monotonic` at which this process began with the run.

    Attributes:
      steps: number of steps of the training, or None before `plan`.
      trial: seconds in which steps may be timed.
    """

    def __init__(self, folder: str, minutes: float, started: float):
        self._path = os.path.join(folder, FILE)
        saved = read_json(self._path) if files.exists(self._path) else {}
        self.steps: int | None = saved.get("steps")
        self._reserved = saved.get("reserved", 0.0)
        self._before = saved.get("seconds", 0.0)
        self._limit = 60.0 * minutes
        self.trial = _OF_TRIAL * self._limit
        self._started = started

    @property
    def left(self) -> float:
        """The seconds that are left for steps."""
        return self._limit - self._taken() - self._reserved

    def _taken(self) -> float:
        return self._before + time.monotonic() - self._started

    def save(self) -> None:
        """Writes the seconds that were taken so far."""
        files.make_folder(os.path.dirname(self._path))
        write_json(
            self._path, {"seconds": round(self._taken(), 1), "steps": self.steps, "reserved": self._reserved}
        )

    def plan(self, experiment: config.Experiment, task_data: TaskData, speed: Speed) -> None:
        """Fixes the number of steps that fit: none below a tenth of an epoch, if the head is solved."""
        train = len(task_data.splits["train"])
        validation = len(task_data.splits["validation"])
        evaluated = sum(len(task_data.splits[name]) for name in task_data.evaluated)
        if experiment.unknown is not None:  # its detector encodes all examples again
            evaluated += sum(map(len, task_data.splits.values()))
        # The words are weighed by an evaluation of their own, but not in the end.
        of_validation = speed.evaluation * (2.0 if "words" in task_data.first_example() else 1.0)
        of_end = of_validation + speed.evaluation * evaluated / validation
        self._reserved = round(self._limit * _OF_REPORT + of_end, 1)
        of_epoch = train / experiment.batch_size
        seconds = speed.step * of_epoch + of_validation * experiment.evaluations_per_epoch
        left = self.left
        epochs = min(_OF_ESTIMATE * left / seconds, max(_MOST_EPOCHS, experiment.epochs))
        is_solved = experiment.class_encoder.init == "probe"
        self.steps = max(0 if is_solved else 1, int(epochs * of_epoch) if epochs >= _LEAST_EPOCHS else 0)
        logging.info(
            "Time left for steps: %.1f minutes, for %s of them", max(0.0, left / 60.0), f"{self.steps:,}"
        )
        self.save()

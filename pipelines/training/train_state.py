"""The state of a run in one checkpoint: weights, optimizer slots, and progress."""

import json
import math
import os

import tensorflow as tf

from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.storage.checkpoints import Checkpoints, Owner, best_checkpoints, steps_in

MAX_CHECKPOINTS = 2  # to resume from: the newest, and the one before in case it is damaged


class TrainProgress(tf.train.experimental.PythonState):
    """Progress of a run; the order of the data and dropout are functions of its step."""

    def __init__(self):
        self.step = 0
        self.loss_sum = 0.0  # of the steps since the last evaluation
        self.history = []  # of evaluations: step, training loss, values of the schedule, validation metrics

    def serialize(self) -> str:
        # JSON in Python restores floats exactly.
        return json.dumps({"step": self.step, "loss_sum": self.loss_sum, "history": self.history})

    def deserialize(self, string_value: str | bytes) -> None:
        self.__dict__.update(json.loads(string_value))

    @property
    def evaluated(self) -> int:
        """The step of the last evaluation, -1 before the first."""
        return self.history[-1]["step"] if self.history else -1

    def add_evaluation(self, values: dict[str, float], metrics: dict[str, float]) -> None:
        """Adds an evaluation at the current step, with values of the schedule, to the history."""
        steps = self.step - max(0, self.evaluated)
        loss = self.loss_sum / steps if steps else math.nan
        self.history.append({"step": self.step, "loss": loss, **values, **metrics})
        self.loss_sum = 0.0

    def best_step(self, monitor: str, until: float = math.inf) -> int | None:
        """Returns the step of the best evaluation until a step; None if no value is a number."""
        step = None
        best = math.nan
        for line in self.history:
            value = line.get(monitor, math.nan)  # scores that are not finite have no likelihood
            if line["step"] <= until and evaluator.better(monitor, value, best):
                step = line["step"]
                best = value
        return step

    def gave_up(self, monitor: str, patience: int) -> bool:
        """Whether the last `patience` evaluations were no better than before; 0 never gives up."""
        best = self.best_step(monitor)
        since = sum(best is None or line["step"] > best for line in self.history)
        return 0 < patience <= since


class TrainState:
    """A run's model, optimizer and progress, and its checkpoints.

    The best model is written before the first checkpoint that refers to it, and removed after the last one:
    a run killed at any time leaves the best model of each of its checkpoints.
    """

    def __init__(
        self,
        folder: str,
        model: tf.keras.Model,
        optimizer: tf.keras.optimizers.Optimizer,
        monitor: str,
        run: str,
        writes: bool = True,
    ):
        self.progress = TrainProgress()
        self._monitor = monitor
        self._writes = writes
        last = tf.train.Checkpoint(model=model, optimizer=optimizer, progress=self.progress, owner=Owner(run))
        self._last = Checkpoints(os.path.join(folder, "last"), last, writes)
        self._best = best_checkpoints(folder, model, run, writes)

    def restore(self) -> None:
        """Restores the newest usable checkpoint, and removes incomplete files."""
        self._last.read_newest()
        if self._writes and self.best_step is not None:
            self._best.check(self.best_step)
        for checkpoints in (self._last, self._best):
            checkpoints.keep(checkpoints.steps())

    @property
    def best_step(self) -> int | None:
        """The step of the best model so far, or None."""
        return self.progress.best_step(self._monitor)

    def save_best(self) -> None:
        """Writes the model, if the last evaluation is the best."""
        if self.best_step == self.progress.step:
            self._best.write(self.progress.step)

    def save(self) -> None:
        """Writes a checkpoint, then removes the ones that are no longer needed."""
        self._last.write(self.progress.step)
        steps = self._last.steps()[-MAX_CHECKPOINTS:]
        self._last.keep(steps)
        self._best.keep({self.progress.best_step(self._monitor, until=step) for step in steps})

    def restore_best(self) -> None:
        """Restores the best weights; keeps the present ones if no evaluation was a number."""
        if self.best_step is not None:
            self._best.read(self.best_step)


def has_checkpoint(folder: str) -> bool:
    """Whether a run's folder of checkpoints has one to resume from."""
    return bool(steps_in(os.path.join(folder, "last")))

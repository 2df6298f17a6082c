"""All that a resumed run needs, in one checkpoint: weights, slots, and how far the run has come."""

import hashlib
import json
import os

import numpy as np
import tensorflow as tf

from rank4class.pipelines import config
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.storage.checkpoints import Checkpoints

KEPT = 2  # checkpoints to resume from: the newest, and the one before should it be damaged


class Owner(tf.train.experimental.PythonState):
    """Marks a checkpoint as a run's own.

    Args:
      run: `run_of` an experiment and its data.
    """

    def __init__(self, run):
        self._run = run

    def serialize(self):
        return self._run

    def deserialize(self, string_value):
        if tf.compat.as_text(string_value) != self._run:
            raise ValueError("it was made by another experiment or with other data")


def run_of(experiment, hashes):
    """Returns what tells a run from others: a hash of its experiment and of its data's hashes."""

    def plain(value):  # 3 and 3.0 epochs are the same
        return float(value) if isinstance(value, int | float) else str(value)

    fields = {name: plain(value) for name, value in config.changed_fields(experiment).items()}
    return hashlib.sha256(json.dumps([fields, hashes], sort_keys=True).encode()).hexdigest()


class TrainProgress(tf.train.experimental.PythonState):
    """How far a run has come; the order of the data and dropout are functions of the step.

    Attributes:
      step: how many steps are taken.
      loss_sum: of the steps since the last evaluation.
      history: a dict an evaluation: step, training loss, learning rate, validation metrics.
    """

    def __init__(self):
        self.step = 0
        self.loss_sum = 0.0
        self.history = []

    def serialize(self):
        # Python writes a float so that the very same one is read again.
        return json.dumps({"step": self.step, "loss_sum": self.loss_sum, "history": self.history})

    def deserialize(self, string_value):
        self.__dict__.update(json.loads(string_value))

    @property
    def evaluated(self):
        """The step of the last evaluation, 0 before the first."""
        return self.history[-1]["step"] if self.history else 0

    def best(self, monitor, until=None):
        """Returns the place in the history of the best evaluation up to a step, or None.

        Args:
          monitor: the metric that tells; None: there is none.
          until: a step; None looks at all.
        """
        best = None
        for i, line in enumerate(self.history if monitor else ()):
            if until is not None and line["step"] > until:
                break
            value = np.nan if best is None else self.history[best][monitor]
            if evaluator.better(monitor, line[monitor], value):
                best = i
        return best

    def best_step(self, monitor, until=None):
        """Returns the step of the best evaluation, None before there is one that is a number."""
        best = self.best(monitor, until)
        return None if best is None else self.history[best]["step"]

    def gave_up(self, monitor, patience):
        """Whether that many evaluations have passed without a better one; 0 never gives up."""
        best = self.best(monitor)
        since = len(self.history) - (0 if best is None else best + 1)
        return 0 < patience <= since


class TrainState:
    """A run's model, optimizer and progress, and its checkpoints.

    A checkpoint to resume from is complete in itself. The best model is written before the checkpoint
    that knows of it, and removed after none of them does: whenever a run is killed, every checkpoint
    that is there has the best model that it speaks of.

    Args:
      folder: of the checkpoints.
      model: built.
      optimizer: with its variables created.
      monitor: the metric that tells the best model; None keeps none.
      run: `run_of` the experiment and its data.
      writes: whether this process's files count; see `Checkpoints`.
    """

    def __init__(self, folder, model, optimizer, monitor, run, writes=True):
        self.progress = TrainProgress()
        self._monitor = monitor
        everything = tf.train.Checkpoint(
            model=model, optimizer=optimizer, progress=self.progress, owner=Owner(run)
        )
        self._last = Checkpoints(os.path.join(folder, "last"), everything, writes)
        self._best = best_model(folder, model, run, writes)

    def restore(self):
        """Goes to the newest checkpoint that can be used, if there is any; removes what is half written.

        Raises:
          ValueError: there are checkpoints, but none can be used, or the best model so far is damaged.
        """
        self._last.read_newest()
        if self.best_step is not None:
            try:
                self._best.check(self.best_step)
            except ValueError as error:
                raise ValueError(
                    f"the best model so far is lost: {error}. Restore it, or choose another --workdir"
                ) from error
        for checkpoints in (self._last, self._best):
            checkpoints.keep(checkpoints.steps())

    @property
    def best_step(self):
        return self.progress.best_step(self._monitor)

    def save_best(self):
        """Writes the model, if the last evaluation is the best."""
        if self.best_step == self.progress.step:
            self._best.write(self.progress.step)

    def save(self):
        """Writes everything, then removes the checkpoints that nothing needs any more."""
        self._last.write(self.progress.step)
        kept = self._last.steps()[-KEPT:]
        self._last.keep(kept)
        self._best.keep({self.progress.best_step(self._monitor, until=step) for step in kept})

    def restore_best(self):
        """Gives the model its best weights; those it has where no evaluation was a number."""
        if self.best_step is not None:
            self._best.read(self.best_step)


def best_model(folder, model, run, writes=True):
    """Returns the `Checkpoints` of a run's best models."""
    return Checkpoints(
        os.path.join(folder, "best"), tf.train.Checkpoint(model=model, owner=Owner(run)), writes
    )

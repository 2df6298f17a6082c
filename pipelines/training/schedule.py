"""The steps of a training: evaluations, checkpoints, and values that change with the step."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from rank4class.pipelines import config
from rank4class.pipelines.training import optimization

# Strengths of the penalty, by what selects one: metrics of many classes have a plateau of the first ones.
_PATIENCE = {"likelihood": 2, "monitor": 3}


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The steps of a training, and its values that change with the step."""

    total_steps: int
    epochs: float | None  # passes over the training examples; None for a solver, which chooses them
    evaluation_steps: int  # between two evaluations
    learning_rate: Callable[[int], Any] | None = None  # function of a step; None for a solver
    temperature: Callable[[int], Any] | None = None  # of the loss, by step; None if it is constant
    C: Callable[[int], Any] | None = None  # inverse strength of the solver's penalty, by step
    checkpoint_steps: int | None = None  # between checkpoints, besides one after each evaluation
    steps_per_execution: int = 1  # between two looks at signals
    evaluates_first: bool = False  # the solved head from which the training starts
    patience: int = 0  # evaluations without a better one after which training stops; 0 never stops early

    def values(self, step: int) -> dict[str, float]:
        """Returns the values that change with the step, by name."""
        functions = {"learning_rate": self.learning_rate, "temperature": self.temperature, "C": self.C}
        return {name: float(function(step)) for name, function in functions.items() if function is not None}

    def evaluates_after(self, step: int) -> bool:
        """Whether an evaluation follows a number of steps."""
        if step == 0:
            return self.evaluates_first or self.total_steps == 0
        return step == self.total_steps or step % self.evaluation_steps == 0

    def next_stop(self, step: int) -> int:
        """Returns the number of steps at the next evaluation or checkpoint."""
        intervals = filter(None, (self.evaluation_steps, self.checkpoint_steps))
        return min([self.total_steps, *((step // interval + 1) * interval for interval in intervals)])


def build_schedule(experiment: config.Experiment, train_examples: int) -> Schedule:
    """Returns the `Schedule` of an experiment with a number of training examples."""
    if "learning_rate" not in experiment.optimizer.fields:
        strengths = experiment.optimizer.C
        return Schedule(
            total_steps=len(strengths),
            epochs=None,
            evaluation_steps=1,
            C=strengths.__getitem__,
            patience=experiment.patience or _PATIENCE[experiment.optimizer.selection],
        )
    # Products before quotients: 50 epochs of 11 examples in batches of 10 are 55 steps, not 56 by rounding.
    steps_of_epochs = math.ceil(experiment.epochs * train_examples / experiment.batch_size)
    total_steps = experiment.steps
    if total_steps is None:
        total_steps = max(experiment.min_steps, steps_of_epochs)
    is_of_epochs = total_steps == steps_of_epochs
    epochs = experiment.epochs if is_of_epochs else total_steps * experiment.batch_size / train_examples
    evaluated_examples = experiment.batch_size * experiment.evaluations_per_epoch
    return Schedule(
        total_steps=total_steps,
        epochs=epochs,
        evaluation_steps=math.ceil(train_examples / evaluated_examples),
        learning_rate=optimization.build_schedule(experiment.optimizer, max(1, total_steps)),
        temperature=optimization.build_temperature(experiment.loss, total_steps),
        checkpoint_steps=experiment.checkpoint_steps,
        steps_per_execution=experiment.steps_per_execution,
        evaluates_first=experiment.class_encoder.init == "probe",
        patience=experiment.patience,
    )

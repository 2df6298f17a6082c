"""Training of a sorter on vectors that are drawn anew at every step."""

import dataclasses
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class.models import sorters
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training import optimization
from rank4class.pipelines.training.trainer import Schedule, Trainable, Trainer, open_folder
from rank4class.scripts.research.sorters import score_vectors
from rank4class.scripts.research.sorters.training_config import SorterExperiment, check

EPOCH = 100_000  # vectors


def train(
    experiment: SorterExperiment,
    path: str | os.PathLike,
    *,
    strategy: tf.distribute.Strategy | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Trains a sorter, or resumes an interrupted training of it; returns the results, as in `results.json`.

    The folder then holds the weights, `sorter.safetensors`, to which the results belong. Errors, `strategy`
    and `progress` are those of `rank_training.train`.
    """
    check(experiment)
    strategy = strategy or tf.distribute.get_strategy()
    run_dir, results = open_folder(experiment, path, strategy)
    if results:
        return results
    epoch_steps = EPOCH / experiment.batch_size
    total_steps = math.ceil(experiment.epochs * EPOCH / experiment.batch_size)
    schedule = Schedule(
        total_steps=total_steps,
        epochs=experiment.epochs,
        evaluation_steps=min(total_steps, math.ceil(epoch_steps)),
        learning_rate=optimization.build_schedule(experiment.optimizer, total_steps),
        checkpoint_steps=experiment.checkpoint_steps,
        steps_per_execution=experiment.steps_per_execution,
    )
    tf.keras.utils.set_random_seed(experiment.seed)
    with strategy.scope():
        task = TrainableSorter(experiment)
        optimizer = optimization.build_optimizer(
            experiment.optimizer, schedule.learning_rate, experiment.precision
        )
    try:
        return Trainer(task, optimizer, run_dir, schedule, experiment, strategy, progress=progress).train()
    finally:
        run_dir.unlock()


class TrainableSorter(Trainable):
    """A sorter that learns to rank random vectors; its metrics are mean absolute errors by length."""

    loss_name = "l1"
    evaluated: tuple[str, ...] = ("validation", "test")

    def __init__(self, experiment: SorterExperiment):
        self._experiment = experiment
        self._sizes = sorted(set(experiment.sizes))
        self.metrics = tuple(f"l1@{n}" for n in self._sizes)
        self.hashes: dict[str, str] = {}  # vectors are drawn, not read
        self.train_examples = round(experiment.epochs * EPOCH)
        only_size = self._sizes[0] if len(self._sizes) == 1 else None
        self.model = sorters.get(experiment.sorter, n=only_size, trained=None, **experiment.options)
        self._ranks = tf.function(lambda scores: self.model(scores), autograph=False, reduce_retracing=True)

    def forward(self, features: dict[str, tf.Tensor], training: bool) -> tf.Tensor:
        def sorter(scores):
            return self.model(scores, training=training)

        if not self._experiment.move:
            return sorter(features["scores"])
        return extrapolate(sorter, features["scores"], features["moves"])

    def loss(self, step: tf.Tensor, labels: tf.Tensor, outputs: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        del step
        return weights * tf.reduce_mean(abs(outputs - labels), axis=1)

    def training_batches(self, step: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
        return score_vectors.training_batches(
            self._experiment.sizes,
            batch_size=self._experiment.batch_size,
            seed=self._experiment.seed,
            move=self._experiment.move,
            start_step=step,
            context=context,
        )

    def example_names(self, step: int) -> list[str]:
        return [f"the vectors of step {step + 1}"]

    def evaluate(self, split: str, should_stop: Callable[[], bool]) -> "RankErrors | None":
        size, errors = self._experiment.evaluation_batch_size, {}
        for name, n in zip(self.metrics, self._sizes, strict=True):
            scores, ranks = score_vectors.held_out(split, n)
            parts = []
            for first in range(0, len(scores), size):
                if should_stop():
                    return None
                parts.append(self._ranks(scores[first : first + size]))
            errors[name] = np.abs(np.concatenate(parts) - ranks).mean(axis=1)
        return RankErrors(errors)

    def finalize_weights(self) -> None:
        """Rounds the weights as the file of the artifacts does, so that the results are those of the file."""
        for weight in self.model.weights:
            weight.assign(tf.cast(tf.cast(weight, tf.float16), tf.float32))

    def write_artifacts(self, run_dir: RunDirectory, results: dict[str, Any], test: Any) -> None:
        """Writes the weights, with the sizes, test errors and command that they belong to."""
        del test
        weights = sorters.to_bytes(
            self.model,
            sizes=",".join(map(str, self._sizes)),
            l1=", ".join(f"{name} {results['test'][name]:.5f}" for name in self.metrics),
            command=self._experiment.command,
        )
        files.write(os.path.join(run_dir.path, "sorter.safetensors"), weights)


@dataclasses.dataclass(frozen=True)
class RankErrors:
    """Mean absolute errors of the ranks, name -> float32 `[N]`; the loss is not evaluated."""

    per_vector: dict[str, np.ndarray]
    loss: float | None = None

    def means(self) -> dict[str, float]:
        """Returns name -> mean over the vectors."""
        return {name: float(errors.mean()) for name, errors in self.per_vector.items()}

    def line(self) -> str:
        """Returns the means in one line."""
        return ", ".join(f"{name} {value:.5f}" for name, value in self.means().items())

    def summarize(self) -> dict[str, Any]:
        """Returns name -> mean, and "intervals", their 95% intervals over the vectors."""
        means, intervals = self.means(), {}
        for name, errors in self.per_vector.items():
            margin = 1.96 * float(errors.std()) / math.sqrt(len(errors))
            intervals[name] = [max(0.0, means[name] - margin), means[name] + margin]
        return {**means, "intervals": intervals}


def extrapolate(sorter: Callable[[tf.Tensor], tf.Tensor], scores: tf.Tensor, moves: tf.Tensor) -> tf.Tensor:
    """Returns the ranks of a sorter, float32 `[B, n]`, plus the Jacobian times the moves of the scores."""
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(scores)
            ranks = sorter(scores)
        seeds = tf.zeros_like(ranks)
        outer.watch(seeds)
        # The backward pass is linear in its seeds; its derivative is the forward-mode product.
        backward = inner.gradient(ranks, scores, output_gradients=seeds, unconnected_gradients="zero")
    return ranks + outer.gradient(backward, seeds, output_gradients=moves, unconnected_gradients="zero")

"""Training a sorter on vectors that are drawn fresh at every step."""

import contextlib
import dataclasses
import math
import os

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class.data.sorting import score_vectors
from rank4class.models import sorters
from rank4class.pipelines import distribution
from rank4class.pipelines.reporting import plots, tables
from rank4class.pipelines.sorters.sorter_config import SorterExperiment, check
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory, check_folder
from rank4class.pipelines.training.trainer import Trainer

EPOCH = 100_000  # vectors


def train(experiment, path, *, strategy=None, progress=True):
    """Trains a sorter, or goes on where an interrupted training of it stopped.

    Args:
      experiment: a `SorterExperiment`.
      path: the run's folder, a `RunDirectory`; at the end it holds the weights, `sorter.safetensors`.
      strategy, progress: see `trainer.train`.

    Returns:
      The results, as they stand in `results.json`: those of the weights as they are written.

    Raises:
      ValueError, OSError, FloatingPointError, Interrupted: see `trainer.train`.
    """
    check(experiment)
    strategy = strategy or tf.distribute.get_strategy()
    distribution.check(experiment, strategy)
    path = check_folder(path, "training")
    workdir = RunDirectory(path, SorterExperiment)
    workdir.check_owner(experiment)
    if workdir.results():
        logging.info("%s is finished already", path)
        return workdir.results()
    with contextlib.ExitStack() as stack:
        stack.callback(workdir.unlock)
        return SorterTraining(experiment, strategy, workdir, progress).run()


class SorterTraining(Trainer):
    """A training of a sorter; see `Trainer`. What it judges is the mean absolute error of the ranks."""

    loss_name = "l1"

    def __init__(self, experiment, strategy, workdir, progress):
        sizes = sorted(set(experiment.sizes))
        self._sizes = sizes
        self.metrics = tuple(f"l1@{n}" for n in sizes)
        self.train_examples = round(experiment.epochs * EPOCH)
        epoch_steps = math.ceil(EPOCH / experiment.batch_size)
        total = math.ceil(experiment.epochs * EPOCH / experiment.batch_size)
        super().__init__(
            experiment,
            strategy,
            workdir,
            progress,
            total=total,
            evaluation_steps=min(total, epoch_steps),
            hashes={},
        )

    def build_model(self):
        one = self._sizes[0] if len(self._sizes) == 1 else None
        with self._strategy.scope():
            return sorters.get(self._experiment.sorter, n=one, trained=None)

    def build_scorer(self):
        def ranks(features, training):
            def sorter(scores):
                return self._model(scores, training=training)

            if not self._experiment.move:
                return sorter(features["scores"])
            return extrapolate(sorter, features["scores"], features["moves"])

        return ranks

    def build_loss(self):
        return lambda number, ranks, outputs, weights: weights * tf.reduce_mean(abs(outputs - ranks), axis=1)

    def build_judges(self):
        self._ranks = tf.function(lambda scores: self._model(scores), autograph=False, reduce_retracing=True)

    def batches(self, step, context):
        experiment = self._experiment
        return score_vectors.training_batches(
            experiment.sizes,
            batch_size=experiment.batch_size,
            seed=experiment.seed,
            move=experiment.move,
            start_step=step,
            context=context,
        )

    def judge(self, split, stopping):
        errors = {}
        for name, n in zip(self.metrics, self._sizes, strict=True):
            scores, ranks = score_vectors.held_out(split, n)
            parts = []
            size = self._experiment.evaluation_batch_size
            for first in range(0, len(scores), size):
                if stopping():
                    return None
                parts.append(self._ranks(scores[first : first + size]))
            errors[name] = np.abs(np.concatenate(parts) - ranks).mean(axis=1)
        return Errors(errors)

    def examples(self, step):
        return [f"the vectors of step {step + 1}"]

    def pictures(self, split, judged):
        n = self._sizes[-1]
        moved, ranks = sweep(self._ranks, n)
        exact = sorters.get("exact")(moved).numpy()
        return {f"sweep_{n}": plots.rank_sweep(moved[:, 0], ranks[:, 0], exact[:, 0])}

    def one_line(self, summary):
        return ", ".join(f"{name} {value:.5f}" for name, value in summary.items())

    def restore_final_weights(self):
        if self._optimizer.use_ema:
            self._optimizer.finalize_variable_values(self._model.trainable_variables)
        # The results are of the weights as they are written.
        for weight in self._model.weights:
            weight.assign(tf.cast(tf.cast(weight, tf.float16), tf.float32))

    def finish(self, results):
        path = os.path.join(self._workdir.path, "sorter.safetensors")
        test = {name: f"{results['test'][name]:.5f}" for name in self.metrics}
        weights = sorters.to_bytes(
            self._model,
            sizes=",".join(map(str, self._sizes)),
            l1=", ".join(f"{name} {value}" for name, value in test.items()),
            command=self._experiment.command,
        )
        files.write(path, weights)


@dataclasses.dataclass(frozen=True)
class Errors:
    """Mean absolute errors of the ranks.

    Attributes:
      of: name -> float32 `[N]`, one a vector.
    """

    of: dict

    def summarize(self):
        """Returns name -> mean, and "intervals", their 95% intervals over the vectors."""
        means = {name: float(errors.mean()) for name, errors in self.of.items()}
        margins = {name: 1.96 * errors.std() / math.sqrt(len(errors)) for name, errors in self.of.items()}
        intervals = {name: [max(0.0, means[name] - m), means[name] + m] for name, m in margins.items()}
        return {**means, "intervals": intervals}


def extrapolate(sorter, scores, moves):
    """Ranks scores where they will be, by what the sorter and its gradient say of where they are.

    Args:
      sorter: function of scores `[B, n]` to ranks `[B, n]`.
      scores, moves: float32 `[B, n]`.

    Returns:
      float32 `[B, n]`: the ranks, and the moves times their derivatives.
    """
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(scores)
            ranks = sorter(scores)
        seen = tf.zeros_like(ranks)
        outer.watch(seen)
        # Backwards is linear in what it starts from, and the derivative of that is the way forwards.
        back = inner.gradient(ranks, scores, output_gradients=seen, unconnected_gradients="zero")
    return ranks + outer.gradient(back, seen, output_gradients=moves, unconnected_gradients="zero")


def results_table(results):
    """Returns the errors of a trained sorter with their intervals, as text for a terminal."""
    rows = [["mean absolute error of the ranks", "validation", "test"]]
    for name in results["test"]["intervals"]:
        cells = []
        for split in ("validation", "test"):
            low, high = results[split]["intervals"][name]
            cells.append(f"{results[split][name]:.5f}  [{low:.5f}, {high:.5f}]")
        rows.append([name, *cells])
    return tables.text_table(rows)


def sweep(sorter, n, points=401):
    """Ranks a list again and again as its first score moves from -1 to 1, past evenly spaced others.

    Returns:
      The lists, float32 `[points, n]`, and what the sorter makes of them.
    """
    others = np.random.default_rng(0).permutation(np.linspace(-1.0, 1.0, n + 1)[1:-1])
    lists = np.tile(np.concatenate([[0.0], others]).astype(np.float32), [points, 1])
    lists[:, 0] = np.linspace(-1.0, 1.0, points)
    return lists, np.asarray(sorter(lists))

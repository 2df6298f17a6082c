"""Training: a step of a whole training of MiniLM on generated comments against the bare step of its model."""

import itertools
import tempfile
from typing import Any

import tensorflow as tf

from rank4class import losses
from rank4class.pipelines import config
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.task import loading
from rank4class.pipelines.task.task import Task
from rank4class.pipelines.training import optimization, rank_training
from rank4class.scripts.benchmarks import datasets, suite

STEPS = 4  # training steps in a row of one measurement
OVERRIDES: dict[str, dict[str, Any]] = {
    "training": {},
    "training steps_per_execution": {"steps_per_execution": STEPS},
    "training clip_norm": {"optimizer.clip_norm": 1.0},
    "training ema_momentum": {"optimizer.ema_momentum": 0.999},
    "training accumulation_steps": {"accumulation_steps": 2},
}


class Bare(suite.Workload):
    """Model, loss and optimizer in one function, on one batch."""

    def __init__(self, experiment: config.Experiment, loaded: Task):
        model = loaded.build_model(experiment)
        optimizer = optimization.build_optimizer(experiment.optimizer, experiment.optimizer.learning_rate)
        optimizer.build(model.trainable_variables)
        loss = losses.get(experiment.loss.name)
        features, labels, _ = next(iter(loaded.training_batches(experiment.batch_size, experiment.seed)))

        @tf.function
        def step() -> tf.Tensor:
            with tf.GradientTape() as tape:
                value = loss(labels, model(features, training=True))
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
            return value

        self.step = step
        self()

    def __call__(self) -> None:
        for _ in range(STEPS):
            self.step().numpy()


class Training(suite.Workload):
    """A training with all that it reads, checks and writes between two evaluations."""

    def __init__(self, experiment: config.Experiment, loaded: Task):
        self._folder = tempfile.TemporaryDirectory()
        run_dir = RunDirectory(self._folder.name)
        strategy = tf.distribute.get_strategy()
        self.trainer = rank_training.build_trainer(experiment, loaded, run_dir, strategy, progress=False)
        self.trainer.resume()
        self._ends = itertools.count(STEPS, STEPS)
        self()

    def __call__(self) -> None:
        self.trainer.take_steps(next(self._ends))


def _contenders(size: suite.Size) -> list[suite.Step]:
    del size  # everything is measured at every size
    return [suite.Step(name, against=("bare",)) for name in OVERRIDES]


def _build(step: suite.Step, size: suite.Size) -> suite.Workload:
    experiment = datasets.EXPERIMENTS["goemotions"]()
    [experiment.batch_size] = size
    experiment = config.override(experiment, OVERRIDES.get(step.name, {}))
    loaded = loading.load(experiment, "")
    return (Training if step.name in OVERRIDES else Bare)(experiment, loaded)


SUITE = suite.Suite(
    axes="BATCH",
    sizes=("32",),
    contenders=_contenders,
    build=_build,
    examples=lambda step, size: STEPS * size[0],
    values=lambda size: size[0] * 3 * 32,
    min_repeats=15,
)

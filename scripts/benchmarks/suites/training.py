"""The benchmark's suite of training: what a step of a whole training costs over the bare step of its model.

The model is MiniLM on generated comments; both sides take the same number of steps in a row.
"""

import itertools
import tempfile

import tensorflow as tf

from rank4class import losses
from rank4class.pipelines import config
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.task import loading
from rank4class.pipelines.training import optimization, rank_training
from rank4class.pipelines.training.preemption import Interruption
from rank4class.scripts.benchmarks import data_suite
from rank4class.scripts.benchmarks.suite import Step, Suite

STEPS = 4  # that one measurement takes
CHANGES = {
    "training": {},
    "training steps_per_execution": {"steps_per_execution": STEPS},
    "training clip_norm": {"optimizer.clip_norm": 1.0},
    "training ema_momentum": {"optimizer.ema_momentum": 0.999},
    "training accumulation_steps": {"accumulation_steps": 2},
}


class Bare:
    """Model, loss and optimizer in one function, on one and the same batch."""

    arguments_mb = 0.0

    def __init__(self, experiment, loaded):
        model = loaded.build_model(experiment)
        optimizer = optimization.build_optimizer(experiment.optimizer, experiment.optimizer.learning_rate)
        optimizer.build(model.trainable_variables)
        loss = losses.get(experiment.loss.name)
        features, labels, _ = next(iter(loaded.training_batches(experiment)))

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                value = loss(labels, model(features, training=True))
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
            return value

        self._step = step
        self()

    def __call__(self):
        for _ in range(STEPS):
            self._step().numpy()


class Training:
    """A training with all that it reads, checks and writes between two evaluations."""

    arguments_mb = 0.0

    def __init__(self, experiment, loaded):
        self._folder = tempfile.TemporaryDirectory()
        workdir = RunDirectory(self._folder.name)
        strategy = tf.distribute.get_strategy()
        training = rank_training.RankTraining(experiment, strategy, loaded, workdir, progress=False)
        self._training = training.started(Interruption())
        self._ends = itertools.count(STEPS, STEPS)
        self()

    def __call__(self):
        with self._training.writer.as_default():
            self._training.take_steps(next(self._ends))


def _steps(size):
    del size
    return [Step(name, against=("bare",)) for name in CHANGES]


def _build(step, size):
    [batch_size] = size
    experiment = data_suite.EXPERIMENTS["goemotions"]()
    experiment.batch_size = batch_size
    experiment = config.override(experiment, CHANGES.get(step.name, {}))
    loaded = loading.load(experiment, "")
    return (Training if step.name in CHANGES else Bare)(experiment, loaded)


SUITE = Suite(
    axes="BATCH",
    sizes=("32",),
    contenders=_steps,
    build=_build,
    examples=lambda step, size: STEPS * size[0],
    values=lambda size: size[0] * 3 * 32,
    min_repeats=15,
)

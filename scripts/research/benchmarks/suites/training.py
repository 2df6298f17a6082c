"""Training: a step of a whole training of MiniLM on generated comments against the bare step of its model.

`bare` is compared with the matrix products of the encoder alone, which no implementation can do without.

`group_by_length` trains on the same comments in batches of similar lengths. Its baseline is the training at
`max_length` tokens, in a random order.
"""

import itertools
import tempfile
from typing import Any

import tensorflow as tf

from rank4class import losses
from rank4class.pipelines import config
from rank4class.pipelines.evaluation.model_building import new_model
from rank4class.pipelines.storage.run_directory import TrainingDirectory
from rank4class.pipelines.task_data.task_data import TaskData
from rank4class.pipelines.training import optimization, rank_training
from rank4class.scripts.research.benchmarks import datasets, suite

STEPS = 4  # training steps in a row of one measurement
GROUPED = "training group_by_length"
OVERRIDES: dict[str, dict[str, Any]] = {
    "training": {},
    GROUPED: {"data.group_by_length": True},
}


class Bare(suite.Workload):
    """Model, loss and optimizer in one function, on one batch."""

    def __init__(self, experiment: config.Experiment, task_data: TaskData):
        model = new_model(experiment, task_data)
        optimizer = optimization.build_optimizer(experiment.optimizer, experiment.optimizer.learning_rate)
        optimizer.build(model.trainable_variables)
        loss = losses.get(experiment.loss.name)
        features, labels, _ = next(iter(task_data.training_batches(experiment.batch_size, experiment.seed)))

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


class MatrixProducts(suite.Workload):
    """The matrix products of the encoder's step, forward and backward, and nothing else."""

    def __init__(self, experiment: config.Experiment, task_data: TaskData):
        encoder = task_data.build_encoder(experiment.encoder.name)
        batch = experiment.batch_size
        length = experiment.data.max_length
        width = encoder.width
        inner = encoder.config["inner_size"]
        heads = encoder.config["num_heads"]
        dense = [(width, width)] * 4 + [(width, inner), (inner, width)]
        self._layers = [
            (
                [(tf.random.normal([batch * length, size[0]]), tf.random.normal(size)) for size in dense],
                [tf.random.normal([batch, heads, length, width // heads]) for _ in range(3)],
            )
            for _ in range(encoder.config["num_layers"])
        ]

        @tf.function(autograph=False)
        def products(layers: Any) -> list[tf.Tensor]:
            outputs = []
            with tf.GradientTape() as tape:
                tape.watch(tf.nest.flatten(layers))
                for pairs, (query, key, value) in layers:
                    outputs += [x @ kernel for x, kernel in pairs]
                    outputs.append(tf.matmul(query, key, transpose_b=True) @ value)
            return tape.gradient(outputs, tf.nest.flatten(layers), output_gradients=outputs)

        self._products = products
        self()

    def __call__(self) -> None:
        for _ in range(STEPS):
            self._products(self._layers)[0].numpy()


class Training(suite.Workload):
    """A training with all that it reads, checks and writes between two evaluations."""

    def __init__(self, experiment: config.Experiment, task_data: TaskData):
        self._folder = tempfile.TemporaryDirectory()
        run_dir = TrainingDirectory(self._folder.name, experiment)
        strategy = tf.distribute.get_strategy()
        self.trainer = rank_training.build_trainer(experiment, task_data, run_dir, strategy, progress=False)
        self.trainer.resume()
        self._ends = itertools.count(STEPS, STEPS)
        self()

    def __call__(self) -> None:
        self.trainer.take_steps(next(self._ends))


def _build(step: suite.Step, size: suite.Size) -> suite.Workload:
    experiment = datasets.EXPERIMENTS["goemotions"]()
    [experiment.batch_size] = size
    changes = {"data.group_by_length": False, **OVERRIDES.get(step.name, {})}
    experiment = config.override(experiment, changes)
    task_data = rank_training.load_data(experiment, "")
    if step.name != GROUPED:
        task_data = task_data.with_static_lengths()
    workloads = {"bare": Bare, "matrix_products": MatrixProducts}
    return workloads.get(step.name, Training)(experiment, task_data)


SUITE = suite.Suite(
    axes="BATCH",
    sizes=("32",),
    contenders=lambda size: [
        suite.Step("bare", against=("matrix_products",)),
        *(suite.Step(name, against=("training" if name == GROUPED else "bare",)) for name in OVERRIDES),
    ],
    build=_build,
    examples=lambda step, size: STEPS * size[0],
    values=lambda size: size[0] * 3 * 32,
    min_repeats=15,
)

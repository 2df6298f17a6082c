"""Training steps of rank models with up to millions of classes, on one device and on several.

The model is a dense layer, an embedding per class and the dot product; the loss is the softmax of class
ids. The baselines are the three matrix products of the scores and their gradients (`matrix_products`), and
Adam's update of the class vectors (`update`). docs/scale.md explains the costs.

adam        a step of `build_steps` on one device
lazy_adam   the same: scores of all classes have a gradient in every row, and it can leave out none
R replicas  a step on R virtual CPUs, each with all class vectors and 1/R of the batch
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
from collections.abc import Sequence

import tensorflow as tf

from rank4class import losses, models
from rank4class.models import class_encoders, interactions
from rank4class.pipelines import config, distribution
from rank4class.pipelines.training.train_step import build_steps
from rank4class.registry import OPTIMIZERS
from rank4class.scripts.research.benchmarks import suite

LEARNING_RATE = 1e-3
DISTRIBUTED_CLASSES = 100_000  # fewer need one device only, and each process takes seconds to start
DISTRIBUTED = ("2 replicas", "4 replicas")


@dataclasses.dataclass(frozen=True)
class Cost:
    """The computed cost of a training step with Adam in float32, per replica.

    A replica has `B = batch` examples. If `sharded`, it holds `n / R` class vectors, and scores these for the
    examples of all.

    >>> one = Cost(batch=64, classes=10_000_000, width=64)
    >>> one.vectors, one.scores, one.memory
    (2600000000, 2560000000, 12960000000)
    >>> for replicas in (8, 64, 512):
    ...     replicated = dataclasses.replace(one, replicas=replicas)
    ...     sharded = dataclasses.replace(replicated, sharded=True)
    ...     print(replicas, *(f"{x / 1e9:.4g}" for x in (replicated.sent, sharded.memory, sharded.sent)))
    8 4.55 6.095 0.0002401
    64 5.119 5.242 0.002161
    512 5.19 5.135 0.01753
    """

    batch: int
    classes: int
    width: int
    replicas: int = 1
    sharded: bool = False

    @property
    def vectors(self) -> int:
        """Bytes of the class vectors and biases."""
        return 4 * self.classes * (self.width + 1) // (self.replicas if self.sharded else 1)

    @property
    def scores(self) -> int:
        """Bytes of a tensor of scores, `[B, n]` or `[R B, n / R]`."""
        return 4 * self.batch * self.classes

    @property
    def memory(self) -> int:
        """Bytes of weights and two moments, and of two tensors of scores, or of one and the gradient."""
        return 3 * self.vectors + self.scores + max(self.scores, self.vectors)

    @property
    def sent(self) -> int:
        """Bytes that a replica sends: gradients of class vectors, or vectors and sums of examples."""
        if self.sharded:
            # h to the other replicas, its gradient back; a maximum, a sum and a true score per example.
            return (self.replicas - 1) * self.batch * (2 * 4 * self.width + 2 * 3 * 4)
        return 2 * (self.replicas - 1) * self.vectors // self.replicas


class Training(suite.Workload):
    """A training step on the devices of a strategy."""

    def __init__(self, optimizer_name: str, size: suite.Size, strategy: tf.distribute.Strategy):
        batch, n, width = size
        with strategy.scope():
            self.model = _model(n, width)
            self.model(tf.zeros([1, width]))
            self.optimizer = OPTIMIZERS[optimizer_name](LEARNING_RATE)
            self.optimizer.build(self.model.trainable_variables)
        experiment = config.Experiment(batch_size=batch, optimizer=config.Optimizer(optimizer_name))
        self._steps = build_steps(strategy, self.model, self.model, _loss, self.optimizer, experiment)
        replicas = strategy.num_replicas_in_sync
        share = (*_examples(batch // replicas, n, width), tf.ones([batch // replicas]))
        self._batches = iter(
            strategy.distribute_datasets_from_function(
                lambda context: tf.data.Dataset.from_tensors(share).repeat()
            )
        )
        self.arguments_mb = 3 * replicas * _megabytes(self.model.trainable_variables)
        self.loss = 0.0
        self()

    def __call__(self) -> None:
        [self.loss] = self._steps(self._batches, first=0, count=1).losses


def _model(n: int, width: int) -> models.RankModel:
    encoder = tf.keras.layers.Dense(width, activation="relu")
    parts = encoder, class_encoders.Embedding(n, width), interactions.Dot()
    return models.RankModel(*parts, num_classes=n)


def _loss(number: tf.Tensor, labels: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    del number  # the loss does not change over the steps
    return losses.softmax(scores, labels, weights=weights)


def _examples(batch: int, n: int, width: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns features and labels."""
    labels = tf.random.stateless_uniform([batch], [3, 4], maxval=n, dtype=tf.int64)
    return tf.random.stateless_normal([batch, width], [1, 2]), labels


def _megabytes(variables: Sequence[tf.Variable]) -> float:
    return sum(4 * variable.shape.num_elements() for variable in variables) / 2**20


def _update(size: suite.Size) -> suite.Compiled:
    """Returns Adam's update of the class vectors."""
    _, n, width = size
    vectors = tf.Variable(tf.zeros([n, width + 1]))
    optimizer = OPTIMIZERS["adam"](LEARNING_RATE)
    optimizer.build([vectors])
    update = suite.Compiled(
        lambda gradient: optimizer.apply_gradients([(gradient, vectors)]), False, tf.ones(vectors.shape)
    )
    update.arguments_mb *= 4  # the vectors and two moments too
    return update


class InOwnProcess(suite.Workload):
    """A step on several devices: a process makes its virtual devices before it starts TensorFlow."""

    def __init__(self, step: suite.Step, size: suite.Size):
        context = multiprocessing.get_context("spawn")
        self._process = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
        self._arguments = step, size
        self()

    def __call__(self) -> None:
        self._process.submit(_call, *self._arguments).result()

    def peak_mb(self) -> float:
        return self._process.submit(_peak_mb, *self._arguments).result()

    def __del__(self) -> None:
        self._process.shutdown()  # an exit of this process before its end would wait forever


def _call(step: suite.Step, size: suite.Size) -> None:
    _on_virtual_devices(step, size)()


def _peak_mb(step: suite.Step, size: suite.Size) -> float:
    return _on_virtual_devices(step, size).peak_mb()


@functools.cache  # a process makes its devices once
def _on_virtual_devices(step: suite.Step, size: suite.Size) -> suite.Workload:
    [cpu] = tf.config.list_physical_devices("CPU")
    devices = [tf.config.LogicalDeviceConfiguration()] * _replicas(step)
    tf.config.set_logical_device_configuration(cpu, devices)
    return Training("adam", size, distribution.get("mirrored"))


def _replicas(step: suite.Step) -> int:
    return int(step.name.split()[0]) if step.name in DISTRIBUTED else 1


def _products(h: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, ...]:
    scores = tf.matmul(h, c, transpose_b=True)
    return tf.matmul(scores, c), tf.matmul(scores, h, transpose_a=True)


def _contenders(size: suite.Size) -> list[suite.Step]:
    names = ("adam", "lazy_adam", *(DISTRIBUTED if size[1] >= DISTRIBUTED_CLASSES else ()))
    steps = [suite.Step(name, against=("matrix_products", "update")) for name in names]
    most = suite.memory_bytes() / 2**21  # TensorFlow's pool keeps up to twice the memory of a step
    divided = [step for step in steps if size[0] % _replicas(step) == 0]
    return [step for step in divided if _computed(step, size)["computed MB"] < most]


def _build(step: suite.Step, size: suite.Size) -> suite.Workload:
    batch, n, width = size
    if step.name == "matrix_products":
        h, c = (tf.random.stateless_normal([rows, width], [1, rows]) for rows in (batch, n))
        return suite.Compiled(_products, False, h, c)
    if step.name == "update":
        return _update(size)
    if step.name in DISTRIBUTED:
        return InOwnProcess(step, size)
    return Training(step.name, size, tf.distribute.get_strategy())


def _computed(step: suite.Step, size: suite.Size) -> dict[str, float]:
    """Returns the computed memory of all replicas, and the bytes that each of them sends."""
    batch, n, width = size
    replicas = _replicas(step)
    cost = Cost(batch // replicas, n, width, replicas)
    return {"computed MB": replicas * cost.memory / 2**20, "sent MB": cost.sent / 2**20}


SUITE = suite.Suite(
    axes="BATCHxCLASSESxWIDTH",
    sizes=tuple(f"64x{n}x64" for n in (1000, 10_000, 100_000, 1_000_000, 3_000_000)),
    contenders=_contenders,
    build=_build,
    computed=_computed,
    values=lambda size: size[1] * (size[0] + size[2]),
)

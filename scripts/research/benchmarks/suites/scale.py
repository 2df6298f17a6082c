"""Training steps of rank models with up to millions of classes, on one device and on several.

The model is a dense layer, an embedding per class and the dot product; the loss is the softmax of class
ids. The baselines are the three matrix products of the scores and their gradients (`matrix_products`), and
Adam's update of the class vectors (`update`). docs/scale.md explains the costs.

adam        a step of `build_steps` on one device
lazy_adam   the same: scores of all classes have a gradient in every row, and it can leave out none
R replicas  a step on R virtual CPUs, each with all class vectors and 1/R of the batch
S shards    a step on S virtual CPUs, each with the whole batch and 1/S of the class vectors: a prototype
S dtensor   the same by DTensor, which shards the vectors of the project's own model, loss and optimizer

The batch is the same for all, so that R replicas share the work of one device. Their time has a fraction of a
millisecond for messages to their process.
"""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.experimental import dtensor

from rank4class import losses, models
from rank4class.losses.ops import ranks
from rank4class.models import class_encoders, interactions
from rank4class.pipelines import distribution
from rank4class.pipelines.config.optimizers import OPTIMIZERS
from rank4class.pipelines.training.train_step import StepOptions, build_steps
from rank4class.scripts.research.benchmarks import suite

LEARNING_RATE = 1e-3
DISTRIBUTED_CLASSES = 100_000  # fewer need one device only, and each process takes seconds to start
DISTRIBUTED = ("2 replicas", "4 replicas", "4 shards", "4 dtensor")


@dataclasses.dataclass(frozen=True)
class Cost:
    """The computed cost of a training step with Adam in float32, per replica.

    Attributes:
      batch: `B`, examples of a replica.
      classes: `n`.
      width: `d`.
      replicas: `R`.
      sharded: whether a replica holds `n / R` class vectors, and scores these for the examples of all.

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
        options = StepOptions(batch, seed=0, lazy=optimizer_name == "lazy_adam")
        self._steps = build_steps(strategy, self.model, self.model, _loss, self.optimizer, options)
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
    parts = _encoder(width), class_encoders.Embedding(n, width), interactions.Dot()
    return models.RankModel(*parts, num_classes=n)


def _encoder(width: int) -> tf.keras.layers.Layer:
    return tf.keras.layers.Dense(width, activation="relu")


def _loss(number: tf.Tensor, labels: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    del number  # the loss does not change over the steps
    return losses.softmax(scores, labels, weights=weights)


def _examples(batch: int, n: int, width: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns features and labels."""
    labels = tf.random.stateless_uniform([batch], [3, 4], maxval=n, dtype=tf.int64)
    return tf.random.stateless_normal([batch, width], [1, 2]), labels


def _megabytes(variables: Sequence[tf.Variable]) -> float:
    return sum(4 * variable.shape.num_elements() for variable in variables) / 2**20


class Shards(suite.Workload):
    """A training step with the class vectors in shards, one per device."""

    def __init__(self, count: int, size: suite.Size):
        batch, n, width = size
        features, labels = _examples(batch, n, width)
        encoder = _encoder(width)
        encoder(features)
        rows = [n * (i + 1) // count - n * i // count for i in range(count)]
        glorot = tf.keras.initializers.GlorotUniform(seed=0)
        tables, biases = [], []
        for i in range(count):
            with tf.device(f"CPU:{i}"):
                tables.append(tf.Variable(glorot([rows[i], width])))
                biases.append(tf.Variable(tf.zeros([rows[i]])))
        variables = [*encoder.trainable_variables, *tables, *biases]
        optimizer = OPTIMIZERS["adam"](LEARNING_RATE)
        optimizer.build(variables)
        self.arguments_mb = 3 * _megabytes(variables)

        @tf.function(autograph=False)
        def step() -> tf.Tensor:
            with tf.GradientTape() as tape:
                value = tf.reduce_mean(sharded_softmax(encoder(features), tables, biases, labels))
            gradients = tape.gradient(value, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return value

        self._step = step
        self()

    def __call__(self) -> None:
        self._step().numpy()


def sharded_softmax(
    h: tf.Tensor, tables: Sequence[tf.Tensor], biases: Sequence[tf.Tensor], labels: tf.Tensor
) -> tf.Tensor:
    """Softmax of the dot products with class vectors in shards.

    Only `h`, and two numbers per example and shard, pass between the devices.

    Args:
      h: `[B, d]`.
      tables, biases: the shards in the order of the classes, `[n_s, d]` and `[n_s]`; shard `s` is on CPU `s`.
      labels: class ids `[B]`.

    Returns:
      float32 `[B]`: `losses.softmax` of all scores.
    """
    totals, true_scores, first = [], [], 0
    for i, (table, bias) in enumerate(zip(tables, biases, strict=True)):
        with tf.device(f"CPU:{i}"):
            scores = tf.matmul(h, table, transpose_b=True) + bias
            place = labels - first
            inside = tf.clip_by_value(place, 0, table.shape[0] - 1)
            score = ranks.true_score(scores, inside)
            totals.append(losses.softmax(scores, inside) + score)  # the logarithm of the sum of exponentials
            true_scores.append(tf.where(place == inside, score, 0.0))
            first += table.shape[0]
    return tf.reduce_logsumexp(tf.stack(totals), axis=0) - tf.add_n(true_scores)


class DTensor(suite.Workload):
    """A training step of the model with the class vectors and biases in shards of DTensor."""

    def __init__(self, count: int, size: suite.Size):
        batch, n, width = size
        self._mesh = dtensor.create_mesh([("classes", count)], devices=[f"CPU:{i}" for i in range(count)])
        layouts = tf.keras.dtensor.experimental.LayoutMap(mesh=self._mesh)
        layouts["class_encoder.table"] = dtensor.Layout(["classes", dtensor.UNSHARDED], self._mesh)
        layouts["interaction.bias"] = dtensor.Layout(["classes"], self._mesh)
        self._batch = [
            dtensor.copy_to_mesh(x, dtensor.Layout.replicated(self._mesh, x.shape.rank))
            for x in _examples(batch, n, width)
        ]
        tf.keras.utils.set_random_seed(0)  # DTensor requires a seed
        with layouts.scope(), dtensor.default_mesh(self._mesh):
            self.model = model = _model(n, width)
            model(self._batch[0])
            self.optimizer = optimizer = OPTIMIZERS["adam"](LEARNING_RATE, mesh=self._mesh)
            optimizer.build(model.trainable_variables)
        self.arguments_mb = 3 * _megabytes(model.trainable_variables)

        @tf.function(autograph=False)
        def step(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                value = tf.reduce_mean(losses.softmax(model(features, training=True), labels))
            gradients = tape.gradient(value, model.trainable_variables)
            pairs = zip(gradients, model.trainable_variables, strict=True)
            optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
            return value

        self._step = step
        self()

    def __call__(self) -> None:
        with dtensor.default_mesh(self._mesh):
            self._step(*self._batch).numpy()


class Update(suite.Workload):
    """Adam's update of the class vectors."""

    def __init__(self, size: suite.Size):
        _, n, width = size
        vectors = tf.Variable(tf.zeros([n, width + 1]))
        optimizer = OPTIMIZERS["adam"](LEARNING_RATE)
        optimizer.build([vectors])
        self._gradient = tf.ones(vectors.shape)
        self.arguments_mb = 4 * _megabytes([vectors])
        self._update = tf.function(
            lambda gradient: optimizer.apply_gradients([(gradient, vectors)]), autograph=False
        )
        self()

    def __call__(self) -> None:
        self._update(self._gradient)


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
    count, kind = _parts(step)
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    if kind == "replicas":
        return Training("adam", size, distribution.get("mirrored"))
    return {"shards": Shards, "dtensor": DTensor}[kind](count, size)


def _parts(step: suite.Step) -> tuple[int, str]:
    """Returns the number of devices, and "replicas", "shards" or "dtensor"."""
    if step.name not in DISTRIBUTED:
        return 1, "replicas"
    count, kind = step.name.split()
    return int(count), kind


def _products(h: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, ...]:
    scores = tf.matmul(h, c, transpose_b=True)
    return tf.matmul(scores, c), tf.matmul(scores, h, transpose_a=True)


def _contenders(size: suite.Size) -> list[suite.Step]:
    names = ("adam", "lazy_adam", *(DISTRIBUTED if size[1] >= DISTRIBUTED_CLASSES else ()))
    steps = [suite.Step(name, against=("matrix_products", "update")) for name in names]
    most = suite.memory_bytes() / 2  # TensorFlow's pool keeps up to twice what a step needs
    return [step for step in steps if _divides(step, size) and _memory(step, size) < most]


def _divides(step: suite.Step, size: suite.Size) -> bool:
    count, _ = _parts(step)
    return size[0] % count == 0 and size[1] % count == 0


def _build(step: suite.Step, size: suite.Size) -> suite.Workload:
    batch, n, width = size
    if step.name == "matrix_products":
        h, c = (tf.random.stateless_normal([rows, width], [1, rows]) for rows in (batch, n))
        return suite.Compiled(_products, False, h, c)
    if step.name == "update":
        return Update(size)
    if step.name in DISTRIBUTED:
        return InOwnProcess(step, size)
    return Training(step.name, size, tf.distribute.get_strategy())


def _cost(step: suite.Step, size: suite.Size) -> Cost:
    batch, n, width = size
    count, kind = _parts(step)
    return Cost(batch // count, n, width, count, sharded=kind != "replicas")


def _memory(step: suite.Step, size: suite.Size) -> int:
    """Returns the computed memory of all replicas, in bytes."""
    cost = _cost(step, size)
    return cost.replicas * cost.memory


def _computed(step: suite.Step, size: suite.Size) -> dict[str, float]:
    """Returns the computed memory of all replicas, and what each of them sends."""
    return {"computed MB": _memory(step, size) / 2**20, "sent MB": _cost(step, size).sent / 2**20}


SUITE = suite.Suite(
    axes="BATCHxCLASSESxWIDTH",
    sizes=tuple(f"64x{n}x64" for n in (1000, 10_000, 100_000, 1_000_000, 3_000_000)),
    contenders=_contenders,
    build=_build,
    computed=_computed,
    values=lambda size: size[1] * (size[0] + size[2]),
)

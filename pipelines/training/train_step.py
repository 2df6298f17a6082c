"""Training steps as one compiled function, on any strategy."""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class.pipelines import config
from rank4class.pipelines.training import randomness

Forward = Callable[..., Any]  # features and `training` to a model's outputs for the loss
Loss = Callable[[tf.Tensor, Any, Any, tf.Tensor], tf.Tensor]  # step, labels, outputs and weights to `[B]`


@dataclasses.dataclass(frozen=True)
class StepResults:
    """Results of a group of steps."""

    losses: np.ndarray  # of the batches, float32 [count]
    gradient_norms: np.ndarray  # before clipping, float32 [count]
    waited: float  # seconds that the steps waited for their batches
    stopping: bool  # whether any worker asked to stop
    examples: int  # that the steps read


def build_steps(
    strategy: tf.distribute.Strategy,
    model: tf.keras.Model,
    forward: Forward,
    loss: Loss,
    optimizer: tf.keras.optimizers.Optimizer,
    experiment: config.Experiment,
) -> Callable[..., StepResults]:
    """Compiles the training steps of an experiment; ValueError if batch norm cannot see the whole batch.

    The loss is the mean over the whole batch for any number of replicas: each replica divides the sum over
    its examples by `batch_size`, and gradients are summed. Returns a function of an iterator over batches,
    the first step, the number of steps, and whether this worker asks to stop.
    """
    _check_batch_norm(strategy, model, experiment)
    run = loop(strategy, replica_step(strategy, model, forward, loss, optimizer, experiment))

    def take_steps(iterator: Iterator, first: int, count: int, stopping: bool = False) -> StepResults:
        arguments = tf.constant(first, tf.int64), tf.constant(count, tf.int32), tf.constant(stopping)
        values, waited = run(iterator, *arguments)
        losses, norms, stops = values.numpy().T
        examples = len(losses) * experiment.batch_size
        return StepResults(losses, norms, float(waited), bool(stops.any()), examples)

    return take_steps


def loop(strategy: tf.distribute.Strategy, step: Callable) -> Callable:
    """Compiles the host's loop over a step from `replica_step`, each on the iterator's next batch.

    The returned function of an iterator, the first step, the number of steps, and whether to stop returns
    three values per step, float32 `[count, 3]`, and the seconds that it waited for batches.
    """

    now = _clock()

    def run(iterator, first, count, stopping):
        def next_step(i, values, waited):
            before = now()
            with tf.control_dependencies([before]):
                batch = next(iterator)
            with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
                waited += now() - before
            per_replica = strategy.run(step, args=(first + tf.cast(i, tf.int64), stopping, *batch))
            return i + 1, values.write(i, strategy.reduce("SUM", per_replica, axis=None)), waited

        values = tf.TensorArray(tf.float32, size=count, element_shape=[3])
        state = (tf.constant(0), values, tf.constant(0.0, tf.float64))
        _, values, waited = tf.while_loop(lambda i, *_: i < count, next_step, state, parallel_iterations=1)
        return values.stack(), waited

    # A partial, since TensorFlow warns if many trainings trace one and the same function.
    return tf.function(functools.partial(run), autograph=False)


def _clock() -> Callable[[], tf.Tensor]:
    """Returns TensorFlow's clock, or the host's if deterministic ops forbid that one."""
    try:
        tf.timestamp()
        return tf.timestamp
    except tf.errors.FailedPreconditionError:
        return lambda: tf.ensure_shape(tf.numpy_function(time.perf_counter, [], tf.float64), [])


def _check_batch_norm(strategy, model, experiment):
    """Raises ValueError if replicas cannot exchange statistics. Only TPUs can within XLA or a loop."""
    replicas = strategy.num_replicas_in_sync
    if replicas == 1 or isinstance(strategy, tf.distribute.TPUStrategy):
        return
    for field, plain in (("jit_compile", False), ("accumulation_steps", 1)):
        value = getattr(experiment, field)
        if value != plain and any(getattr(layer, "synchronized", False) for layer in model.submodules):
            raise ValueError(
                f"{field}={value}: not supported with batch norm over {replicas} replicas. "
                f"Set {field} to {plain}, or use one device."
            )


def replica_step(
    strategy: tf.distribute.Strategy,
    model: tf.keras.Model,
    forward: Forward,
    loss: Loss,
    optimizer: tf.keras.optimizers.Optimizer,
    experiment: config.Experiment,
) -> Callable[..., tf.Tensor]:
    """Returns one replica's step. All of it runs on the device: a TPU can run no op of the host.

    It is a function of the step's number int64, whether to stop, and the replica's features, labels and
    weights, to its shares of the loss, the gradients' norm and the replicas that stop, float32 `[3]`.
    """
    replicas = strategy.num_replicas_in_sync
    clip_norm = experiment.optimizer.clip_norm
    generators = randomness.generators(model)
    differentiate = _differentiate(model, forward, loss, optimizer, experiment, replicas)
    # A `LossScaleOptimizer` cannot aggregate gradients itself.
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    # A TPU compiles everything that it runs.
    jit_compile = experiment.jit_compile and not isinstance(strategy, tf.distribute.TPUStrategy)
    if jit_compile and replicas > 1:  # replicas cannot communicate within a compiled function
        differentiate = tf.function(differentiate, jit_compile=True, autograph=False)

    def step(number, stopping, features, labels, weights):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        randomness.reset(generators, experiment.seed, number, replica)
        value, gradients = differentiate(number, features, labels, weights)
        variables = model.trainable_variables
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        if replicas > 1:
            pairs = inner.aggregate_gradients(pairs)
        gradients, variables = zip(*pairs, strict=True)
        gradients = [_sum_rows(g) if isinstance(g, tf.IndexedSlices) else g for g in gradients]
        norm = tf.linalg.global_norm(gradients)
        if clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, clip_norm, use_norm=norm)
        optimizer.apply_gradients(zip(gradients, variables, strict=True), skip_gradients_aggregation=True)
        return tf.stack([value, norm / replicas, tf.cast(stopping, tf.float32)])

    return tf.function(step, jit_compile=jit_compile and replicas == 1, autograph=False)


def _differentiate(model, forward, loss, optimizer, experiment, replicas):
    """Returns a function of a step's number and a replica's batch to its share of the loss, and gradients."""
    parts = experiment.accumulation_steps
    part_size = experiment.batch_size // (replicas * parts)
    scales = isinstance(optimizer, tf.keras.mixed_precision.LossScaleOptimizer)

    def of_part(number, features, labels, weights):
        with tf.GradientTape() as tape:
            outputs = forward(features, training=True)
            value = tf.reduce_sum(loss(number, labels, outputs, weights)) / experiment.batch_size
            value += sum(model.losses) / (replicas * parts)  # weight decay of an encoder
            target = optimizer.get_scaled_loss(value) if scales else value
        gradients = tape.gradient(target, model.trainable_variables)
        if scales:
            gradients = optimizer.get_unscaled_gradients(gradients)
        if experiment.optimizer.name == "lazy_adam":  # gradients of embeddings stay sparse
            return value, gradients
        return value, [None if g is None else tf.convert_to_tensor(g) for g in gradients]

    def of_batch(number, features, labels, weights):
        if parts == 1:
            return of_part(number, features, labels, weights)
        shared = {name: features[name] for name in ("candidates",) if name in features}
        of_examples = {name: x for name, x in features.items() if name not in shared}

        def part(i):
            # Replicas do not know the length of sequences before they run.
            shape_of = lambda x: [parts, part_size, *(-1 if n is None else n for n in x.shape[1:])]  # noqa: E731
            batch = of_examples, labels, weights
            part_features, *rest = tf.nest.map_structure(lambda x: tf.reshape(x, shape_of(x))[i], batch)
            return {**part_features, **shared}, *rest

        value, gradients = of_part(number, *part(0))
        used = [i for i, gradient in enumerate(gradients) if gradient is not None]

        def add(i, value, sums):
            next_value, next_gradients = of_part(number, *part(i))
            return i + 1, value + next_value, [s + next_gradients[j] for s, j in zip(sums, used, strict=True)]

        state = (tf.constant(1), value, [gradients[i] for i in used])
        _, value, sums = tf.while_loop(lambda i, *_: i < parts, add, state, maximum_iterations=parts - 1)
        for i, total in zip(used, sums, strict=True):
            gradients[i] = total
        return value, gradients

    return of_batch


def _sum_rows(gradient):
    """Returns a sparse gradient with each row once, as its norm and the optimizer need it."""
    rows, positions = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)

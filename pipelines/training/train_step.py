"""Training steps as one compiled function, on any strategy."""

import dataclasses

import tensorflow as tf

from rank4class.pipelines.training import randomness


@dataclasses.dataclass(frozen=True)
class StepResults:
    """What some steps came to.

    Attributes:
      losses: mean loss of each step's batch, float32 `[count]`.
      gradient_norms: of each step, over all weights, before it is clipped, float32 `[count]`.
      waited: seconds that the steps waited for their batches.
      stopping: whether any worker asked to stop.
    """

    losses: object
    gradient_norms: object
    waited: float
    stopping: bool


def build_steps(strategy, model, scorer, loss, optimizer, experiment):
    """Compiles training steps.

    The loss is the mean over the whole batch, whatever the number of replicas: each contributes its
    examples' sum over `batch_size`, and gradients are added up.

    Args:
      strategy: the `tf.distribute.Strategy` under which model and optimizer were made.
      model: a built `models.RankModel`.
      scorer: function of features and `training` to `task.ModelOutputs`.
      loss: from `optimization.build_loss`.
      optimizer: with its variables created.
      experiment: a checked `config.Experiment`.

    Returns:
      A function of an iterator over batches, the first step, the number of steps, and whether this
      worker asks to stop, to a `StepResults`.

    Raises:
      ValueError: batch norm cannot see the whole batch.
    """
    _check_batch_norm(strategy, model, experiment)
    steps = loop(strategy, replica_step(strategy, model, scorer, loss, optimizer, experiment))

    def taken(iterator, first, count, stopping=False):
        arguments = tf.constant(first, tf.int64), tf.constant(count, tf.int32), tf.constant(stopping)
        figures, waited = steps(iterator, *arguments)
        means, norms, stops = figures.numpy().T
        return StepResults(means, norms, float(waited), bool(stops.any()))

    return taken


def loop(strategy, take):
    """Compiles the host's part: steps in a row, each on the iterator's next batch.

    Args:
      strategy: a `tf.distribute.Strategy`.
      take: from `replica_step`.

    Returns:
      A `tf.function` of an iterator, the first step int64, the number of steps int32, and whether to stop,
      to three figures a step, float32 `[count, 3]`, and the seconds that it waited for batches.
    """

    @tf.function(autograph=False)
    def steps(iterator, first, count, stopping):
        def one(i, figures, waited):
            before = tf.timestamp()
            with tf.control_dependencies([before]):
                batch = next(iterator)
            with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
                waited += tf.timestamp() - before
            own = strategy.run(take, args=(first + tf.cast(i, tf.int64), stopping, *batch))
            return i + 1, figures.write(i, strategy.reduce("SUM", own, axis=None)), waited

        figures = tf.TensorArray(tf.float32, size=count, element_shape=[3])
        state = (tf.constant(0), figures, tf.constant(0.0, tf.float64))
        _, figures, waited = tf.while_loop(lambda i, *_: i < count, one, state, parallel_iterations=1)
        return figures.stack(), waited

    return steps


def _check_batch_norm(strategy, model, experiment):
    """Replicas cannot meet in the middle of what is compiled or looped, but on a TPU."""
    if strategy.num_replicas_in_sync == 1 or isinstance(strategy, tf.distribute.TPUStrategy):
        return
    for field, plain in (("jit_compile", False), ("accumulation_steps", 1)):
        value = getattr(experiment, field)
        if value != plain and any(getattr(layer, "synchronized", False) for layer in model.submodules):
            raise ValueError(
                f"{field} {value} does not go with batch norm over {strategy.num_replicas_in_sync} replicas: "
                f"set {field} to {plain}, or take one device"
            )


def replica_step(strategy, model, scorer, loss, optimizer, experiment):
    """Returns one replica's step: all of it runs on the device, where a TPU can run no op of the host.

    Args: see `build_steps`.

    Returns:
      A `tf.function` of the step's number int64, whether to stop, and the replica's features, labels and
      weights, to its shares of the loss, the gradients' norm and the replicas that stop, float32 `[3]`.
    """
    replicas = strategy.num_replicas_in_sync
    generators = randomness.generators(model)
    differentiate = _differentiate(model, scorer, loss, optimizer, experiment, replicas)
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # one that scales the loss has no sum of its own
    alone = replicas == 1
    # A TPU compiles all it runs.
    jit_compile = experiment.jit_compile and not isinstance(strategy, tf.distribute.TPUStrategy)
    if jit_compile and not alone:  # a compiled function cannot meet the other replicas halfway
        differentiate = tf.function(differentiate, jit_compile=True, autograph=False)

    def step(number, stopping, features, labels, weights):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        randomness.reset(generators, experiment.seed, number, replica)
        value, gradients = differentiate(number, features, labels, weights)
        pairs = zip(gradients, model.trainable_variables, strict=True)
        pairs = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
        if not alone:
            pairs = inner.aggregate_gradients(pairs)
        gradients, variables = zip(*pairs, strict=True)
        norm = tf.linalg.global_norm(gradients)
        if experiment.optimizer.clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, experiment.optimizer.clip_norm, use_norm=norm)
        optimizer.apply_gradients(zip(gradients, variables, strict=True), skip_gradients_aggregation=True)
        return tf.stack([value, norm / replicas, tf.cast(stopping, tf.float32)])

    return tf.function(step, jit_compile=jit_compile and alone, autograph=False)


def _differentiate(model, scorer, loss, optimizer, experiment, replicas):
    """Returns a function of a step's number and a replica's batch to its share of the loss, and the gradients
    of that."""
    parts = experiment.accumulation_steps
    scales = isinstance(optimizer, tf.keras.mixed_precision.LossScaleOptimizer)

    def of_part(number, features, labels, weights):
        with tf.GradientTape() as tape:
            outputs = scorer(features, training=True)
            value = tf.reduce_sum(loss(number, labels, outputs, weights)) / experiment.batch_size
            value += sum(model.losses) / (replicas * parts)  # weight decay of an encoder
            target = optimizer.get_scaled_loss(value) if scales else value
        gradients = tape.gradient(target, model.trainable_variables)
        if scales:
            gradients = optimizer.get_unscaled_gradients(gradients)
        # A table's gradient comes as rows, of which some may be the same: added up, their norm is right.
        return value, [None if g is None else tf.convert_to_tensor(g) for g in gradients]

    def of_batch(number, *batch):
        if parts == 1:
            return of_part(number, *batch)

        def part(i):
            return tf.nest.map_structure(lambda x: tf.reshape(x, [parts, -1, *x.shape[1:]])[i], batch)

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

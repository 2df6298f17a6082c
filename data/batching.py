"""Splits to batches `(features, labels, weights)` of static shape, in an order that repeats."""

import functools
import itertools
import re

import tensorflow as tf

# AutoGraph would read the source of what is mapped when it is traced, and there is nothing to convert.
_plain = tf.autograph.experimental.do_not_convert


def training_batches(
    split, *, batch_size, seed, start_step=0, preprocess=None, class_weights=None, context=None
):
    """Batches for training, without end.

    The order is a pure function of `seed` and the step: every epoch is a permutation of its own, drawn
    from seed and epoch, and batches run over the ends of epochs. Every example is met once an epoch.
    Starting at any step costs one permutation, as every epoch does.

    Args:
      split: a `dataset.Split`.
      batch_size: `B`, of all workers together.
      seed: int.
      start_step: the first batch's step, from 0.
      preprocess: optional function of a batch's features and its examples' seeds, in the graph. The
        seeds, int64 `[B, 2]`, are for stateless random operations; they follow from `seed` and the
        example's place in the training, whatever the worker.
      class_weights: `[n]`, the weight of an example by its class; None gives all the weight 1.
      context: `tf.distribute.InputContext` of a worker, which then gets the batches of its replicas
        alone, one after another; the workers' batches together are those of one worker.

    Returns:
      A `tf.data.Dataset` of features, labels (int32 `[B]` or float32 `[B, n]`) and weights float32
      `[B]`. What a split excludes is the feature `excluded`, bool `[B, n]`, which no preprocessing sees.

    Raises:
      ValueError: the replicas do not divide the batch.
    """
    indices = training_indices(len(split), batch_size=batch_size, seed=seed, start_step=start_step)

    def prepare(features, positions):
        if preprocess is None:
            return features
        seeds = tf.stack([tf.fill(tf.shape(positions), tf.cast(seed, tf.int64)), positions], axis=1)
        return preprocess(features, seeds)

    @_plain
    def with_positions(step, indices):
        positions = step * batch_size + tf.range(batch_size, dtype=tf.int64)
        return indices, positions, tf.ones([batch_size])

    steps = tf.data.Dataset.counter(tf.cast(start_step, tf.int64))
    batches = tf.data.Dataset.zip(steps, indices).map(with_positions)
    return _gather(_of_worker(batches, batch_size, context), split, prepare, class_weights)


def training_indices(size, *, batch_size, seed, start_step=0):
    """Returns a `tf.data.Dataset` of the examples' indices int64 `[B]` in `training_batches`."""
    first_epoch, first_place = divmod(start_step * batch_size, size)

    @_plain
    def order(epoch):
        places = tf.random.experimental.stateless_shuffle(
            tf.range(size, dtype=tf.int64), seed=tf.stack([tf.cast(seed, tf.int64), epoch])
        )
        return tf.data.Dataset.from_tensor_slices(places[tf.where(epoch == first_epoch, first_place, 0) :])

    epochs = tf.data.Dataset.counter(tf.cast(first_epoch, tf.int64))
    return epochs.flat_map(order).batch(batch_size, drop_remainder=True)


def evaluation_batches(split, *, batch_size, preprocess=None, context=None):
    """Batches for evaluation: every example once, in order, the last batch padded.

    Args:
      split, batch_size, context: see `training_batches`.
      preprocess: optional function of a batch's features, in the graph.

    Returns:
      A `tf.data.Dataset` like `training_batches`'s; padding repeats the last example with weight 0.
    """
    size = len(split)

    @_plain
    def indices(first):
        positions = first + tf.range(batch_size, dtype=tf.int64)
        return tf.minimum(positions, size - 1), positions, tf.cast(positions < size, tf.float32)

    def prepare(features, positions):
        del positions  # nothing is drawn in evaluation
        return features if preprocess is None else preprocess(features)

    batches = tf.data.Dataset.range(0, size, batch_size).map(indices)
    return _gather(_of_worker(batches, batch_size, context), split, prepare)


# What reading and decoding raise.
UNREADABLE = (
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.DataLossError,
    tf.errors.PermissionDeniedError,
)


def raise_first_unreadable(split, indices, preprocess):
    """Raises ValueError on the first of some examples that cannot be read; returns where all can be.

    Args:
      split: a `dataset.Split`.
      indices: of its examples.
      preprocess: function of a batch's features, in the graph, or None.
    """
    for i in indices if preprocess is not None else ():
        _read(split, i, preprocess)


class ErrorReportingIterator:
    """Iterates over batches; where one cannot be read, raises ValueError with the example that is to blame.

    Args:
      batches: what can be iterated over, the batches of a split.
      split: a `dataset.Split`.
      indices_of: function of a batch's number, from 0, to the indices of its examples.
      preprocess: what the batches were made with, as a function of features.
    """

    def __init__(self, batches, split, indices_of, preprocess):
        self._batches = batches
        self._split = split
        self._indices_of = indices_of
        self._preprocess = preprocess

    def __iter__(self):
        iterator = iter(self._batches)
        for number in itertools.count():
            try:
                batch = next(iterator)
            except StopIteration:
                return
            except UNREADABLE as error:
                raise_first_unreadable(self._split, self._indices_of(number), self._preprocess)
                raise ValueError(f"batch {number} cannot be read: {error.message}") from error
            yield batch


def read_each(split, preprocess):
    """Reads the examples one by one, in order, past those that cannot be read.

    Args:
      split: a `dataset.Split`.
      preprocess: function of a batch's features, in the graph.

    Yields:
      An example's preprocessed features, of a batch of one, and None; or None and what is wrong with it.
    """
    ones = iter(evaluation_batches(split, batch_size=1, preprocess=preprocess))
    for i in range(len(split)):
        features = message = None
        try:
            features, _, _ = next(ones)  # an error does not end a dataset's iterator
        except UNREADABLE:
            try:
                features = _read(split, i, preprocess)
            except ValueError as error:
                message = str(error)
        yield features, message


def unreadable(split, preprocess):
    """Yields (index, message) for every example that cannot be read; it tries them all."""
    for i, (_, message) in enumerate(read_each(split, preprocess)):
        if message:
            yield i, message


def _read(split, i, preprocess):
    try:
        return preprocess({name: tf.constant(values[i : i + 1]) for name, values in split.features.items()})
    except tf.errors.OpError as error:
        raise ValueError(f"{split.origin(i)} cannot be read: {op_reason(error)}") from error


def op_reason(error):
    """Returns an op's own words of its error, one line, without where in the graph the op stands.

    >>> op_reason(tf.errors.DataLossError(None, None, "{{function_node a}} {{node b}} cut short [Op:Read]"))
    'cut short'
    """
    own = re.search(r"\}\} ([^{\n].*?)(?: \[Op:|\n|$)", error.message)
    return (own.group(1) if own else error.message.partition("\n")[0])[:200]


def _of_worker(batches, batch_size, context):
    replicas = 1 if context is None else context.num_replicas_in_sync
    if replicas == 1:
        return batches
    if batch_size % replicas:
        raise ValueError(f"a batch of {batch_size} cannot be divided among {replicas} replicas")
    own = replicas // context.num_input_pipelines
    first = own * context.input_pipeline_id

    @_plain
    def of_replicas(*batch):
        return tuple(tf.reshape(x, [replicas, batch_size // replicas])[first : first + own] for x in batch)

    return batches.map(of_replicas).unbatch()


def _gather(index_batches, split, prepare, class_weights=None):
    arrays = {name: tf.convert_to_tensor(array) for name, array in split.features.items()}
    labels = split.labels
    labels_of = (
        _rows(labels) if split.multi_label else functools.partial(tf.gather, tf.convert_to_tensor(labels))
    )
    excluded_of = None if split.excluded is None else _rows(split.excluded)

    @_plain
    def batch(indices, positions, weights):
        features = {name: tf.gather(array, indices) for name, array in arrays.items()}
        own = labels_of(indices)
        if class_weights is not None:
            weights *= tf.gather(tf.constant(class_weights, tf.float32), own)
        features = prepare(features, positions)
        if excluded_of is not None:
            features = {**features, "excluded": excluded_of(indices)}
        return features, own, weights

    return index_batches.map(batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _rows(matrix):
    """Returns a function of indices `[B]` to those rows of a CSR array, dense `[B, n]`."""
    ends, columns = tf.constant(matrix.indptr, tf.int64), tf.constant(matrix.indices)
    values = tf.constant(matrix.data)

    def rows(indices):
        places = tf.ragged.range(tf.gather(ends, indices), tf.gather(ends, indices + 1))
        own = tf.cast(tf.gather(columns, places.flat_values), tf.int64)
        at = tf.stack([places.value_rowids(), own], axis=1)
        shape = tf.constant([indices.shape[0], matrix.shape[1]], tf.int64)
        return tf.scatter_nd(at, tf.gather(values, places.flat_values), shape)

    return rows

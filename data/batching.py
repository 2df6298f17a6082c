"""Splits to batches of static size, in a reproducible order."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf

from rank4class import compat
from rank4class.data.candidates import Sampled
from rank4class.data.dataset import Split
from rank4class.data.lazy_arrays import StoredRows

Features = dict[str, tf.Tensor]

# There is nothing to convert for AutoGraph, which would read the source of every mapped function.
_plain = tf.autograph.experimental.do_not_convert


def training_batches(
    split: Split,
    *,
    batch_size: int,
    seed: int,
    start_step: int = 0,
    preprocess: Callable[[Features, tf.Tensor], Features] | None = None,
    class_weights: Sequence[float] | np.ndarray | None = None,
    candidates: Sampled | None = None,
    context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Returns endless batches for training.

    The order is a pure function of `seed` and the step. Every epoch is a permutation drawn from seed and
    epoch, with each example once, and a batch may span two epochs.

    If the split has `lengths`, the batches of an epoch have examples of equal lengths, except one batch at
    each change of the length and at each end of the epoch. The order of the batches is random.

    Args:
      split: the examples.
      batch_size: `B`, of all workers together.
      seed: int.
      start_step: the first batch's step, from 0.
      preprocess: function of a batch's features and its examples' seeds, in the graph, or None. The seeds,
        int64 `[B, 2]`, are a function of `seed` and of the example's position in the training.
      class_weights: `[n]`. An example has the mean weight of its classes, whatever their gains, or 1 without
        a class. None gives all the weight 1.
      candidates: of each step. `n` is then their number `m`, and labels are their positions. Features are
        added: `candidates`, the ids of the classes, int32 `[m]`; `log_q`, float32 `[B, m]`, the logarithms of
        their probabilities; and `excluded`, which leaves out repeated ones too. None scores all classes.
      context: the input context of a worker, which gets only the batches of its replicas.

    Returns:
      A `tf.data.Dataset` of features, labels (int32 `[B]` or float32 `[B, n]`) and weights float32
      `[B]`. The split's exclusions are the feature `excluded`, bool `[B, n]`, added after preprocessing.

    Raises:
      ValueError: the replicas do not divide the batch.
    """
    indices = training_indices(split, batch_size=batch_size, seed=seed, start_step=start_step)

    def prepare(features, positions):
        if preprocess is None:
            return features
        seeds = tf.stack([tf.fill(tf.shape(positions), tf.cast(seed, tf.int64)), positions], axis=1)
        return preprocess(features, seeds)

    weights = example_weights(split, class_weights)

    @_plain
    def with_positions(step, indices):
        positions = step * batch_size + tf.range(batch_size, dtype=tf.int64)
        batch = indices, positions, tf.gather(weights, indices)
        return batch if candidates is None else (*batch, *candidates.of_step(seed, step, indices))

    steps = tf.data.Dataset.counter(tf.cast(start_step, tf.int64))
    batches = tf.data.Dataset.zip(steps, indices).map(with_positions)
    return _gather(_of_worker(batches, batch_size, context), split, prepare, candidates)


def training_indices(split: Split, *, batch_size: int, seed: int, start_step: int = 0) -> tf.data.Dataset:
    """Returns a `tf.data.Dataset` of the examples' indices int64 `[B]` in `training_batches`."""
    size = len(split)
    first_epoch, first_position = divmod(start_step * batch_size, size)

    def shuffled(values, stream):
        seeds = tf.stack([tf.cast(seed, tf.int64), stream])
        return tf.random.experimental.stateless_shuffle(values, seed=seeds)

    def grouped(indices, epoch):
        """Sorts the part of an epoch that whole batches fill by length, and shuffles these batches."""
        start = tf.minimum(-epoch * size % batch_size, size)
        end = start + (size - start) // batch_size * batch_size
        whole = indices[start:end]
        whole = tf.gather(whole, tf.argsort(tf.gather(split.lengths, whole), stable=True))
        batches = shuffled(tf.reshape(whole, [-1, batch_size]), -1 - epoch)
        return tf.concat([indices[:start], tf.reshape(batches, [-1]), indices[end:]], axis=0)

    @_plain
    def order(epoch):
        indices = shuffled(tf.range(size, dtype=tf.int64), epoch)
        if split.lengths is not None:
            indices = grouped(indices, epoch)
        start = tf.where(epoch == first_epoch, first_position, 0)
        return tf.data.Dataset.from_tensor_slices(indices[start:])

    epochs = tf.data.Dataset.counter(tf.cast(first_epoch, tf.int64))
    return epochs.flat_map(order).batch(batch_size, drop_remainder=True)


def evaluation_batches(
    split: Split,
    *,
    batch_size: int,
    preprocess: Callable[[Features], Features] | None = None,
    context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Returns batches for evaluation: every example once, in `evaluation_order`, with the last batch padded.

    Args:
      split, batch_size, context: see `training_batches`.
      preprocess: optional function of a batch's features, in the graph.

    Returns:
      A `tf.data.Dataset` of features and labels as of `training_batches`, and of the indices of the examples
      in the split, int32 `[B]`. Padding repeats the last example, with the index -1.
    """
    size = len(split)
    order = tf.constant(evaluation_order(split), tf.int64)

    @_plain
    def indices(first):
        positions = first + tf.range(batch_size, dtype=tf.int64)
        of_examples = tf.gather(order, tf.minimum(positions, size - 1))
        return of_examples, positions, tf.cast(tf.where(positions < size, of_examples, -1), tf.int32)

    def prepare(features, positions):
        del positions  # nothing is drawn in evaluation
        return features if preprocess is None else preprocess(features)

    batches = tf.data.Dataset.range(0, size, batch_size).map(indices)
    return _gather(_of_worker(batches, batch_size, context), split, prepare)


def evaluation_order(split: Split) -> np.ndarray:
    """Returns the order of the examples in `evaluation_batches`, the longest first.

    >>> evaluation_order(Split({}, np.array([0, 1, 0, 1]), lengths=np.array([8, 16, 8, 16])))
    array([1, 3, 0, 2])
    """
    return np.arange(len(split)) if split.lengths is None else np.argsort(-split.lengths, kind="stable")


def in_order(values: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Returns values `[M, ...]` of all `evaluation_batches`, with indices `[M]`, in the order of the split.

    >>> in_order(np.array([5.0, 3.0, 3.0]), np.array([1, 0, -1]))
    array([3., 5.])
    """
    return values[indices >= 0][np.argsort(indices[indices >= 0])]


# The errors of reading and decoding.
UNREADABLE = (
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.DataLossError,
    tf.errors.PermissionDeniedError,
)
Preprocess = Callable[[Features], Features]


def raise_first_unreadable(split: Split, indices: Iterable[int], preprocess: Preprocess | None) -> None:
    """Raises ValueError for the first of some examples that cannot be read by the preprocessing, if any.

    Args:
      split: the examples.
      indices: those to read, in this order.
      preprocess: function of a batch's features; None reads nothing.
    """
    for i in indices if preprocess is not None else ():
        _read(split, i, preprocess)


def naming_errors(
    batches: Iterable[Any], split: Split, batch_size: int, preprocess: Preprocess | None
) -> Iterator[Any]:
    """Yields `evaluation_batches`; raises ValueError, with the name of the example, if one cannot be read.

    It requests no batch after the last one, for which TensorFlow would write to the standard error.

    Args:
      batches: the `evaluation_batches` of the split.
      split: their examples.
      batch_size: `B`, the size of the batches.
      preprocess: that of the batches, by which the first unreadable example of a batch is found.
    """
    iterator = iter(batches)
    order = evaluation_order(split)
    for start in range(0, len(split), batch_size):
        try:
            batch = next(iterator)
        except UNREADABLE as error:
            raise_first_unreadable(split, order[start : start + batch_size], preprocess)
            raise ValueError(
                f"batch {start // batch_size}: cannot be read: {compat.reason(error)}. Look for its cause in "
                "the data."
            ) from error
        yield batch


def read_each(split: Split, preprocess: Preprocess) -> Iterator[tuple[Features | None, str | None]]:
    """Yields the preprocessed features of each example, a batch of one, and None; or None and an error.

    Args:
      split: the examples, in whose order they are read.
      preprocess: function of a batch's features.
    """
    unsorted = dataclasses.replace(split, lengths=None)
    ones = iter(evaluation_batches(unsorted, batch_size=1, preprocess=preprocess))
    for i in range(len(split)):
        try:
            yield next(ones)[0], None  # an error does not end a dataset's iterator
        except UNREADABLE:
            try:
                yield _read(split, i, preprocess), None
            except ValueError as error:
                yield None, str(error)


def unreadable(split: Split, preprocess: Preprocess) -> Iterator[tuple[int, str]]:
    """Yields (index, message) for every example that cannot be read, after reading all up to it.

    Args:
      split, preprocess: see `read_each`.
    """
    for i, (_, message) in enumerate(read_each(split, preprocess)):
        if message:
            yield i, message


def _read(split, i, preprocess):
    try:
        return preprocess({name: tf.constant(values[i : i + 1]) for name, values in split.features.items()})
    except tf.errors.OpError as error:
        raise ValueError(
            f"{split.origin(i)}: cannot be read: {compat.reason(error)}. Correct or remove it."
        ) from error


def _of_worker(batches, batch_size, context):
    replicas = 1 if context is None else context.num_replicas_in_sync
    if replicas == 1:
        return batches
    if batch_size % replicas:
        raise ValueError(
            f"batch_size={batch_size}: not divisible by {replicas} replicas. Choose a multiple of {replicas}."
        )
    count = replicas // context.num_input_pipelines
    first = count * context.input_pipeline_id

    @_plain
    def of_replicas(indices, positions, third, *shared):
        batch = [tf.reshape(x, [replicas, batch_size // replicas]) for x in (indices, positions, third)]
        return (*(x[first : first + count] for x in batch), *(tf.stack([x] * count) for x in shared))

    return batches.map(of_replicas).unbatch()


def _gather(index_batches, split, prepare, candidates=None):
    """Returns batches of examples from those of their indices, positions, a third, and candidates if any."""
    features_of = {name: _rows(array) for name, array in split.features.items()}
    labels_of = _rows(split.labels)
    excluded_of = None if split.excluded is None else _rows(split.excluded)
    certain_of = candidates and _rows(candidates.certain)

    @_plain
    def batch(indices, positions, third, ids=None, is_repeated=None):
        features = {name: rows_of(indices) for name, rows_of in features_of.items()}
        features = prepare(features, positions)
        if ids is None:
            labels = labels_of(indices)
            if excluded_of is not None:
                features = {**features, "excluded": excluded_of(indices)}
            return features, labels, third
        if split.multi_label:
            labels = labels_of(indices, ids)
        else:
            labels = tf.searchsorted(ids, tf.cast(labels_of(indices), ids.dtype))
        excluded = tf.repeat(is_repeated[None], indices.shape[0], axis=0)
        if excluded_of is not None:
            excluded |= excluded_of(indices, ids)
        log_q = tf.where(certain_of(indices, ids), 0.0, candidates.log_q(ids))
        return {**features, "candidates": ids, "log_q": log_q, "excluded": excluded}, labels, third

    return index_batches.map(batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def example_weights(split: Split, class_weights: Sequence[float] | np.ndarray | None) -> np.ndarray:
    """Returns the weight of each example, float32 `[N]`: see `training_batches`."""
    own = np.ones(len(split), np.float32) if split.weights is None else split.weights
    if class_weights is None:
        return own
    weights = np.asarray(class_weights, np.float32)
    if not split.multi_label:
        return own * weights[split.labels]
    counts = split.num_relevant()
    sums = (split.label_matrix != 0) @ weights.astype(np.float64)
    return own * np.where(counts, sums / np.maximum(counts, 1), 1.0).astype(np.float32)


def _rows(array):
    """Returns a function from indices `[B]` to these rows of an array, dense `[B, ...]`."""
    if isinstance(array, scipy.sparse.csr_array):
        return _sparse_rows(array)
    if isinstance(array, StoredRows):
        return functools.partial(_stored_rows, array)
    return functools.partial(tf.gather, tf.convert_to_tensor(array))


def _stored_rows(array, indices):
    rows = tf.numpy_function(lambda i: np.asarray(array[i]), [indices], array.dtype, stateful=False)
    rows.set_shape([*indices.shape, *array.shape[1:]])
    return rows


def _sparse_rows(matrix):
    ends = tf.constant(matrix.indptr, tf.int64)
    columns = tf.constant(matrix.indices, tf.int32)
    values = tf.constant(matrix.data)

    def rows(indices, selected=None):
        """Returns rows, of all columns or of the selected ones, which are increasing."""
        entries = tf.ragged.range(tf.gather(ends, indices), tf.gather(ends, indices + 1))
        entry_rows = entries.value_rowids()
        entry_columns = tf.gather(columns, entries.flat_values)
        entry_values = tf.gather(values, entries.flat_values)
        width = matrix.shape[1]
        if selected is not None:
            width = tf.size(selected)
            places = tf.minimum(tf.searchsorted(selected, entry_columns), width - 1)
            is_in = tf.gather(selected, places) == entry_columns
            entry_rows, entry_columns, entry_values = (
                tf.boolean_mask(x, is_in) for x in (entry_rows, places, entry_values)
            )
        coordinates = tf.stack([entry_rows, tf.cast(entry_columns, tf.int64)], axis=1)
        shape = tf.cast([indices.shape[0], width], tf.int64)
        return tf.scatter_nd(coordinates, entry_values, shape)

    return rows

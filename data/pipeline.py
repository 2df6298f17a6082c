"""Splits to batches `(features, labels, weights)` of static shape, in an order that repeats."""

import tensorflow as tf


def training_batches(split, *, batch_size, seed, start_step=0, preprocess=None):
    """Batches for training, without end.

    The order is a pure function of `seed` and the step: epoch after epoch is shuffled as a whole,
    batches run over the ends of epochs, every example is met once an epoch, and starting at any
    step costs nothing.

    Args:
      split: a `datasets.Split`.
      batch_size: `B`.
      seed: int.
      start_step: the first batch's step, from 0.
      preprocess: optional function of a batch's features, in the graph.

    Returns:
      A `tf.data.Dataset` of features, labels int32 `[B]` and weights float32 `[B]`, all 1.
    """
    size = len(split)
    offsets = tf.range(batch_size, dtype=tf.int64)

    def indices(step):
        positions = step * batch_size + offsets
        epochs, places = positions // size, positions % size
        seeds = tf.stack(
            [tf.fill([batch_size], tf.cast(seed, tf.int64)), epochs, tf.zeros_like(epochs)], axis=1
        )
        # The raw op, since tf.random.experimental.index_shuffle takes one seed for all indices only.
        shuffled = tf.raw_ops.RandomIndexShuffle(index=places, seed=seeds, max_index=size - 1)
        return shuffled, tf.ones([batch_size])

    steps = tf.data.Dataset.counter(tf.cast(start_step, tf.int64))
    return _gather(steps.map(indices), split, preprocess)


def evaluation_batches(split, *, batch_size, preprocess=None):
    """Batches for evaluation: every example once, in order, the last batch padded.

    Args:
      split, batch_size, preprocess: see `training_batches`.

    Returns:
      A `tf.data.Dataset` like `training_batches`'s; padding repeats the last example with weight 0.
    """
    size = len(split)

    def indices(first):
        positions = first + tf.range(batch_size, dtype=tf.int64)
        return tf.minimum(positions, size - 1), tf.cast(positions < size, tf.float32)

    return _gather(tf.data.Dataset.range(0, size, batch_size).map(indices), split, preprocess)


def _gather(index_batches, split, preprocess):
    arrays = {name: tf.convert_to_tensor(array) for name, array in split.features.items()}
    labels = tf.convert_to_tensor(split.labels)

    def batch(indices, weights):
        features = {name: tf.gather(array, indices) for name, array in arrays.items()}
        if preprocess is not None:
            features = preprocess(features)
        return features, tf.gather(labels, indices), weights

    return index_batches.map(batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

"""Splits to batches `(features, labels, weights)` of static shape, in an order that repeats."""

import tensorflow as tf


def training_batches(split, *, batch_size, seed, start_step=0, preprocess=None):
    """Batches for training, without end.

    The order is a pure function of `seed` and the step: every epoch is a permutation of its own, drawn
    from seed and epoch, and batches run over the ends of epochs. Every example is met once an epoch.
    Starting at any step costs one permutation, as every epoch does.

    Args:
      split: a `splits.Split`.
      batch_size: `B`.
      seed: int.
      start_step: the first batch's step, from 0.
      preprocess: optional function of a batch's features, in the graph.

    Returns:
      A `tf.data.Dataset` of features, labels int32 `[B]` and weights float32 `[B]`, all 1.
    """
    size = len(split)
    first_epoch, first_place = divmod(start_step * batch_size, size)

    def order(epoch):
        places = tf.random.experimental.stateless_shuffle(
            tf.range(size, dtype=tf.int64), seed=tf.stack([tf.cast(seed, tf.int64), epoch])
        )
        return tf.data.Dataset.from_tensor_slices(places[tf.where(epoch == first_epoch, first_place, 0) :])

    epochs = tf.data.Dataset.counter(tf.cast(first_epoch, tf.int64))
    batches = epochs.flat_map(order).batch(batch_size, drop_remainder=True)
    return _gather(batches.map(lambda indices: (indices, tf.ones([batch_size]))), split, preprocess)


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

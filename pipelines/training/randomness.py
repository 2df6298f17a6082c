"""Dropout's randomness as a pure function of the run's seed and the step."""

from collections.abc import Sequence

import tensorflow as tf

# Each dropout layer then draws from a tf.random.Generator, not from hidden state inside the kernels.
tf.keras.backend.experimental.enable_tf_random_generator()

MAX_LAYERS = 1 << 20  # per seed
DRAWS_PER_REPLICA = 1 << 40


def generators(model: tf.keras.Model) -> list[tf.random.Generator]:
    """Returns the generators of a built model's random layers, in a fixed order."""
    layers = [m for m in model.submodules if isinstance(m, tf.keras.__internal__.layers.BaseRandomLayer)]
    # Keras keeps a generator's state out of checkpoints, and has no public access to it.
    candidates = [getattr(layer._random_generator, "_generator", None) for layer in layers]
    result = [generator for generator in candidates if generator]  # an LSTM without dropout has none
    for generator in result:
        # A TPU's default algorithm ignores the upper half of the counter: each step would drop the same.
        generator._alg = tf.random.Algorithm.PHILOX.value
        # Under a strategy it would hash the key with the replica, so that one device had other masks than
        # the default strategy. `reset` separates the replicas.
        generator._distribution_strategy = None
    return result


def reset(
    generators: Sequence[tf.random.Generator], seed: int, step: tf.Tensor, replica: tf.Tensor | int = 0
) -> None:
    """Sets every generator to its state at the start of a step, so that the step repeats exactly.

    Philox counts in 128 bits: the upper half is the step, the lower half counts the draws within a step,
    with a range for each replica.
    """
    first_draw = tf.cast(replica, tf.int64) * DRAWS_PER_REPLICA
    for i, generator in enumerate(generators):
        counter = tf.stack([first_draw, tf.cast(step, tf.int64)])
        generator.reset_from_key_counter(tf.constant(seed * MAX_LAYERS + i, tf.int64), counter)

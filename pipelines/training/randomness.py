"""Dropout's randomness as a pure function of the run's seed and the step."""

import tensorflow as tf

# Dropout then draws from a tf.random.Generator a layer instead of from hidden state inside the kernels.
tf.keras.backend.experimental.enable_tf_random_generator()

LAYERS_A_SEED = 1 << 20
A_REPLICAS_DRAWS = 1 << 40


def generators(model):
    """Returns the generators of a built model's random layers, in a fixed order."""
    layers = [m for m in model.submodules if isinstance(m, tf.keras.__internal__.layers.BaseRandomLayer)]
    # Keras keeps a generator's state out of checkpoints, and has no public way to it.
    found = [getattr(layer._random_generator, "_generator", None) for layer in layers]
    found = list(filter(None, found))  # an LSTM without dropout makes none
    for generator in found:
        # Left to itself a TPU takes an algorithm that sees the lower half of the counter alone: every step
        # would drop the same.
        generator._alg = tf.random.Algorithm.PHILOX.value
    return found


def reset(generators, seed, step, replica=0):
    """Sets every generator to where it stands at a step: called at its start, a step repeats exactly.

    Philox counts in 128 bits: the upper half is the step, the lower half is what a step draws, each
    replica its own.

    Args:
      generators: from `generators`.
      seed: Python int of at least 0.
      step: int64 scalar.
      replica: int32 scalar.
    """
    drawn = tf.cast(replica, tf.int64) * A_REPLICAS_DRAWS
    for i, generator in enumerate(generators):
        counter = tf.stack([drawn, tf.cast(step, tf.int64)])
        generator.reset_from_key_counter(tf.constant(seed * LAYERS_A_SEED + i, tf.int64), counter)

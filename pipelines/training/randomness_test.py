import numpy as np
import tensorflow as tf

from rank4class.pipelines import distribution
from rank4class.pipelines.training import randomness


def dropout_model():
    model = tf.keras.Sequential([tf.keras.layers.Dropout(0.5), tf.keras.layers.Dropout(0.5)])
    model(tf.ones([1, 64]))
    return model, randomness.generators(model)


def draw(model, generators, seed, step):
    randomness.reset(generators, seed, tf.constant(step, tf.int64))
    return model(tf.ones([4, 64]), training=True).numpy()


def test_draws_depend_on_seed_step_and_layer():
    model, generators = dropout_model()
    # The default algorithm of a TPU uses the lower half of the state alone.
    assert [each.algorithm for each in generators] == [tf.random.Algorithm.PHILOX.value] * 2
    first = draw(model, generators, 0, 5)
    again, new_generators = dropout_model()
    np.testing.assert_array_equal(draw(again, new_generators, 0, 5), first)
    np.testing.assert_array_equal(draw(model, generators, 0, 5), first)
    assert (draw(model, generators, 0, 6) != first).any()
    assert (draw(model, generators, 1, 5) != first).any()
    # Two layers that dropped the same units would keep half of them, not a quarter.
    assert abs(np.mean(first > 0) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / first.size)


def test_replicas_draw_different_and_repeatable_numbers():
    strategy = distribution.get("mirrored")
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dropout(0.5)])
        model(tf.ones([1, 64]), training=True)
    generators = randomness.generators(model)

    @tf.function
    def masks(step):
        def of_replica():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            randomness.reset(generators, 7, step, replica)
            return model(tf.ones([1, 64]), training=True)

        return strategy.experimental_local_results(strategy.run(of_replica))

    first, second = masks(tf.constant(3, tf.int64))
    assert not np.array_equal(first, second)
    masks(tf.constant(4, tf.int64))
    for once, again in zip((first, second), masks(tf.constant(3, tf.int64)), strict=True):
        np.testing.assert_array_equal(once, again)
    alone = tf.keras.Sequential([tf.keras.layers.Dropout(0.5)])
    alone(tf.ones([1, 64]))
    randomness.reset(randomness.generators(alone), 7, tf.constant(3, tf.int64))
    np.testing.assert_array_equal(alone(tf.ones([1, 64]), training=True), first)  # as on one device

"""The shells as a stranger uses them: compile, fit, save, load, weights, half precision, replicas."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class import losses


def toy(n=4):
    rng = np.random.default_rng(0)
    features = rng.normal(size=[64, 3]).astype(np.float32)
    return features, np.argmax(features @ rng.normal(size=[3, n]), axis=1)


def linear(n=4, dtype=None):
    init = tf.keras.initializers.GlorotUniform(seed=0)
    scores = tf.keras.layers.Dense(n, input_shape=[3], kernel_initializer=init)
    return tf.keras.Sequential([scores, tf.keras.layers.Activation("linear", dtype="float32")])


@pytest.mark.parametrize("name", losses.names())
class TestEveryLoss:
    def test_config_round_trip(self, name):
        defaults = losses.get(name).knobs
        knobs = {k: "none" if isinstance(value, str) else value + 1 for k, value in defaults.items()}
        loss = losses.get(name, reduction=tf.keras.losses.Reduction.SUM, **knobs)
        again = tf.keras.losses.deserialize(tf.keras.losses.serialize(loss))
        assert type(again) is type(loss)
        assert again.get_config() == loss.get_config()
        assert (again.knobs, again.name) == (knobs, name)

    def test_trains_on_ids_and_one_hot_and_survives_saving(self, name, tmp_path):
        tf.keras.utils.set_random_seed(0)
        features, labels = toy()
        model = linear()
        model.compile(
            tf.keras.optimizers.Adam(0.05),
            loss=losses.get(name),
            metrics=[losses.TopKError(1), losses.NDCG(3)],
        )
        first = model.evaluate(features, labels, verbose=0)
        model.fit(features, np.eye(4, dtype=np.float32)[labels], epochs=1, verbose=0)
        model.fit(features, labels[:, None], epochs=9, verbose=0)
        last = model.evaluate(features, labels, verbose=0)
        assert last[0] < first[0]
        model.save(tmp_path / "model.keras")
        again = tf.keras.models.load_model(tmp_path / "model.keras")
        np.testing.assert_allclose(again.evaluate(features, labels, verbose=0), last, rtol=1e-6)

    def test_sample_weights(self, name):
        scores = tf.constant([[1.0, 2.0, 0.0], [0.5, 0.0, 2.0]])
        each = losses.get(name, reduction=tf.keras.losses.Reduction.NONE)([0, 2], scores)
        assert each.shape == [2]
        weighted = losses.get(name)([0, 2], scores, sample_weight=[1.0, 3.0])
        np.testing.assert_allclose(weighted, (each[0] + 3 * each[1]) / 2, rtol=1e-5)


def test_gumbel_repeats_for_the_same_scores_and_seed_only():
    scores = tf.constant([[0.1, 0.2, 0.0]])
    value = losses.GumbelApproxNDCG(seed=1)([0], scores)
    assert value == losses.GumbelApproxNDCG(seed=1)([0], scores)
    assert value != losses.GumbelApproxNDCG(seed=2)([0], scores)


def test_two_replicas_sum_to_one():
    if len(tf.config.list_logical_devices("CPU")) < 2:
        pytest.skip("one logical CPU: set by conftest.py before TensorFlow starts")
    features, labels = toy()
    results = []
    for strategy in (tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])):
        with strategy.scope():
            model = linear()
            model.compile("sgd", loss=losses.PairwiseLogistic(), metrics=[losses.NDCG(3)])
        data = tf.data.Dataset.from_tensor_slices((features, labels)).batch(16)
        model.fit(data, epochs=2, verbose=0)
        results.append(model.evaluate(data, verbose=0))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)

import numpy as np
import pytest
import tensorflow as tf

from rank4class.pipelines import config, optimization


def test_schedules_by_hand():
    def rates(**fields):
        schedule = optimization.build_schedule(config.Optimizer(learning_rate=0.1, **fields), total_steps=100)
        return [float(schedule(step)) for step in (0, 10, 20, 60, 100)]

    np.testing.assert_allclose(rates(), [0.1] * 5)
    np.testing.assert_allclose(rates(decay="linear"), [0.1, 0.09, 0.08, 0.04, 0.0], atol=1e-7)
    cosine = [0.05 * (1 + np.cos(np.pi * step / 100)) for step in (0, 10, 20, 60, 100)]
    np.testing.assert_allclose(rates(decay="cosine"), cosine, atol=1e-7)
    warm = [0.0, 0.5 * 0.08, 0.08, 0.04, 0.0]
    np.testing.assert_allclose(rates(decay="linear", warmup_share=0.2), warm, atol=1e-7)


@pytest.mark.parametrize("name", config.OPTIMIZERS)
def test_every_optimizer_follows_its_schedule(name):
    section = config.Optimizer(name=name, learning_rate=0.1, decay="linear")
    optimizer = optimization.build_optimizer(section, optimization.build_schedule(section, total_steps=2))
    variable = tf.Variable([1.0])
    optimizer.build([variable])
    moved = []
    for _ in range(3):
        before = variable.numpy()[0]
        optimizer.apply_gradients([(tf.ones([1]), variable)])
        moved.append(before - variable.numpy()[0])
    assert moved[0] > moved[1] > 0.0
    assert moved[2] == 0.0


def test_weight_decay_leaves_biases_and_norms_alone():
    section = config.Optimizer(name="adamw", learning_rate=0.1, weight_decay=0.5)
    optimizer = optimization.build_optimizer(section, optimization.build_schedule(section, total_steps=10))
    variables = [
        tf.Variable([1.0], name=name) for name in ("kernel", "bias", "layer_norm/gamma", "layer_norm/beta")
    ]
    optimizer.build(variables)
    optimizer.apply_gradients([(tf.zeros([1]), variable) for variable in variables])
    np.testing.assert_allclose([float(v[0]) for v in variables], [0.95, 1.0, 1.0, 1.0])


def test_moving_averages_by_hand():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.build([None, 1])
    section = config.Optimizer(name="adagrad", learning_rate=0.1, ema_momentum=0.75)
    optimizer = optimization.build_optimizer(section, 0.1)
    optimizer.build(model.trainable_variables)
    [weight], average = model.trainable_variables, 1.0
    for _ in range(3):
        optimizer.apply_gradients([(tf.ones([1, 1]), weight)])
        average = 0.75 * average + 0.25 * float(weight)
    latest = float(weight)
    with optimization.averaged(model, optimizer):
        assert float(weight) == pytest.approx(average, rel=1e-6)
    assert float(weight) == latest != pytest.approx(average, rel=1e-3)


def test_without_moving_averages_the_model_stays_as_it_is():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.build([None, 1])
    before = model.get_weights()
    with optimization.averaged(model, optimization.build_optimizer(config.Optimizer(), 0.1)):
        np.testing.assert_array_equal(model.get_weights()[0], before[0])


def test_half_precision_scales_the_loss():
    optimizer = optimization.build_optimizer(config.Optimizer(), 0.1, "mixed_float16")
    assert float(optimizer.get_scaled_loss(tf.constant(1.0))) == 2.0**15
    assert not hasattr(optimization.build_optimizer(config.Optimizer(), 0.1), "get_scaled_loss")

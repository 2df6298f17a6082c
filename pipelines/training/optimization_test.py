import numpy as np
import pytest
import tensorflow as tf

from rank4class import losses, models
from rank4class.models import interactions
from rank4class.pipelines import config
from rank4class.pipelines.task_data import task_data
from rank4class.pipelines.training import optimization
from rank4class.registry import OPTIMIZERS

WITH_RATES = [name for name in OPTIMIZERS if "schedule" in OPTIMIZERS.options(name)]


def test_schedules_by_hand():
    def rates(**fields):
        section = config.Optimizer(learning_rate=0.1, **fields)
        schedule = optimization.build_schedule(section, total_steps=100)
        return [float(schedule(step)) for step in (0, 10, 20, 60, 100)]

    np.testing.assert_allclose(rates(), [0.1] * 5)
    np.testing.assert_allclose(rates(decay="linear"), [0.1, 0.09, 0.08, 0.04, 0.0], atol=1e-7)
    cosine = [0.05 * (1 + np.cos(np.pi * step / 100)) for step in (0, 10, 20, 60, 100)]
    np.testing.assert_allclose(rates(decay="cosine"), cosine, atol=1e-7)
    warm = [0.0, 0.5 * 0.08, 0.08, 0.04, 0.0]
    np.testing.assert_allclose(rates(decay="linear", warmup_fraction=0.2), warm, atol=1e-7)


def test_a_long_warm_up_has_no_rate_of_zero():
    section = config.Optimizer(decay="cosine", warmup_fraction=0.95)
    schedule = optimization.build_schedule(section, total_steps=10)
    assert min(float(schedule(step)) for step in range(1, 10)) > 0.0
    assert float(optimization.build_schedule(section, total_steps=1)(0)) > 0.0


def test_temperature_changes_exponentially():
    section = config.Loss(temperature=4.0, final_temperature=0.25)
    temperature = optimization.build_temperature(section, total_steps=5)
    np.testing.assert_allclose([float(temperature(step)) for step in range(5)], [4.0, 2.0, 1.0, 0.5, 0.25])
    assert float(optimization.build_temperature(section, total_steps=1)(0)) == 4.0
    gumbel = config.Loss(name="gumbel_approx_ndcg", final_temperature=0.4)
    assert float(optimization.build_temperature(gumbel, total_steps=2)(0)) == pytest.approx(0.1)
    assert optimization.build_temperature(config.Loss(temperature=4.0), total_steps=5) is None


@pytest.mark.nightly
def test_losses_use_the_temperature_of_the_step():
    section = config.Loss(temperature=4.0, final_temperature=1.0)
    loss = optimization.build_loss(section, temperature=optimization.build_temperature(section, 3))
    scores = tf.constant([[0.0, 1.0, 3.0], [2.0, 0.0, -1.0]])
    weights = tf.constant([1.0, 0.5])
    outputs = task_data.ModelOutputs(scores)
    compiled = tf.function(loss, jit_compile=True)
    labels = tf.constant([1, 0])
    for step, temperature in enumerate((4.0, 2.0, 1.0)):
        expected = weights * losses.softmax(scores, [1, 0], temperature=temperature)
        actual = compiled(tf.constant(step, tf.int64), labels, outputs, weights)
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_losses_ignore_masked_classes():
    loss = optimization.build_loss(config.Loss())
    scores = tf.constant([[0.0, 1.0, 9.0]])
    where = tf.constant([[True, True, False]])
    result = loss(0, tf.constant([1]), task_data.ModelOutputs(scores, where), tf.constant([2.0]))
    np.testing.assert_allclose(result, 2.0 * np.log1p(np.exp([-1.0])), rtol=1e-6)


@pytest.mark.parametrize("name", WITH_RATES)
def test_optimizers_follow_their_schedule(name):
    section = config.Optimizer(name=name, learning_rate=0.1, decay="linear")
    optimizer = optimization.build_optimizer(section, optimization.build_schedule(section, 2))
    variable = tf.Variable([1.0])
    optimizer.build([variable])
    moved = []
    for _ in range(3):
        before = variable.numpy()[0]
        optimizer.apply_gradients([(tf.ones([1]), variable)])
        moved.append(before - variable.numpy()[0])
    assert moved[0] > moved[1] > 0.0
    assert moved[2] == 0.0


def test_weight_decay_excludes_biases_and_norms():
    section = config.Optimizer(name="adamw", learning_rate=0.1, weight_decay=0.5)
    optimizer = optimization.build_optimizer(section, optimization.build_schedule(section, 10))
    variables = [
        tf.Variable([1.0], name=name) for name in ("kernel", "bias", "layer_norm/gamma", "layer_norm/beta")
    ]
    optimizer.build(variables)
    optimizer.apply_gradients([(tf.zeros([1]), variable) for variable in variables])
    np.testing.assert_allclose([float(v[0]) for v in variables], [1.0 - 0.1 * 0.5, 1.0, 1.0, 1.0])


def after_steps(optimizer, values, gradients):
    """Returns the values of variables, by name, after a step for each of their gradients."""
    variables = {name: tf.Variable(value, dtype=tf.float32, name=name) for name, value in values.items()}
    for step in gradients:
        optimizer.apply_gradients([(tf.constant(step[n], tf.float32), v) for n, v in variables.items()])
    return {name: variable.numpy() for name, variable in variables.items()}


@pytest.mark.parametrize(("name", "weight_decay"), [("adam", None), ("adamw", 0.1)])
def test_adam_equals_that_of_keras(rng, name, weight_decay):
    values = {name: rng.normal(size=[5, 4]) for name in ("kernel", "bias")}
    gradients = [{name: rng.normal(size=[5, 4]) for name in values} for _ in range(4)]
    schedule = tf.keras.optimizers.schedules.PolynomialDecay(0.1, 5, 0.0)
    options = {} if weight_decay is None else {"weight_decay": weight_decay}
    ours = optimization.build_optimizer(config.Optimizer(name, **options), schedule)
    theirs = tf.keras.optimizers.Adam(schedule, weight_decay=weight_decay)
    theirs.exclude_from_weight_decay(var_names=["bias"])
    expected = after_steps(theirs, values, gradients)
    for name, value in after_steps(ours, values, gradients).items():
        # The kernel computes 1 - beta_2 in float32, 1.3e-5 too small for 0.999; four steps sum up to 0.2.
        np.testing.assert_allclose(value, expected[name], rtol=1e-6, atol=0.2 * 1.3e-5)


@pytest.mark.parametrize("name", WITH_RATES)
def test_a_factor_of_a_variable_multiplies_its_rate_and_decay(name, rng):
    options = {"weight_decay": 0.1} if name == "adamw" else {}
    values = rng.normal(size=[3])
    gradients = rng.normal(size=[2, 3]).astype(np.float32)
    ends = {}
    for rate, factor in ((0.1, 1.0), (0.025, 1.0), (0.1, 0.25)):
        parts = [tf.Variable(values, dtype=tf.float32) for _ in range(2)]
        schedule = tf.keras.optimizers.schedules.PolynomialDecay(rate, 5, 0.0)
        optimizer = optimization.build_optimizer(config.Optimizer(name, **options), schedule)
        optimizer.build(parts)
        optimizer.set_factors({optimizer._var_key(parts[1]): factor})
        step = tf.function(lambda g, o=optimizer, v=parts: o.apply_gradients([(g, each) for each in v]))
        for gradient in gradients:
            step(tf.constant(gradient))
        ends[rate, factor] = [each.numpy() for each in parts]
    np.testing.assert_array_equal(ends[0.1, 0.25][0], ends[0.1, 1.0][0])
    np.testing.assert_allclose(ends[0.1, 0.25][1], ends[0.025, 1.0][1], rtol=1e-6)


def test_rates_of_parts_and_of_the_layers_of_an_encoder():
    sizes = {"vocab_size": 9, "hidden_size": 4, "num_layers": 2, "num_heads": 1, "inner_size": 4}
    encoder = models.encoders.Bert(**sizes, max_positions=4)
    tokens = tf.ones([1, 2], tf.int32)
    model = models.RankModel(
        encoder, models.get("class_encoder", "embedding", num_classes=3, width=4), interactions.Dot(), 3
    )
    model({name: tokens for name in encoder.FEATURES})
    part = config.Optimizer(layer_decay=0.5, encoder_multiplier=3.0, interaction_multiplier=10.0)
    factors = optimization.rate_factors(part, model)
    named = encoder.named_variables()
    depths = {"word_embeddings": 3, "layer_0/": 2, "layer_1/": 1, "pooler": 0}
    for name, variable in named.items():
        (depth,) = [power for key, power in depths.items() if key in name] or [3]
        assert factors[variable.ref()] == 3.0 * 0.5**depth, name
    assert factors[model.interaction.bias.ref()] == 10.0
    assert model.class_encoder.table.ref() not in factors
    assert optimization.rate_factors(config.Optimizer(), model) == {}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder_multiplier": 2.0}, r"optimizer\.encoder_multiplier=2\.0: no weights of the encoder"),
        ({"layer_decay": 0.5}, r"optimizer\.layer_decay=0\.5: for encoders of texts only\. Leave it out\."),
    ],
)
def test_rates_of_what_the_model_does_not_train(fields, message):
    model = tf.keras.Sequential()
    model.encoder = tf.keras.layers.Identity()
    for other in (model, models.ItemModel()):
        with pytest.raises(ValueError, match=message):
            optimization.build_optimizer(config.Optimizer(**fields), 0.1, model=other)


def test_lazy_adam_updates_the_rows_of_a_batch(rng):
    table = tf.Variable(rng.normal(size=[6, 3]), dtype=tf.float32)
    before = table.numpy()
    optimizer = optimization.build_optimizer(config.Optimizer("lazy_adam"), 0.1)
    optimizer.build([table])
    batches = [([4, 1], rng.normal(size=[2, 3])), ([1, 5], rng.normal(size=[2, 3]))]
    expected = before.astype(np.float64)
    m = np.zeros([6, 3])
    v = np.zeros([6, 3])
    for t, (rows, values) in enumerate(batches, 1):
        gradient = tf.IndexedSlices(tf.constant(values, tf.float32), tf.constant(rows), [6, 3])
        optimizer.apply_gradients([(gradient, table)])
        m[rows] = 0.9 * m[rows] + 0.1 * values
        v[rows] = 0.999 * v[rows] + 0.001 * values**2
        rate = 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        expected[rows] -= rate * m[rows] / (np.sqrt(v[rows]) + 1e-7)
    np.testing.assert_allclose(table, expected, rtol=1e-5)
    np.testing.assert_array_equal(table.numpy()[[0, 2, 3]], before[[0, 2, 3]])


@pytest.mark.parametrize("name", ["adagrad", "sgd"])
def test_moving_averages_by_hand(name):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.build([None, 1])
    section = config.Optimizer(name=name, learning_rate=0.1, ema_momentum=0.75)
    optimizer = optimization.build_optimizer(section, 0.1)
    optimizer.build(model.trainable_variables)
    [weight], average = model.trainable_variables, 1.0
    for _ in range(3):
        optimizer.apply_gradients([(tf.ones([1, 1]), weight)])
        average = 0.75 * average + 0.25 * weight.numpy().item()
    latest = weight.numpy().item()
    with optimization.averaged(model, optimizer):
        assert weight.numpy().item() == pytest.approx(average, rel=1e-6)
    assert weight.numpy().item() == latest != pytest.approx(average, rel=1e-3)

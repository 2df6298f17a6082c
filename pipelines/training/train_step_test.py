"""Training steps written out, and equal steps on several replicas, accumulated and compiled."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class import data, losses, models
from rank4class.pipelines import config, distribution
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.evaluation import model_building
from rank4class.pipelines.task_data import inputs, task_data
from rank4class.pipelines.training import optimization, rank_training
from rank4class.pipelines.training.train_step import build_steps

MIRRORED = "mirrored"  # over the two logical CPUs of conftest.py


def small(**changes):
    base = {"encoder.dropout": 0.0, "batch_size": 8, "optimizer.decay": "none"}
    if "encoder.name" not in changes:
        base["encoder.hidden"] = (16,)
    return config.override(digits_mlp.get_config(), {**base, "optimizer.warmup_fraction": 0.0, **changes})


def build_task(experiment, make_encoder=None, users=None):
    """Returns a task of random images, or of users."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=[24, 8, 8, 1]).astype(np.float32)
    features = {"image": images} if users is None else {"id": users}
    size = len(images if users is None else users)
    split = data.Split(features, rng.integers(10, size=size).astype(np.int32))
    make = make_encoder or (lambda: models.get("encoder", "mlp", **experiment.encoder.options()))
    splits = dict.fromkeys(("train", "validation", "test"), split)
    weights = np.linspace(0.5, 1.5, 10, dtype=np.float32)
    return task_data.TaskData(
        tuple("abcdefghij"), splits, None, make, inputs.Inputs({}), class_weights=weights
    )


def build(experiment, strategy="default", loaded=None, make_optimizer=None):
    """Returns model, optimizer and a function of a number of steps to their results."""
    loaded = loaded or build_task(experiment)
    strategy = distribution.get(strategy)
    tf.keras.utils.set_random_seed(0)
    model = model_building.build_model(
        experiment, lambda: model_building.new_model(experiment, loaded), 10, strategy
    )
    with strategy.scope():
        optimizer = make_optimizer() if make_optimizer else build_optimizer(experiment)
        optimizer.build(model.trainable_variables)
    steps = build_steps(
        strategy,
        model,
        loaded.scorer(model, "train"),
        optimization.build_loss(experiment.loss, seed=experiment.seed),
        optimizer,
        experiment,
    )
    batches = strategy.distribute_datasets_from_function(
        lambda context: loaded.training_batches(experiment.batch_size, experiment.seed, context=context)
    )
    iterator = iter(batches)
    return model, optimizer, lambda count, **kwargs: steps(iterator, 0, count, **kwargs)


def build_optimizer(experiment):
    section = experiment.optimizer
    return optimization.build_optimizer(section, section.learning_rate, experiment.precision)


def sgd():
    """Returns SGD; Adam makes a full step of a gradient that is 0 up to rounding."""
    return tf.keras.optimizers.SGD(0.5)


def run(experiment, strategy="default", count=3, make_optimizer=sgd, **kwargs):
    """Returns the losses, gradient norms and weights of a few steps."""
    model, _, take = build(experiment, strategy, make_optimizer=make_optimizer, **kwargs)
    result = take(count)
    return result.losses, result.gradient_norms, [v.numpy() for v in model.trainable_variables]


def assert_alike(ours, theirs, rtol=2e-5):
    for a, b in zip(ours, theirs, strict=True):
        tf.nest.map_structure(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-6), a, b)


@pytest.mark.parametrize("clip_norm", [None, 0.01])
def test_step_written_out(clip_norm):
    experiment = small(**{"optimizer.clip_norm": clip_norm})
    loaded = build_task(experiment)
    model, optimizer, take = build(experiment, loaded=loaded)
    features, labels, weights = next(iter(loaded.training_batches(experiment.batch_size, experiment.seed)))
    assert len(set(weights.numpy())) > 1
    with tf.GradientTape() as tape:
        each = losses.get("softmax", reduction="none")(labels, model(features))
        value = tf.reduce_sum(weights * each) / 8
    gradients = tape.gradient(value, model.trainable_variables)
    norm = np.sqrt(sum(np.sum(np.square(tf.convert_to_tensor(g))) for g in gradients))
    scale = 1.0 if clip_norm is None else clip_norm / norm
    # Adam's first step is the learning rate times g / (|g| + epsilon).
    epsilon = 1e-7 / np.sqrt(1 - 0.999)
    expected = [
        v.numpy() - experiment.optimizer.learning_rate * scale * g / (np.abs(scale * g) + epsilon)
        for g, v in zip(map(tf.convert_to_tensor, gradients), model.trainable_variables, strict=True)
    ]
    result = take(1)
    assert result.losses == pytest.approx([float(value)], rel=1e-6)
    assert result.gradient_norms == pytest.approx([norm], rel=1e-5)
    assert not result.stopping
    assert int(optimizer.iterations) == 1
    for variable, weight in zip(model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(variable, weight, atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("changes", "loss"),
    [
        ({"jit_compile": True, "interaction.name": "lc_mlp", "interaction.dropout": 0.0}, "mse"),
        ({"accumulation_steps": 2, "optimizer.clip_norm": 0.05}, "approx_ndcg"),
    ],
)
def test_two_replicas_equal_one_device(changes, loss):
    """`resume_test.py` compares steps without these options."""
    plain = {name: value for name, value in changes.items() if name.startswith(("optimizer", "interaction"))}
    changes = {**changes, "loss.name": loss}
    assert_alike(run(small(**changes), MIRRORED), run(small(**{**plain, "loss.name": loss})))


@pytest.mark.nightly
@pytest.mark.parametrize(("strategy", "clip_norm"), [("default", 0.05), (MIRRORED, None)])
def test_lazy_adam_is_adam_on_the_rows_of_the_batches(strategy, clip_norm):
    changes = {"encoder.name": "embedding", "encoder.units": 4, "optimizer.clip_norm": clip_norm}
    users = np.random.default_rng(0).integers(8, size=40).astype(np.int32)  # two of ten have no example
    results = []
    tables = []
    for name in ("adam", "lazy_adam"):
        experiment = small(**{**changes, "optimizer.name": name})
        loaded = build_task(
            experiment, lambda: models.get("encoder", "embedding", num_ids=10, units=4), users
        )
        model, _, take = build(experiment, strategy, loaded)
        before = model.encoder.get_weights()[0]
        results.append(take(1))
        tables.append(model.encoder.get_weights()[0])
    np.testing.assert_allclose(results[1].losses, results[0].losses, rtol=1e-6)
    np.testing.assert_allclose(results[1].gradient_norms, results[0].gradient_norms, rtol=1e-6)
    np.testing.assert_allclose(tables[1], tables[0], rtol=1e-5)  # the first step has no older moments
    np.testing.assert_array_equal(tables[1][8:], before[8:])
    assert (tables[1][:8] != before[:8]).any()
    take(3)
    assert len(np.unique(model.encoder.get_weights()[0][:8] - tables[1][:8])) > 1


@pytest.mark.nightly
def test_half_precision():
    reference = run(small(), make_optimizer=lambda: build_optimizer(small()))
    for precision, strategy in (("mixed_bfloat16", "default"), ("mixed_float16", MIRRORED)):
        experiment = small(precision=precision)
        result = run(experiment, strategy, make_optimizer=lambda e=experiment: build_optimizer(e))
        assert_alike(result[:1], reference[:1], rtol=0.02)
        assert all(weight.dtype == np.float32 for weight in result[2])


def test_float16_overflows_are_skipped():
    def scaled():
        return tf.keras.mixed_precision.LossScaleOptimizer(sgd(), initial_scale=2.0**120)

    model, optimizer, take = build(small(precision="mixed_float16"), make_optimizer=scaled)
    before = model.get_weights()
    result = take(1)
    assert np.isfinite(result.losses).all()
    assert not np.isfinite(result.gradient_norms).any()
    np.testing.assert_equal(model.get_weights(), before)
    assert float(optimizer.loss_scale) == 2.0**119


@pytest.fixture(scope="module")
def plain():
    """Returns the results of three steps without options."""
    return run(small())


@pytest.mark.nightly
def test_compiled_and_accumulated_steps_are_equal(plain):
    assert_alike(run(small(jit_compile=True, accumulation_steps=4)), plain)


def test_accumulation_of_batches_without_a_static_size(monkeypatch, plain):
    """Texts that are grouped by length are such batches on several devices."""
    static_batches = task_data.TaskData.training_batches

    def batches(*arguments, **kwargs):
        return static_batches(*arguments, **kwargs).unbatch().batch(8)

    monkeypatch.setattr(task_data.TaskData, "training_batches", batches)
    assert_alike(run(small(accumulation_steps=2)), plain)


def test_steps_are_the_same_without_the_clock_of_tensorflow(monkeypatch, plain):
    def refuse():
        raise tf.errors.FailedPreconditionError(None, None, "Timestamp: determinism is enabled")

    monkeypatch.setattr(tf, "timestamp", refuse)
    model, _, take = build(small(), make_optimizer=sgd)
    results = take(3)
    assert 0.0 < results.waited < 100.0
    np.testing.assert_array_equal(results.losses, plain[0])
    np.testing.assert_equal([variable.numpy() for variable in model.trainable_variables], plain[2])


@pytest.mark.nightly
def test_steps_of_a_text_encoder_are_equal_compiled_and_on_two_replicas(tmp_path, tiny_goemotions, tiny_bert):
    changes = {"encoder.name": "bert", "encoder.path": tiny_bert, "class_encoder.name": "text"}
    changes |= {"data.name": "goemotions", "data.path": str(tiny_goemotions)}
    experiment = small(**changes)
    loaded = rank_training.load_data(experiment, str(tmp_path))
    compiled = config.override(experiment, {"jit_compile": True})
    plain = run(experiment, loaded=loaded)
    assert_alike(run(compiled, loaded=loaded), plain, rtol=1e-4)
    assert_alike(run(experiment, MIRRORED, loaded=loaded), plain, rtol=1e-4)


@pytest.mark.nightly
def test_replicas_add_the_weight_decay_of_an_encoder_once():
    def make(penalty):
        encoder = models.get("encoder", "mlp", hidden=(16,))
        encoder.add_loss(lambda: tf.constant(penalty))
        return encoder

    values = []
    for strategy, penalty, parts in (("default", 0.0, 1), ("default", 7.0, 2), (MIRRORED, 7.0, 1)):
        experiment = small(accumulation_steps=parts)
        loaded = build_task(experiment, lambda penalty=penalty: make(penalty))
        values.append(run(experiment, strategy, count=1, loaded=loaded)[0][0])
    np.testing.assert_allclose(values[1:], values[0] + 7.0, rtol=1e-5)


@pytest.mark.nightly
def test_batch_norm_over_all_replicas():
    experiment = small()
    loaded = build_task(experiment, lambda: models.get("encoder", "small_cnn", filters=(4,), units=16))
    one_device, two_devices = (build(experiment, strategy, loaded) for strategy in ("default", MIRRORED))
    for a, b in zip(one_device[2](3).losses, two_devices[2](3).losses, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    for a, b in zip(one_device[0].get_weights(), two_devices[0].get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    for name, value, plain in (("jit_compile", True, False), ("accumulation_steps", 2, 1)):
        message = f"{name}={value}: not supported with batch norm over 2 replicas. Set {name} to {plain}"
        with pytest.raises(ValueError, match=message):
            build(small(**{name: value}), MIRRORED, loaded)

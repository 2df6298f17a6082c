"""A GPU against the CPU: values and gradients of all parts, and training, prediction and export.

The comparisons are without TF32, TensorFlow's default for products of float32 on a GPU, which keeps 10 bits.
`make gpu_test` runs them; without a GPU they are skipped.
"""

import functools
import json
import os
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import rank4class
from rank4class import losses, models
from rank4class.losses.ops import n_choose_k, projections, set_sizes
from rank4class.models import sorters
from rank4class.pipelines import config, tpu_test
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.training import rank_training

DEVICE = "GPU:0"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.nightly,
    pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="TensorFlow finds no GPU"),
]
make = tpu_test.make
B = 8
N = 20
RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=[B, N]).astype(np.float32)
IDS = RNG.integers(N, size=[B]).astype(np.int32)
DENSE = (RNG.random([B, N]) < 0.2).astype(np.float32)
DENSE[:, 3] = 1.0
WHERE = RNG.random([B, N]) < 0.8
WHERE[:, 3] = True
METRICS = ("top1_error", "top5_accuracy", "ndcg@5", "ndcg", "mrr", "mean_rank", "precision@5", "map@5")
METRICS += ("map", "recall@5", "grade1_precision@5")


@pytest.fixture(autouse=True)
def without_tf32():
    tf.config.experimental.enable_tensor_float_32_execution(False)
    yield
    tf.config.experimental.enable_tensor_float_32_execution(True)


def check(make_function, *arrays, rtol=1e-4, atol=1e-5, forms=("eager", "graph", "XLA")):
    """Compares the results of a function on the GPU with the CPU's; `make_function` builds it on each."""
    with tf.device("CPU:0"):
        expected = [x.numpy() for x in tf.nest.flatten(make_function()(*map(tf.constant, arrays)))]
    with tf.device(DEVICE):
        function = make_function()
        inputs = [tf.constant(x) for x in arrays]
        for form in forms:
            run = function if form == "eager" else tf.function(function, jit_compile=form == "XLA")
            actual = tf.nest.flatten(run(*inputs))
            assert any("GPU" in x.device or DEVICE[:3] == "CPU" for x in actual), form
            for x, y in zip(actual, expected, strict=True):
                np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=form)


def with_gradient(function):
    """Returns the function whose results are a value of float inputs, and its gradient in the first."""

    def value_and_gradient(x, *others):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x, *others)
            flat = tf.reshape(tf.cast(value, tf.float32), [-1])
            target = tf.reduce_sum(flat * tf.cos(tf.range(tf.cast(tf.size(flat), tf.float32))))
        return value, tf.convert_to_tensor(tape.gradient(target, x, unconnected_gradients="zero"))

    return value_and_gradient


LABELS = [(IDS, None), (DENSE, None), (DENSE, WHERE)]


@pytest.mark.parametrize(("labels", "where"), LABELS, ids=["ids", "dense", "masked"])
@pytest.mark.parametrize("name", [*losses.names(), "gumbel_softmax"])
def test_losses(name, labels, where):
    """Noise too: it is a function of the seed and the scores' bits."""
    loss = losses.get(name)
    scores = np.stack([SCORES, SCORES / 2], axis=-1) if loss.heads else SCORES
    tolerance = {"rtol": 1e-3, "atol": 1e-4} if name in ("yeti_logistic", "coupled_rank_distil") else {}
    check(lambda: with_gradient(lambda x, y: loss.of_scores(x, y, where=where)), scores, labels, **tolerance)


@pytest.mark.parametrize("name", METRICS)
def test_metrics(name):
    metric = losses.get_metric(name)
    for labels in (IDS, DENSE):
        check(lambda: metric.of_scores, SCORES, labels, rtol=1e-6)


FUNCTIONS = {
    "euclidean": lambda x: projections.euclidean(x, k=3),
    "entropy": lambda x: projections.entropy(x, k=3),
    "sparsemax": projections.sparsemax,
    "sparsemax of some": lambda x: projections.sparsemax(x, where=WHERE),
    "log_z": lambda x: n_choose_k.log_z(x, 3),
    "log_z of some": lambda x: n_choose_k.log_z(x, 3, where=WHERE),
    "marginals": lambda x: n_choose_k.marginals(x, 3),
    "log_likelihood": lambda x: n_choose_k.log_likelihood(x, DENSE),
    "poisson_binomial": set_sizes.poisson_binomial,
    "log_likelihood of a count": lambda x: set_sizes.log_likelihood(x, DENSE, tf.zeros([N + 1])),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_projections_and_set_likelihoods(name):
    check(lambda: with_gradient(FUNCTIONS[name]), SCORES, atol=1e-4)


def copies(build, *inputs):
    """Returns a function that builds a layer on the current device, with the first one's weights."""
    weights = []

    def built():
        layer = build()
        layer(*inputs)
        if weights:
            layer.set_weights(weights)
        else:
            weights.extend(layer.get_weights())
        return layer

    return built


@pytest.mark.parametrize("name", models.INTERACTIONS)
def test_interactions(name):
    h = RNG.normal(size=[B, 16]).astype(np.float32)
    c = RNG.normal(size=[N, 16]).astype(np.float32)
    built = copies(functools.partial(models.get, "interaction", name), [h, c])

    def function():
        layer = built()
        return with_gradient(lambda h, c: layer([h, c]))

    check(function, h, c, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", sorters.SORTERS)
def test_sorters(name):
    built = copies(lambda: sorters.get(name, trained=None), SCORES)
    check(lambda: with_gradient(built()), SCORES, rtol=1e-3, atol=1e-4)


def small(**changes):
    return config.override(digits_mlp.get_config(), {"encoder.hidden": (32,), "steps": 40, **changes})


def trained(path, strategy=None, **changes):
    rank4class.train(small(**changes), path, strategy=strategy, progress=False)
    return rank4class.load(path)


JOBS = """
import json, sys
import numpy as np
import rank4class
from rank4class.pipelines import config
from rank4class.pipelines.training import rank_training
job = json.load(sys.stdin)
for name, experiment in job["train"].items():
    rank4class.train(config.from_json(experiment, "experiment"), f"{job['folder']}/{name}", progress=False)
for name in job["scores"]:
    run = rank4class.load(f"{job['folder']}/{name}")
    np.save(f"{job['folder']}/{name}.npy", run.scores(np.load(f"{job['folder']}/images.npy")))
for name, experiment in job["load"].items():
    loaded = rank_training.load_data(config.from_json(experiment, "experiment"), f"{job['folder']}/{name}")
    np.savez(f"{job['folder']}/{name}.npz", **loaded.splits["train"].features)
"""


def started(folder, environment, train=(), scores=(), load=()):
    """Starts a process that trains, scores and encodes."""
    experiments = {
        key: {name: config.to_json(experiment) for name, experiment in dict(value).items()}
        for key, value in (("train", train), ("load", load))
    }
    process = subprocess.Popen(
        [sys.executable, "-c", JOBS], stdin=subprocess.PIPE, env=os.environ | environment, text=True
    )
    with process.stdin:
        json.dump({"folder": str(folder), "scores": scores, **experiments}, process.stdin)
    return process


def on_cpu(*arguments, **jobs):
    """Does the jobs of `started` in a process without the GPU."""
    assert started(*arguments, {"CUDA_VISIBLE_DEVICES": ""}, **jobs).wait() == 0


@pytest.mark.parametrize("precision", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_training_learns(precision, jit_compile, tmp_path):
    run = trained(tmp_path / "run", precision=precision, jit_compile=jit_compile, steps=150)
    assert {DEVICE[:3] in v.device for v in run.model.trainable_variables} == {True}
    losses_of_steps = run.history["loss"].to_numpy()
    assert np.isfinite(losses_of_steps).all()
    assert losses_of_steps[-1] < 0.5 * losses_of_steps[0]
    assert run.results["test"]["top1_error"] < 30.0


def test_training_prediction_and_export_are_those_of_the_cpu(tmp_path):
    """40 steps without dropout. The rounding of products differs, and Adam divides by small moments."""
    images = np.random.default_rng(0).random([33, 8, 8, 1], np.float32)
    np.save(tmp_path / "images.npy", images)
    run = trained(tmp_path / "gpu")
    on_cpu(tmp_path, train={"cpu": small()}, scores=["gpu", "cpu"])
    cpu = rank4class.load(tmp_path / "cpu")
    np.testing.assert_allclose(run.history["loss"], cpu.history["loss"], rtol=1e-3)
    scores = run.scores(images)
    np.testing.assert_allclose(scores, np.load(tmp_path / "gpu.npy"), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(scores, np.load(tmp_path / "cpu.npy"), rtol=1e-2, atol=1e-2)
    run.export(tmp_path / "model")
    exported = tf.saved_model.load(str(tmp_path / "model"))
    for device in (DEVICE, "CPU:0"):
        with tf.device(device):
            outputs = exported.signatures["score"](image=tf.constant(images))
        np.testing.assert_allclose(outputs["scores"], scores, rtol=1e-4, atol=1e-4)


def test_frozen_features_are_those_of_the_cpu(make, tmp_path):
    experiment = make("goemotions_minilm_frozen", jit_compile=False)
    loaded = rank_training.load_data(experiment, str(tmp_path / "gpu"))
    on_cpu(tmp_path, load={"cpu": experiment})
    expected = np.load(tmp_path / "cpu.npz")
    for name, values in loaded.splits["train"].features.items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_class_texts_train(jit_compile, make, tmp_path):
    """Class texts are a weight of integers, which XLA's programs have to reach."""
    experiment = make("goemotions_minilm", steps=2, jit_compile=jit_compile, **{"class_encoder.name": "text"})
    results = rank4class.train(experiment, tmp_path / "run", progress=False).results
    assert results["steps"] == 2


def test_a_killed_run_has_the_same_bytes_with_deterministic_operations(tmp_path):
    experiment = small(steps=300, evaluations_per_epoch=2.0, **{"encoder.dropout": 0.2})
    deterministic = {"TF_DETERMINISTIC_OPS": "1"}
    assert started(tmp_path, deterministic, train={"whole": experiment}).wait() == 0
    process = started(tmp_path, deterministic, train={"killed": experiment})
    history = tmp_path / "killed" / "metrics.jsonl"
    while not history.exists() or len(history.read_text().splitlines()) < 3:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert started(tmp_path, deterministic, train={"killed": experiment}).wait() == 0
    whole, killed = (rank4class.load(tmp_path / name) for name in ("whole", "killed"))
    for x, y in zip(whole.model.get_weights(), killed.model.get_weights(), strict=True):
        np.testing.assert_array_equal(x, y)
    histories = [run.history for run in (whole, killed)]
    pd.testing.assert_frame_equal(*histories)

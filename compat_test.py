"""Keras 2 and 3 give equal scores and gradients; pipelines refuse Keras 3; missing packages are named.

The tests run in Keras 2. This file, run as a program, computes the same values with Keras 3, with the newest
TensorFlow if RANK4CLASS_NEWEST is set to its Python (`make newest`).
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from rank4class import compat, losses, models
from rank4class.models import class_encoders, encoders, encoders_test, precision, registry, sorters
from rank4class.registry import LOSSES, SORTERS

B = 3
N = 5
D = 4
RNG = np.random.default_rng(0)
VECTORS, QUERIES = (RNG.normal(size=[n, D]).astype(np.float32) for n in (N, B))
TOKENS = {"tokens": RNG.integers(0, 9, [N, 2]), "input_mask": np.ones([N, 2])}
IMAGES = {"image": RNG.normal(size=[B, 4, 4, 1]).astype(np.float32)}
OPTIONS = {
    "encoder embedding": {"num_ids": N, "units": D, "weight_decay": 0.1},
    "encoder items": {"hidden": (D,), "weight_decay": 0.1},
    "class_encoder embedding": {"num_classes": N, "width": D, "weight_decay": 0.1},
    "class_encoder text": {"features": TOKENS},
    "class_encoder frozen_text": {"shape": [N, D], "width": 3, "vectors": VECTORS},
    "interaction cosine": {"learned": True},
    "interaction lc_mlp": {"units": 6, "dropout": 0.1},
    "interaction concat_mlp": {"units": 6, "residual": True},
    "count_prior learned": {"most": 2, "hidden": (3,)},
    "count_prior fixed": {"probabilities": (0.25, 0.75)},
}
FEATURES = {
    "encoder embedding": {"id": np.array([4, 0, 4])},
    "encoder items": {"items": VECTORS[None]},
}
LEFT_OUT = [f"encoder {name}" for name in ("resnet50", "vgg16", "efficientnet_lite0")]  # they are large
NEED_MORE = ("spearman", "mean_average_precision", "click_em")  # other scores, or a sorter
SIMPLE_LOSSES = tuple(name for name in LOSSES if name not in NEED_MORE)
MODELS = ("half", "xla", "dense")


def all_cases():
    """Returns name -> function of no arguments that builds a layer, and the arguments of its calls."""
    kinds = {**registry.PARTS, "sorter": SORTERS}
    inputs = {"encoder": IMAGES, "class_encoder": np.arange(N), "interaction": [QUERIES, VECTORS]}
    inputs |= {"count_prior": QUERIES, "sorter": RNG.permutation(30).reshape([3, 10]).astype(np.float32)}
    result = {}
    for kind, entries in kinds.items():
        for name in entries:
            full = f"{kind} {name}"
            build = sorters.get if kind == "sorter" else entries.build
            options = OPTIONS.get(full, {})
            result[full] = (lambda b=build, n=name, o=options: b(n, **o)), FEATURES.get(full, inputs[kind])
    of_texts = ("bert", "electra", "mpnet", "xlm-roberta", "static", "words")
    for name in ("identity", "mlp", "small_cnn", *of_texts):
        result[f"encoder {name}"] = encoders_test.CASES[name]
    base = result["class_encoder frozen_text"][0]
    result["residual"] = (lambda: class_encoders.Residual(base(), N, 3)), np.arange(N)
    result["model"] = model, IMAGES
    return {name: case for name, case in result.items() if name not in LEFT_OUT}


def model(encoder=None):
    encoder = encoder or models.get("encoder", "mlp", hidden=(D,), dropout=0.1)
    class_encoder = models.get("class_encoder", "embedding", num_classes=N, width=D, weight_decay=0.01)
    interaction = models.get("interaction", "lc_mlp", units=6, dropout=0.1, residual=True)
    prior = models.get("count_prior", "learned", most=2)
    return models.RankModel(encoder, class_encoder, interaction, N, prior)


CASES = all_cases()


def values(names):
    """Returns scores, losses and gradients by name, of layers with weights drawn by NumPy and of losses."""
    result = {}
    for name in names:
        if name in SIMPLE_LOSSES:
            scores = tf.Variable(QUERIES)
            with tf.GradientTape() as tape:
                value = losses.get(name)([1, 0, 3], scores)
            result |= {f"{name}:value": value, f"{name}:gradient": tape.gradient(value, scores)}
            continue
        make, inputs = CASES[name]
        inputs = tf.nest.map_structure(tf.constant, inputs)
        layer = make()
        encode = (
            {"encode": lambda x: tf.one_hot(x["tokens"][:, 0], 9)} if name == "class_encoder text" else {}
        )
        layer(inputs, **encode)
        weights = layer.trainable_variables
        rng = np.random.default_rng(1)
        for weight in weights:
            weight.assign(rng.normal(size=weight.shape) / np.sqrt(np.prod(weight.shape[:-1])))
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(layer(inputs, **encode))
            penalty = sum(layer.losses)
            value = penalty + sum(tf.reduce_sum(tf.sin(tf.cast(x, tf.float32))) for x in outputs)
        if name.startswith("interaction"):
            with precision.scope("mixed_float16"):
                half = make()
                rounded = [tf.cast(x, tf.float16) for x in inputs]
                half(rounded)
            half.set_weights(layer.get_weights())
            outputs.append(half(rounded))
        gradients = tape.gradient(value, weights) if weights else []
        made = [*outputs, penalty, *(g for g in gradients if g is not None)]
        result |= {f"{name}:{i}": tf.convert_to_tensor(x) for i, x in enumerate(made)}
    return {key: np.asarray(value) for key, value in result.items()}


def inputs_of(name):
    return IMAGES["image"] if name == "dense" else IMAGES


def predictions(trained, name):
    return {f"{name} {key}": x for key, x in trained.predict(inputs_of(name), verbose=0).items()}


def train(folder):
    """Trains and saves models in half precision, with XLA and on an encoder of Keras; predicts with them."""
    result = {}
    dense = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(D)])
    for name in MODELS:
        tf.keras.utils.set_random_seed(0)
        x = inputs_of(name)
        y = dict.fromkeys(("scores", "log_counts"), np.array([1, 0, 3]))
        with precision.scope("mixed_float16" if name == "half" else None):
            trained = model(dense if name == "dense" else None)
        loss = {"scores": losses.Softmax(), "log_counts": losses.CountLikelihood()}
        trained.compile(tf.keras.optimizers.Adam(0.01), loss=loss, jit_compile=name == "xla")
        history = trained.fit(x, y, batch_size=2, epochs=20, verbose=0).history["loss"]
        assert trained.evaluate(x, y, verbose=0, return_dict=True)["loss"] < history[0]
        trained.save(f"{folder}/{name}.keras")
        result |= predictions(trained, name)
    return result


def load(folder):
    files = {name: tf.keras.models.load_model(f"{folder}/{name}.keras") for name in MODELS}
    return {key: x for name, loaded in files.items() for key, x in predictions(loaded, name).items()}


def in_a_process(keras_2, task, folder):
    """Returns the result of `task(folder)` in a new process with Keras 2 or Keras 3."""
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": str(int(keras_2))}
    python = sys.executable if keras_2 else os.environ.get("RANK4CLASS_NEWEST", sys.executable)
    subprocess.run([python, __file__, task, folder], env=environment, check=True)
    with np.load(f"{folder}/{task}.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def of_keras_3(tmp_path_factory):
    return in_a_process(False, "values", tmp_path_factory.mktemp("values"))


def assert_equal(actual, expected):
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(actual[key], value, rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", [*CASES, *SIMPLE_LOSSES])
def test_equal_values_and_gradients(name, of_keras_3):
    actual = {key: value for key, value in of_keras_3.items() if key.startswith(f"{name}:")}
    assert_equal(actual, values([name]))


@pytest.mark.nightly
@pytest.mark.parametrize("keras_2", [False, True])
def test_fit_save_and_load_in_a_new_process(keras_2, tmp_path):
    trained, loaded = (in_a_process(keras_2, task, tmp_path) for task in ("train", "load"))
    assert_equal(loaded, trained)


def test_the_resnet_of_the_model_garden_names_the_remedy(monkeypatch):
    monkeypatch.setattr(compat, "is_keras_3", lambda: True)
    with pytest.raises(ImportError, match="encoder 'resnet50' of variant 'model_garden' needs Keras 2"):
        encoders.ResNet50()


FIT_SAVE_AND_LOAD = """
import sys
import keras
import numpy as np
import rank4class
from rank4class import losses, models

assert not {"tensorflow_ranking", "official", "tf_keras", "safetensors"} & set(sys.modules)
rng = np.random.default_rng(0)
features, ids = rng.normal(size=(64, 8)).astype("float32"), rng.integers(0, 5, 64)
for labels, loss in (
    (ids, losses.Softmax()),
    (ids[:, None], losses.PairwiseLogistic()),
    (np.eye(5)[ids], losses.ApproxNDCG(temperature=0.5)),
):
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(5)])
    model.compile("adam", loss=loss, metrics=[losses.NDCG(3), losses.TopKError(1)])
    model.fit(features, labels, epochs=2, verbose=0)
    model.save(PATH)
    values = model.evaluate(features, labels, verbose=0)
    assert keras.models.load_model(PATH).evaluate(features, labels, verbose=0) == values
    expected = loss.of_scores(model.predict(features, verbose=0), ids).numpy().mean()
    np.testing.assert_allclose(values[0], expected, rtol=1e-5)
try:
    losses.Softmax()([1.5], [[0.0, 1.0, 2.0]])
except ValueError as error:
    assert str(error) == "labels[0]=1.5: not a class id. Give whole numbers.", error
try:
    rank4class.load("run")
except ImportError as error:
    assert str(error).startswith("tf.keras: rank4class.pipelines needs"), error
else:
    raise AssertionError("a run was loaded")
print("done", keras.__version__)
"""


def run(program):
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.nightly
def test_keras_3_trains_saves_and_loads(tmp_path):
    finished = run(f"PATH = {str(tmp_path / 'model.keras')!r}\n{FIT_SAVE_AND_LOAD}")
    assert finished.stdout.startswith("done 3."), finished.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(
    "remedy",
    ["from rank4class import pipelines", "import os; os.environ['TF_USE_LEGACY_KERAS'] = '1'"],
)
def test_runs_after_losses(remedy):
    program = """
import rank4class
from rank4class import losses
try:
    rank4class.load("run")
except FileNotFoundError:
    print("no such run")
"""
    finished = run(remedy + program)
    assert finished.stdout == "no such run\n", finished.stderr


def test_keras_3_is_refused(monkeypatch):
    monkeypatch.setattr(compat, "is_keras_3", lambda: True)
    message = r"tf\.keras: models needs Keras 2, but this program uses Keras 3\. Set TF_USE"
    with pytest.raises(ImportError, match=message):
        compat.require_keras_2("models")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(compat.metadata, "requires", lambda name: [
        "tensorflow>=2", "no-such-package>=1; extra == 'data'",
    ])  # fmt: skip
    compat.require_extra("models")
    with pytest.raises(ModuleNotFoundError, match=r"no-such-package: not installed. .* 'rank4class\[data\]'"):
        compat.require_extra("data")


if __name__ == "__main__":
    task, folder = sys.argv[1:]
    tasks = {"values": lambda _: values([*CASES, *SIMPLE_LOSSES]), "train": train, "load": load}
    np.savez(f"{folder}/{task}.npz", **tasks[task](folder))

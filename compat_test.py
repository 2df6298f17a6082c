"""Keras 3 takes the losses and metrics; models refuse it; missing packages are named."""

import os
import subprocess
import sys

import pytest

from rank4class import compat

FIT_SAVE_AND_LOAD = """
import sys
import keras
import numpy as np
import rank4class
from rank4class import losses

assert not {"tensorflow_ranking", "official", "tensorflow_datasets"} & set(sys.modules)
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
    from rank4class import models
except ImportError as error:
    assert "tf.keras: rank4class.models needs Keras 2" in str(error), error
else:
    raise AssertionError("models were imported")
try:
    rank4class.load("run")
except ImportError as error:
    assert str(error).startswith("tf.keras: rank4class.models needs"), error
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
    ["from rank4class import data, models", "import os; os.environ['TF_USE_LEGACY_KERAS'] = '1'"],
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
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    message = r"tf\.keras: models needs Keras 2, but .* Keras 3 already\. Set TF_USE"
    with pytest.raises(ImportError, match=message):
        compat.require_keras_2("models")
    assert os.environ["TF_USE_LEGACY_KERAS"] == "0"


def test_models_choose_keras_2(monkeypatch):
    monkeypatch.delenv("TF_USE_LEGACY_KERAS")
    compat.require_keras_2("rank4class.models")
    assert os.environ["TF_USE_LEGACY_KERAS"] == "1"


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(compat.metadata, "requires", lambda name: [
        "tensorflow>=2", "no-such-package>=1; extra == 'data'",
    ])  # fmt: skip
    compat.require_extra("models")
    with pytest.raises(ModuleNotFoundError, match=r"no-such-package: not installed. .* 'rank4class\[data\]'"):
        compat.require_extra("data")

"""Parts of a user, registered by a config file or a program, from training to predictions."""

import re
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

import rank4class
from rank4class import data, losses, models
from rank4class.pipelines import config
from rank4class.pipelines.configs import import_user_module
from rank4class.pipelines.sweep import parallel
from rank4class.pipelines.task_data import checks
from rank4class.pipelines.training import rank_training

LAYER = """
from __future__ import annotations

import tensorflow as tf

from rank4class import models
from rank4class.pipelines import config


@models.ENCODERS.register("my_layer")
class MyLayer(tf.keras.layers.Layer):
    def __init__(self, units: int = 8, scale: float | None = None, hook=None, name: str = "my", **kwargs):
        super().__init__(name=name, **kwargs)
        self.units, self.scale = units, scale
        self.dense = tf.keras.layers.Dense(units, activation="relu")

    def call(self, features):
        return self.dense(tf.keras.layers.Flatten()(features["image"]))

    def get_config(self):
        return {**super().get_config(), "units": self.units, "scale": self.scale}


def get_config():
    return config.Experiment(encoder=config.Encoder("my_layer", units=4), steps=12)
"""


pytestmark = pytest.mark.usefixtures("restored_registries")


def test_a_registered_class_has_a_config_of_its_signature():
    exec(LAYER, vars(types.ModuleType("mine")))
    part = config.Encoder("my_layer", units=3)
    assert part.options() == {"units": 3, "scale": None}
    assert part == config.Encoder("my_layer", units=3) != config.Encoder("my_layer")
    assert "my_layer" in config.Encoder.names()
    checks.check(config.override(config.Experiment(), {"encoder.name": "my_layer", "encoder.units": 3}))
    with pytest.raises(ValueError, match=r"encoder.unit: .* Did you mean 'units'\? It has: units, scale\."):
        config.Encoder("my_layer", unit=3)


def test_a_definition_that_runs_again_replaces_its_entry():
    mine = vars(types.ModuleType("mine"))
    exec(LAYER, mine)
    exec(LAYER.replace("units: int = 8", "units: int = 9"), mine)
    assert config.Encoder("my_layer").units == 9
    with pytest.raises(ValueError, match=r"encoder='my_layer': already registered. Choose another name"):
        exec(LAYER, vars(types.ModuleType("theirs")))


def test_an_argument_without_type_and_default():
    @models.INTERACTIONS.register("my_interaction")
    def my_interaction(units, scale: float = 1.0):
        return tf.keras.layers.Layer()

    with pytest.raises(ValueError, match=r"interaction='my_interaction': argument 'units' has no default"):
        config.Interaction("my_interaction")


def my_loss(scores, labels, *, where=None, weights=None, margin: float = 1.0):
    """The mean distance of all scores from a margin above that of the label."""
    true_scores = tf.gather(scores, labels, axis=-1, batch_dims=1)[:, None]
    return losses.base.weighted(tf.reduce_mean(tf.square(true_scores - scores - margin), axis=-1), weights)


@pytest.mark.nightly
@pytest.mark.usefixtures("names_of_a_new_process")
def test_loss_data_and_interaction_of_a_program(tmp_path, copied_before_changes, assert_same_run):
    @losses.register
    class MyLoss(losses.RankingLoss, function=my_loss):
        pass

    @data.DATASETS.register("my_data")
    def my_data(num_examples: int = 40) -> data.Dataset:
        x = np.random.default_rng(0).normal(size=[num_examples, 3]).astype(np.float32)
        split = data.Split({"embedding": x}, x.argmax(axis=1).astype(np.int32))
        return data.Dataset(("a", "b", "c"), dict.fromkeys(("train", "validation", "test"), split))

    @models.INTERACTIONS.register("my_interaction")
    @tf.keras.utils.register_keras_serializable(package="mine")
    class MyInteraction(tf.keras.layers.Layer):
        def call(self, inputs):
            return tf.matmul(inputs[0], inputs[1], transpose_b=True)

    assert tf.keras.utils.get_registered_name(MyInteraction) == "mine>MyInteraction"
    experiment = config.Experiment(
        data=config.Data("my_data", num_examples=60),
        encoder=config.Encoder("identity"),
        interaction=config.Interaction("my_interaction"),
        loss=config.Loss("my_loss", margin=2.0),
        metrics=("top1_error",),
        monitor="top1_error",
        optimizer=config.Optimizer(learning_rate=0.03),
        batch_size=10,
        epochs=20.0,
    )
    with copied_before_changes(tmp_path / "run", tmp_path) as copies:
        run = rank4class.train(experiment, tmp_path / "run", progress=False)
    [killed] = [copy for copy in copies if copy.name == str(len(copies) // 2)]
    assert (killed / "user_parts.json").exists()
    assert not (killed / "results.json").exists()
    rank4class.train(experiment, killed, progress=False)
    assert_same_run(tmp_path / "run", killed)
    assert run.evaluate()["top1_error"] < 20.0
    assert run.experiment == experiment
    assert list(run.predict(np.eye(3, dtype=np.float32), k=1)["class"]) == ["a", "b", "c"]


def test_a_run_whose_parts_are_not_registered(tmp_path):
    (tmp_path / "config.json").write_text('{"encoder": {"name": "my_layer", "units": 4}}')
    (tmp_path / "user_parts.json").write_text('{"encoder": {"name": "my_layer", "module": "my_models"}}')
    message = (
        "encoder='my_layer' is not registered. Import the module that registers it before you load the run; "
        "commands do with --import=my_models."
    )
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path}: {message}")):
        rank4class.load(tmp_path)
    exec(LAYER, vars(types.ModuleType("my_models")))
    with pytest.raises(OSError, match=r"classes\.json"):
        rank4class.load(tmp_path)


@pytest.mark.nightly
def test_a_config_file_with_an_encoder(tmp_path, command, monkeypatch):
    """The tutorial on Keras has a config file with a loss and an encoder."""
    path = tmp_path / "my_config.py"
    run = tmp_path / "run"
    path.write_text(LAYER)

    def forget():
        """Leaves the process as one that has not imported the file."""
        del models.ENCODERS._entries["my_layer"], sys.modules[str(path)]

    flags = [f"--config={path}", "--config.encoder.units=16", "--config.steps=2"]
    trained = command("train", *flags, f"--workdir={run}")
    assert trained.returncode == 0, trained.stderr
    forget()
    images = data.get("digits").splits["test"].features["image"][:3]
    np.save(tmp_path / "images.npy", images)
    predict = "predict", f"--workdir={run}", f"--input={tmp_path}/images.npy"
    refused = command(*predict)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].endswith(f"commands do with --import={path}.")
    predicted = command(*predict, f"--import={path}")
    assert predicted.returncode == 0, predicted.stderr
    loaded = rank4class.load(run)
    assert loaded.experiment.encoder.units == 16
    assert loaded.evaluate() == loaded.results["test"]
    best = list(loaded.predict(images, k=1)["class"])
    assert [line.split("\t")[1] for line in predicted.stdout.splitlines()[1:]] == best
    loaded.export(tmp_path / "model")
    answers = tf.saved_model.load(tmp_path / "model").signatures["classify"](image=images)
    assert answers["classes"][:, 0].numpy().astype(str).tolist() == best

    packed = config.to_json(loaded.experiment), config.user_parts(loaded.experiment)
    forget()  # as a process of a sweep
    monkeypatch.setattr(rank_training, "load_data", lambda *_: None)
    monkeypatch.setattr(rank_training, "train", lambda one, *_, **__: one)
    assert parallel._train("sweep", "unused", *packed, "unused", None, {}) == loaded.experiment
    parallel._loaded.clear()


def test_a_file_that_fails_is_run_again(tmp_path):
    path = tmp_path / "parts.py"
    path.write_text("1 / 0\n")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            import_user_module(str(path))
    path.write_text("")
    import_user_module(str(path))

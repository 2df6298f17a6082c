"""Runs that start from the weights of another run."""

import dataclasses
import logging
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from rank4class import models
from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.evaluation import trained_model
from rank4class.pipelines.storage.run_directory import RunDirectory, TrainingDirectory
from rank4class.pipelines.training import initialization, rank_training


def small(**changes):
    return config.override(digits_mlp.get_config(), {"epochs": 1.0, "encoder.hidden": (16,), **changes})


@pytest.fixture
def first(digits_run):
    return digits_run.workdir


@pytest.fixture(autouse=True)
def _log_level(caplog):
    caplog.set_level(logging.INFO, "absl")


def initial_weights(experiment, tmp_path, **changes):
    """Returns the weights of a model before its first step."""
    loaded = dataclasses.replace(rank_training.load_data(experiment, tmp_path), **changes)
    run_dir = TrainingDirectory(tmp_path / "new", experiment)
    strategy = tf.distribute.get_strategy()
    return rank_training.build_trainer(experiment, loaded, run_dir, strategy, False)._task.model.get_weights()


def test_weights_of_another_run(first, tmp_path, caplog):
    expected = trained_model.restore(first).model.get_weights()
    weights = initial_weights(small(init_from=first), tmp_path)
    np.testing.assert_equal(weights, expected)
    assert "4 of 4 weights are those of init_from" in caplog.text


def test_weights_of_other_classes_and_layers_are_new(first, tmp_path, caplog):
    expected = trained_model.restore(first).model.encoder.get_weights()
    names = tuple(f"digit {i}" for i in range(10))
    weights = initial_weights(small(init_from=first), tmp_path, class_names=names)
    np.testing.assert_equal(weights[: len(expected)], expected)  # the encoder's weights come first
    assert "2 of 4 weights are those of init_from" in caplog.text
    assert "not in init_from, newly initialized: class_encoder/" in caplog.text
    caplog.clear()
    initial_weights(small(init_from=first, **{"encoder.hidden": (16, 8)}), tmp_path / "deeper")
    assert "init_from, newly initialized: encoder/" in caplog.text
    with pytest.raises(ValueError, match="no weight of the run fits this model"):
        initial_weights(
            small(init_from=first, **{"encoder.hidden": (9,)}), tmp_path / "wider", class_names=names
        )
    with pytest.raises(ValueError, match="init_from=nowhere: nowhere: no such folder"):
        initial_weights(small(init_from="nowhere"), tmp_path / "other")


def small_model(value):
    class_encoder = models.get(
        "class_encoder", "frozen_text", shape=[2, 3], width=4, vectors=[[value] * 3] * 2
    )
    model = models.RankModel(tf.keras.layers.Dense(4), class_encoder, models.get("interaction", "dot"), 2)
    model(tf.zeros([1, 5]))
    return model


def test_a_trained_sorter_is_taken_over(caplog):
    new = small_model(1.0)
    source = small_model(1.0)
    without = small_model(1.0)
    for model, value in ((new, 0.5), (source, 2.0)):
        model.rank_sorter = tf.keras.layers.Dense(1, kernel_initializer=tf.keras.initializers.Constant(value))
        model.rank_sorter(tf.zeros([1, 3]))
    loaded = types.SimpleNamespace(class_names=("a", "b"))
    initialization.initialize(new, loaded, source, ("a", "b"))
    assert new.rank_sorter.kernel.numpy().tolist() == [[2.0]] * 3
    initialization.initialize(new, loaded, without, ("a", "b"))
    assert "not in init_from, newly initialized: rank_sorter/" in caplog.text
    initialization.initialize(without, loaded, source, ("a", "b"))


def test_fixed_vectors_of_classes_are_those_of_the_new_model():
    new = small_model(7.0)
    source = small_model(1.0)
    initialization.initialize(new, types.SimpleNamespace(class_names=("a", "b")), source, ("a", "b"))
    assert new.class_encoder.vectors.numpy().tolist() == [[7.0] * 3] * 2
    for weight, value in zip(new.trainable_weights, source.trainable_weights, strict=True):
        np.testing.assert_array_equal(weight, value)


@pytest.mark.nightly
def test_a_resumed_run_keeps_its_own_weights(first, tmp_path):
    path = str(tmp_path / "run")
    copy = str(tmp_path / "copy")
    shutil.copytree(first, copy)
    rank_training.train(small(init_from=copy), path, progress=False)
    shutil.rmtree(copy)  # a resumed run does not need it any more
    history = RunDirectory(path).history()
    assert history[0]["loss"] < RunDirectory(first).history()[1]["loss"]  # of its second epoch
    (tmp_path / "run" / "results.json").unlink()
    before = trained_model.restore(path).model.get_weights()
    rank_training.train(small(init_from=copy), path, progress=False)
    np.testing.assert_equal(trained_model.restore(path).model.get_weights(), before)

"""Starts of the head: assigned to new models, from training examples alone."""

import dataclasses
import functools
import types

import numpy as np
import pytest
import tensorflow as tf

from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.storage.cache import Cache
from rank4class.pipelines.storage.run_directory import TrainingDirectory
from rank4class.pipelines.training import heads, rank_training


def test_every_start_has_a_name():
    assert set(config.STARTS) == {"random", "zeros", *heads.STARTS}


def test_vectors_and_bias_are_assigned(monkeypatch):
    head = heads.Head(np.full([3, 2], 7.0), np.array([1.0, 2.0, 3.0]))
    monkeypatch.setitem(heads.STARTS, "means", lambda *_: head)
    table = tf.Variable(tf.zeros([3, 2]))
    bias = tf.Variable(tf.zeros([3]))
    model = types.SimpleNamespace(
        class_encoder=types.SimpleNamespace(table=table), interaction=types.SimpleNamespace(bias=bias)
    )
    for init, expected in (("zeros", 0.0), ("means", 7.0)):
        heads.start(model, config.ClassEncoder("embedding", init=init), None)
        np.testing.assert_array_equal(table, np.full([3, 2], expected))
    np.testing.assert_array_equal(bias, [1.0, 2.0, 3.0])
    del model.class_encoder.table
    message = (
        r"class_encoder\.init='means': class encoder 'embedding' has no variable `table`\. Choose 'random'"
    )
    with pytest.raises(ValueError, match=message):
        heads.start(model, config.ClassEncoder("embedding", init="means"), None)


@pytest.mark.nightly
def test_means_are_those_of_training_examples_when_there_is_no_checkpoint(tmp_path, monkeypatch, rng):
    x = rng.normal(size=[60, 4]).astype(np.float32)
    labels = np.arange(60, dtype=np.int32) % 3
    splits = {
        name: data.Split({"embedding": x[rows]}, labels[rows])
        for name, rows in (("train", np.s_[:30]), ("validation", np.s_[30:45]), ("test", np.s_[45:]))
    }
    experiment = config.Experiment(
        data=config.Data("memory", held_out=("b",)),
        encoder=config.Encoder("identity"),
        class_encoder=config.ClassEncoder("embedding", init="means"),
        metrics=("mrr",),
        monitor="mrr",
        steps=2,
    )
    loaded = rank_training.load_data(experiment, tmp_path, dataset=data.Dataset(("a", "b", "c"), splits))
    means = heads.means(heads.Sources(loaded, "identity", 8, Cache(tmp_path), None)).vectors
    for c in (0, 2):
        mean = x[:30][labels[:30] == c].astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(means[c], mean / np.linalg.norm(mean), rtol=1e-5)
    assert not means[1].any()
    starts = []
    monkeypatch.setitem(heads.STARTS, "means", lambda *_: starts.append(1) or heads.Head(means))

    run_dir = TrainingDirectory(tmp_path / "run", experiment)
    strategy = tf.distribute.get_strategy()
    build = functools.partial(rank_training.build_trainer, experiment, loaded, run_dir, strategy, False)
    trainer = build()
    np.testing.assert_allclose(trainer._task.model.class_encoder.table, means, rtol=1e-6)
    trainer.train()
    build()
    assert len(starts) == 1  # the second one has a checkpoint to resume from


@pytest.mark.nightly
def test_a_probe_starts_from_the_solved_head(tmp_path, rng):
    y = np.arange(90, dtype=np.int32) % 3
    x = (rng.normal(size=[90, 4]) + 2.0 * np.eye(4)[y]).astype(np.float32)
    splits = {
        name: data.Split({"embedding": x[rows]}, y[rows])
        for name, rows in (("train", np.s_[:45]), ("validation", np.s_[45:70]), ("test", np.s_[70:]))
    }
    dataset = data.Dataset(("a", "b", "c"), splits)
    fields = {"data": config.Data("memory"), "encoder": config.Encoder("identity"), "metrics": ("mrr",)}
    solved = config.Experiment(**fields, monitor="mrr", optimizer=config.Optimizer("lbfgs"))
    probe = config.ClassEncoder("embedding", init="probe")
    started = config.Experiment(**fields, monitor="mrr", class_encoder=probe, epochs=0.0)
    expected = rank_training.train(solved, tmp_path / "solved", dataset=dataset, progress=False)
    results = rank_training.train(started, tmp_path / "started", dataset=dataset, progress=False)
    assert results["validation"]["mrr"] == expected["validation"]["mrr"]
    assert results["test"]["mrr"] == expected["test"]["mrr"] > 60.0
    assert config.override(started, {"interaction.name": "cosine"}).class_encoder.init == "random"
    experiment = dataclasses.replace(started, interaction=config.Interaction("cosine"))
    with pytest.raises(ValueError, match="class_encoder.init='probe': solves interaction 'dot'. Choose it"):
        rank_training.train(experiment, tmp_path / "cosine", dataset=dataset, progress=False)


@pytest.mark.nightly
def test_fine_tuning_starts_at_the_model_of_the_frozen_encoder(tmp_path, tiny_goemotions, tiny_bert, caplog):
    experiment = config.Experiment(
        data=config.Data("goemotions", path=str(tiny_goemotions)),
        encoder=config.Encoder("bert", path=tiny_bert, pooling="normalized_mean"),
        class_encoder=config.ClassEncoder("embedding", init="probe"),
        optimizer=config.Optimizer("adamw", learning_rate=1e-4),
        epochs=0.0,
    )
    started = rank_training.train(experiment, tmp_path / "started", progress=False)
    solved = config.override(experiment, {"encoder.frozen": True})
    assert (solved.optimizer.name, solved.class_encoder.init) == ("lbfgs", "random")
    expected = rank_training.train(solved, tmp_path / "solved", progress=False)
    for split in ("validation", "test"):
        assert started[split]["ndcg@5"] == pytest.approx(expected[split]["ndcg@5"], abs=0.01)
    assert "a rate for fine-tuning" not in caplog.text
    with caplog.at_level("WARNING"):
        by_steps = config.override(experiment, {"encoder.frozen": True, "epochs": 1.0})
        rank_training.train(by_steps, tmp_path / "steps", progress=False)
    assert (
        "optimizer.learning_rate=0.0001: a rate for fine-tuning, at which the head of a frozen" in caplog.text
    )

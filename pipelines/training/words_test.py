"""Words beside a text encoder, and in place of one."""

import numpy as np
import pytest
import tensorflow as tf

import rank4class
from rank4class import data
from rank4class.pipelines import config
from rank4class.pipelines.evaluation.trained_model import restore
from rank4class.pipelines.task_data import loading, words
from rank4class.pipelines.training import rank_training

CLASSES = ("refund", "login", "fees")


def write_texts(path, count, rng):
    """Writes texts whose class a word tells that the tiny encoder does not know; returns them."""
    rows = [(f"the {CLASSES[i % 3]} {rng.integers(1000)} is here", CLASSES[i % 3]) for i in range(count)]
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return [text for text, _ in rows], [label for _, label in rows]


@pytest.fixture
def experiment(tmp_path, tiny_bert, rng):
    folder = tmp_path / "data"
    folder.mkdir()
    for name, count in (("train", 90), ("validation", 45), ("test", 30)):
        write_texts(folder / f"{name}.csv", count, rng)
    return config.Experiment(
        data=config.Data("text_file", path=str(folder), max_length=16),
        encoder=config.Encoder("bert", path=tiny_bert, pooling="normalized_mean"),
        optimizer=config.Optimizer("adamw", learning_rate=1e-3),
        metrics=("top1_error", "ndcg@2"),
        monitor="ndcg@2",
        words="auto",
        epochs=1.0,
    )


def check_answers(run, tmp_path, rng):
    """Asserts that evaluation, predictions and the exported model have the scores of the training's end."""
    texts, labels = write_texts(tmp_path / "new.csv", 12, rng)
    assert run.predict(texts, k=1)["class"].tolist() == labels
    assert run.evaluate(tmp_path / "new.csv")["top1_error"] == 0.0
    assert run.evaluate()["ndcg@2"] == run.results["test"]["ndcg@2"]
    run.export(tmp_path / "model", k=3)
    score = tf.saved_model.load(str(tmp_path / "model")).signatures["score"]
    np.testing.assert_allclose(
        score(text=tf.constant(texts))["scores"], run.scores(texts), rtol=1e-4, atol=1e-4
    )


@pytest.mark.nightly
@pytest.mark.parametrize("frozen", [True, False])
def test_words_are_added_to_an_encoder(experiment, tmp_path, rng, frozen):
    if frozen:
        experiment = config.override(experiment, {"encoder.frozen": True})
    without = rank4class.train(
        config.override(experiment, {"words": "none"}), tmp_path / "without", progress=False
    )
    assert without.results["test"]["top1_error"] > 10.0
    assert "words" not in without.results
    run = rank4class.train(experiment, tmp_path / "run", progress=False)
    assert run.results["test"]["top1_error"] == 0.0
    assert run.results["words"]["weight"] > 0.0
    check_answers(rank4class.load(tmp_path / "run"), tmp_path, rng)


@pytest.mark.nightly
def test_the_encoder_of_words(experiment, tmp_path, rng):
    experiment = config.override(experiment, {"encoder.name": "words", "words": "none"})
    assert experiment.optimizer.name == "lbfgs"
    run = rank4class.train(experiment, tmp_path / "run", progress=False)
    assert run.results["test"]["top1_error"] == 0.0
    check_answers(rank4class.load(tmp_path / "run"), tmp_path, rng)


@pytest.mark.nightly
def test_classes_without_examples_and_many_weights_leave_words_out(experiment, tmp_path, monkeypatch, caplog):
    unknown = config.override(experiment, {"data.held_out": ("fees",), "class_encoder.name": "frozen_text"})
    assert "words" not in loading.load_data(unknown, tmp_path).splits["train"].features
    monkeypatch.setattr(words, "MAX_WEIGHTS", 10)
    with caplog.at_level("INFO", logger="absl"):
        assert "words" not in loading.load_data(experiment, tmp_path).splits["train"].features
    assert "words='auto': 3 classes of" in caplog.text


@pytest.mark.nightly
@pytest.mark.parametrize("frozen", [True, False])
def test_folds_and_names_of_classes(experiment, tmp_path, tiny_bert, rng, frozen):
    names = ("great happy", "awful bad", "the table")  # the tiny encoder tells these from one another
    labels = np.arange(60, dtype=np.int32) % 4 % 3  # 30, 15 and 15 examples
    texts = [f"{names[label]} {rng.integers(1000)}" for label in labels]
    train = data.Split({"text": np.array(texts, object)}, labels)
    test = data.Split(
        {"text": np.array([f"{names[i]} x" for i in range(3)], object)}, np.arange(3, dtype=np.int32)
    )
    experiment.encoder.frozen = frozen
    if not frozen:
        experiment = config.override(experiment, {"encoder.name": "words"})
    experiment.optimizer = config.Optimizer("lbfgs")
    experiment = config.override(
        experiment, {"data.name": "memory", "data.name_examples": 20, "sets.name": "rank"}
    )
    of_names = data.Dataset(tuple(name.replace(" ", "_") for name in names), {"train": train, "test": test})
    results = rank_training.train(experiment, tmp_path / "names", dataset=of_names, progress=False)
    assert results["train_examples"] == (62 if frozen else 60)
    assert results["validation"]["examples"] == 60
    assert restore(str(tmp_path / "names")).sets.examples.sum() == 60
    assert results["validation"]["top1_error"] == results["test"]["top1_error"] == 0.0
    saying_nothing = data.Dataset(("0", "1", "A"), {"train": train, "test": test})
    results = rank_training.train(experiment, tmp_path / "nothing", dataset=saying_nothing, progress=False)
    assert results["train_examples"] == 60

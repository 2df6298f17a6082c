"""Studies of losses on ranks: the baseline by brute force, and each study from data to table."""

import dataclasses
import itertools
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from rank4class import losses
from rank4class.losses.ops import ranks
from rank4class.models import sorters
from rank4class.models.sorters import weights
from rank4class.pipelines import config
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import read_json
from rank4class.pipelines.sweep import grid_summary, grid_tables
from rank4class.pipelines.task_data import rank_functions
from rank4class.scripts.research.papers import results
from rank4class.scripts.research.sorters import accuracy, batch_losses, score_vectors, studies, study


@pytest.fixture(autouse=True)
def _one_rate(monkeypatch):
    monkeypatch.setattr(study, "LEARNING_RATES", (0.01,))


@pytest.fixture
def table(tmp_path):
    """Writes a table whose prices depend on sizes and kinds; returns its path."""
    rng = np.random.default_rng(0)
    size = rng.normal(size=300)
    kind = rng.choice(["a", "b"], 300)
    frame = pd.DataFrame({"size": size, "kind": kind, "price": size + 2.0 * (kind == "a")})
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


def hinge_by_brute_force(scores, labels):
    """Returns the maximum of the definition over all rankings."""
    relevant, others = (np.flatnonzero(labels == value) for value in (1, 0))
    pairs = len(relevant) * len(others)
    worst = -np.inf
    for ranking in itertools.permutations(range(len(scores))):
        place = np.argsort(ranking)
        hits = np.cumsum(labels[list(ranking)])
        precision = np.mean([hits[place[i]] / (place[i] + 1) for i in relevant])
        wrong = sum(scores[i] - scores[j] for i in relevant for j in others if place[i] > place[j])
        worst = max(worst, 1 - precision - 2 * wrong / pairs)
    return worst


def test_losses_without_ranks_by_brute_force_and_by_hand():
    rng = np.random.default_rng(0)
    for labels in ([1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1], [1, 1, 1, 0]):
        labels = np.array(labels, np.float32)
        scores = rng.normal(size=len(labels)).astype(np.float32)
        results = batch_losses.hinge_ap(tf.constant(scores), tf.constant(labels))
        assert float(results) == pytest.approx(hinge_by_brute_force(scores, labels), rel=1e-5)
    assert float(batch_losses.hinge_ap(tf.zeros([3]), tf.zeros([3]))) == 0.0
    # Rows: 0.1 is far below 0.9, 0.8 is above 0.5. Columns: 0.8 is near 0.9, 0.1 is far below 0.5.
    triplet = batch_losses.score_triplet(tf.constant([[0.9, 0.1], [0.8, 0.5]]))
    np.testing.assert_allclose(triplet, [0.0 + 0.1, 0.5 + 0.0], atol=1e-6)
    # Ranks in rows: pairs 1, 2, 1 against 2, 1, 2; in columns: 1, 1, 2 against 2, 2, 1.
    scores = tf.constant([[0.9, 0.1, 0.2], [0.3, 0.5, 0.8], [0.1, 0.0, 0.7]])
    np.testing.assert_allclose(
        batch_losses.recall_triplet(scores, ranks.mean_ranks), [0, 2 / 3, 2 / 3], rtol=1e-6
    )


@pytest.mark.parametrize(("name", "n"), [("lstm", 10), ("cnn", 28), ("equivariant", 100)])
def test_shipped_sorters_have_the_errors_in_their_files(name, n):
    scores, expected = score_vectors.held_out("test", n)
    error = np.abs(sorters.get(name, n=n)(scores) - expected).mean()
    metadata, _ = weights.load(sorters.get(name, n=n).shipped_file)
    lines = dict(line.split() for line in metadata["l1"].split(", "))
    assert error == pytest.approx(float(lines[f"l1@{n}"]), abs=1.1e-5)


@pytest.mark.parametrize("name", studies.STUDIES)
def test_studies_from_data_to_result(name, tmp_path):
    full = studies.STUDIES[name]

    def load_some(seed):
        return {part: tuple(x[:200] for x in arrays) for part, arrays in full.load(seed).items()}

    task = dataclasses.replace(full, epochs=2, load=load_some)
    lines = []
    result = study.run(task, ["handcrafted"], str(tmp_path), seeds=(0, 1), log=lines.append)
    assert list(result["test"]) == [*task.plain, *(f"{loss}@handcrafted" for loss in task.ranked)]
    assert len(lines) == 2 * len(result["test"])  # one for the rate, and one for the best rate
    assert read_json(str(tmp_path / "study.json")) == result
    for measures in result["test"].values():
        for values in measures.values():
            assert len(values) == 2
            assert np.isfinite(values).all()
    cells = results.study_cells(result)
    summary = grid_summary.summarize(cells, baseline={"loss": task.plain[0]}, metrics=results.METRICS)
    assert len(summary["comparisons"]) == (len(cells) - 1) * len(task.measures)


def test_errors_before_training():
    task = dataclasses.replace(studies.STUDIES["map"], load=None)
    with pytest.raises(ValueError, match=r"rank_fn='bubble': unknown\. There are: sigmoid,"):
        study.run(task, ["equivariant", "bubble"], "nowhere")
    with pytest.raises(ValueError, match="seed=-1: not an integer in 0"):
        study.run(task, ["equivariant"], "nowhere", seeds=(0, -1))


def test_search_learning_rate():
    for values, tried, best in (
        ([0, 1, 2, 5, 4, 3, 9], [2, 3, 4], 3),  # only neighbors of the best are tried
        ([0, 1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6], 6),  # the best is the last
        ([1, *[-np.inf] * 4, 5, 6], [0, 1, 2, 3, 4], 0),  # diverged: all lower ones are tried
        ([7], [0], 0),
    ):
        value = mock.Mock(side_effect=list(map(float, values)).__getitem__)
        assert study.search_learning_rate(value, range(len(values))) == best
        assert sorted({call.args[0] for call in value.call_args_list}) == tried


def test_finished_trainings_are_not_repeated(monkeypatch, tmp_path, table):
    task = dataclasses.replace(studies.regression(table, "price"), epochs=1)
    undisturbed = study.run(task, ["handcrafted"], str(tmp_path / "undisturbed"), seeds=(0, 1), log=[].append)
    trained = []
    train = study._train

    def kill_at_the_fourth(task, name, rank_fn, weight, parts, rate, seed):
        trained.append((name, seed))
        if len(trained) == 4:
            raise KeyboardInterrupt
        return train(task, name, rank_fn, weight, parts, rate, seed)

    monkeypatch.setattr(study, "_train", kill_at_the_fourth)
    folder = str(tmp_path / "killed")
    with pytest.raises(KeyboardInterrupt):
        study.run(task, ["handcrafted"], folder, seeds=(0, 1), log=[].append)
    result = study.run(task, ["handcrafted"], folder, seeds=(0, 1), log=[].append)
    assert result["test"] == undisturbed["test"]
    names = ["mse", "mse", "l1", "l1", "l1", "spearman", "spearman"]
    assert trained == list(zip(names, [0, 1, 0, 1, 1, 0, 1], strict=True))


def test_diverging_rates_are_not_selected(monkeypatch, tmp_path, table):
    monkeypatch.setattr(study, "LEARNING_RATES", (0.01, 1e30))
    task = dataclasses.replace(studies.regression(table, "price"), plain=("mse",), ranked=(), epochs=2)
    lines = []
    result = study.run(task, [], str(tmp_path), seeds=(0,), log=lines.append)
    assert "  mse, learning rate 1e+30: validation spearman -inf" in lines
    assert lines[-1].startswith("mse, learning rate 0.01: ")
    assert result["test"]["mse"]["spearman"][0] > 0.0
    monkeypatch.setattr(study, "LEARNING_RATES", (1e30,))
    result = study.run(task, [], str(tmp_path), seeds=(0,), log=lines.append)
    assert result["test"]["mse"]["spearman"] == [None]
    summary = grid_summary.summarize(results.study_cells(result), metrics=results.METRICS)
    assert "not finite" in grid_tables.text(summary)


def test_multi_label(tmp_path):
    experiment = config.Experiment(
        data=config.Data(name="embedded_digits", features="pixels", num_examples=300),
        encoder=config.Encoder(name="identity"),
        monitor="precision@1",
        metrics=("precision@1",),
    )
    task = studies.multi_label(experiment, str(tmp_path))
    _, labels = task.load(0)["train"]
    assert labels.shape == (300, 10)
    assert 1 <= labels.sum(axis=1).min() < labels.sum(axis=1).max() <= 4

    # The loss on ranks is added to the cross entropy with its weight.
    scores = tf.random.normal([100, 10], seed=0)
    some = tf.constant(labels[:100])
    plain = study._loss(task, "sigmoid_cross_entropy", None, 1.0, 0.0)(some, scores)
    both = study._loss(task, "map_ranks", "equivariant", 0.3, 0.0)(some, scores)
    ranked = losses.MeanAveragePrecision(rank_fn=rank_functions.get_rank_fn("equivariant", 100))(some, scores)
    assert float(both - plain) == pytest.approx(0.3 * float(ranked), rel=1e-4)


def test_regression_on_a_table(tmp_path, table):
    task = dataclasses.replace(studies.regression(table, "price"), ranked=())
    stored = study.run(task, [], tmp_path / "runs", seeds=(0, 1), log=[].append)
    assert min(stored["test"]["mse"]["spearman"]) > 90.0
    assert stored["seeds"] == [0, 1]
    assert stored["examples"] == {"train": 180, "validation": 60, "test": 60}
    assert sum(session["seconds"] for session in stored["sessions"]) > 0
    first = files.read_bytes(tmp_path / "runs" / "study.json")
    frame = pd.read_csv(table)
    frame.assign(price=-frame["price"]).to_csv(tmp_path / "other.csv", index=False)
    other = dataclasses.replace(studies.regression(tmp_path / "other.csv", "price"), ranked=(), epochs=1)
    with pytest.raises(ValueError, match=r"study\.json: the result of a study of other data or seeds"):
        study.run(other, [], tmp_path / "runs", seeds=(0, 1), log=[].append)
    with pytest.raises(ValueError, match=r"study\.json: the result of a study of other data or seeds"):
        accuracy.run(["exact"], str(tmp_path / "runs"))
    assert files.read_bytes(tmp_path / "runs" / "study.json") == first

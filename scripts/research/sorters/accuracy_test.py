"""The errors of rank functions against their definitions."""

import json

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from rank4class.pipelines.task_data import rank_functions
from rank4class.scripts.research.sorters import accuracy, score_vectors


@pytest.fixture(autouse=True)
def _few_vectors(monkeypatch):
    monkeypatch.setattr(score_vectors, "HELD_OUT", {"validation": 5, "test": 40})


@pytest.mark.parametrize("name", ["exact", "handcrafted", "equivariant", "soft_sort"])
def test_errors_by_definition(name):
    rank_fn = rank_functions.get_rank_fn(name, 10)
    result = accuracy.errors(rank_fn, 10)
    scores, ranks = score_vectors.held_out("test", 10)
    np.testing.assert_allclose(result, np.abs(rank_fn(scores) / 10 - ranks).mean(axis=1), atol=1e-6)
    if name == "exact":
        np.testing.assert_allclose(result, 0.0, atol=1e-6)


@pytest.mark.parametrize("name", ["exact", "handcrafted", "equivariant"])
def test_predictions_after_a_move_are_value_plus_gradient(name):
    rank_fn = rank_functions.get_rank_fn(name, 6)
    scores = tf.constant(score_vectors.held_out("test", 6)[0])
    moves = score_vectors.moves(scores, [6, 0], 1.0)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        ranks = rank_fn(scores)
    jacobian = tape.batch_jacobian(ranks, scores, unconnected_gradients="zero")
    predicted = ranks + tf.linalg.matvec(jacobian, moves)
    expected = np.abs(predicted / 6 - score_vectors.ranks(scores + moves)).mean(axis=1)
    result = accuracy.errors(rank_fn, 6, move=1.0)
    np.testing.assert_allclose(result, expected, atol=1e-5)
    assert result.max() > 0.0


def test_tables():
    lines = []
    measured = accuracy.measure(["cnn", "equivariant", "exact"], (10, 11), lines.append)
    assert len(lines) == 3
    ranks, moved = accuracy.tables(measured)
    for rows in (ranks, moved):
        assert [row[0] for row in rows[1:]] == ["exact", "cnn", "equivariant"]
        assert [row[1] for row in rows[1:]] == ["0", "87,361", "1"]
        assert rows[2][3] == "-"  # no shipped CNN has length 11
    assert ranks[1][2] == "0.00000 [0.00000, 0.00000]"
    assert float(moved[3][2].split()[0]) < float(moved[1][2].split()[0])  # the gradient helps
    with pytest.raises(ValueError, match="cnn-11.safetensors: cannot be read"):
        accuracy.measure(["cnn"], (11,))


def test_study_has_the_errors_of_each_vector(tmp_path, monkeypatch):
    monkeypatch.setattr(accuracy, "SIZES", (10,))
    monkeypatch.setattr(accuracy, "STUDY_METRICS", ["l1@10", "moved_l1@10"])
    accuracy.run(["exact", "soft_sort"], str(tmp_path))
    study = json.loads((tmp_path / "study.json").read_text())
    assert not np.any(study["test"]["exact"]["l1@10"])
    rank_fn = rank_functions.get_rank_fn("soft_sort", 10)
    for metric, move in (("l1@10", 0.0), ("moved_l1@10", 1.0)):
        [values] = study["test"]["soft_sort"][metric]
        assert study["examples"] == {"test": len(values)}
        np.testing.assert_allclose(values, 100.0 * accuracy.errors(rank_fn, 10, move), rtol=1e-5)


def test_places_off_by_definition():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=[600, 11]).astype(np.float32)
    scores[0, :6], scores[1] = 9.0, 1.0  # ties with ranks 3.5 and 6
    rank_fn = rank_functions.get_rank_fn("soft_sort", 11)
    result = accuracy.places_off(rank_fn, scores)
    off = np.abs(rank_fn(scores).numpy() - scipy.stats.rankdata(-scores, axis=1))
    places = scipy.stats.rankdata(-scores, axis=1)

    def mean(o, p, a):
        among = (a <= p) & (p < 2 * a)
        return np.mean(o[among]) if among.any() else np.nan

    expected = [[mean(o, p, a) for a in (1, 2, 4, 8)] for o, p in zip(off, places, strict=True)]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    assert np.isnan(result[:2]).tolist() == [[True, False, False, False], [True, True, False, True]]


def write_scores(path, scores):
    """Writes those arrays of rank4class evaluate that are read."""
    origins = np.array([f"test.tsv:{i + 1}" for i in range(len(scores))])
    np.savez(path, scores=np.array(scores, np.float32), origins=origins)
    return str(path)


def test_the_table_of_a_run(tmp_path):
    scores = np.random.default_rng(0).normal(size=[50, 28])
    path = write_scores(tmp_path / "predictions.npz", scores)
    rows = accuracy.table_of_run(["exact", "cnn", "equivariant"], path)
    assert rows[0][1:] == ["1", "2-3", "4-7", "8-15", "16-28"]
    assert rows[1] == ["exact"] + ["0.00 [0.00, 0.00]"] * 5
    off = accuracy.places_off(rank_functions.get_rank_fn("cnn", 28), scores.astype(np.float32))
    for cell, column in zip(rows[2][1:], off.T, strict=True):
        assert cell.split()[0] == f"{column.mean():.2f}"
    path = write_scores(tmp_path / "constant.npz", np.ones([3, 4]))
    rows = accuracy.table_of_run(["exact", "cnn"], path)
    assert rows[0][1:] == ["1", "2-3", "4"]
    # No shipped CNN has length 4.
    assert rows[1:] == [["exact", "-", "0.00 [0.00, 0.00]", "-"], ["cnn", "-", "-", "-"]]


def test_invalid_scores(tmp_path):
    path = write_scores(tmp_path / "predictions.npz", [[1.0, 2.0], [1.0, np.nan]])
    with pytest.raises(ValueError, match=r"example 2 \(test.tsv:2\) are not all finite\."):
        accuracy.table_of_run(["exact"], path)
    np.savez(path, best_scores=np.ones([2, 3]))
    with pytest.raises(ValueError, match=": no scores of all classes. Evaluate again with --keep_scores"):
        accuracy.table_of_run(["exact"], path)
    path = write_scores(tmp_path / "predictions.npz", np.ones([2, 3]))
    with pytest.raises(ValueError, match=r"rank_fn='bubble': unknown\. There are: sigmoid,"):
        accuracy.table_of_run(["bubble"], path)

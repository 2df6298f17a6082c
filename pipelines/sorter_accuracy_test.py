"""What rank functions are measured by, against the definition."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class.data import score_vectors
from rank4class.pipelines import rank_functions, sorter_accuracy


@pytest.fixture(autouse=True)
def _few_vectors(monkeypatch):
    monkeypatch.setattr(score_vectors, "HELD_OUT", {"validation": 5, "test": 40})


@pytest.mark.parametrize("name", ["exact", "handcrafted", "equivariant", "soft_sort"])
def test_errors_are_those_of_the_definition(name):
    rank_fn = rank_functions.get(name, 10)
    found = sorter_accuracy.errors(rank_fn, 10)
    scores, ranks = score_vectors.held_out("test", 10)
    np.testing.assert_allclose(found, np.abs(rank_fn(scores) / 10 - ranks).mean(axis=1), atol=1e-6)
    if name == "exact":
        np.testing.assert_allclose(found, 0.0, atol=1e-6)


@pytest.mark.parametrize("name", ["exact", "handcrafted", "equivariant"])
def test_what_is_foretold_of_a_move_is_the_value_and_the_gradient(name):
    rank_fn = rank_functions.get(name, 6)
    scores = tf.constant(score_vectors.held_out("test", 6)[0])
    moves = score_vectors.moves(scores, [6, 0], 1.0)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        ranks = rank_fn(scores)
    jacobian = tape.batch_jacobian(ranks, scores, unconnected_gradients="zero")
    foretold = ranks + tf.linalg.matvec(jacobian, moves)
    expected = np.abs(foretold / 6 - score_vectors.ranks(scores + moves)).mean(axis=1)
    found = sorter_accuracy.errors(rank_fn, 6, move=1.0)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.max() > 0.0


def test_tables():
    told = []
    tables = sorter_accuracy.tables(["cnn", "equivariant", "exact"], (10, 11), told.append)
    assert len(told) == 6
    for rows in tables.values():
        assert [row[0] for row in rows[1:]] == ["exact", "cnn", "equivariant"]
        assert [row[1] for row in rows[1:]] == ["0", "87,361", "1"]
        assert rows[2][3] == "-"  # there is no CNN for 11
    (ranks, moved) = tables.values()
    assert ranks[1][2] == "0.00000 [0.00000, 0.00000]"
    assert float(moved[3][2].split()[0]) < float(moved[1][2].split()[0])  # the gradient tells something
    with pytest.raises(ValueError, match="no weights of sorter 'cnn' for lists of 11 are shipped"):
        sorter_accuracy.tables(["cnn"], (11,))
    with pytest.raises(ValueError, match="rank function 'bubble' is unknown"):
        sorter_accuracy.tables(["bubble"])


def test_the_commands_of_what_is_shipped():
    commands = sorter_accuracy.commands(["handcrafted", "lstm", "equivariant"])
    assert list(commands) == ["lstm, n = 10,18,28,100", "equivariant, n = 100"]  # each once
    for command in commands.values():
        assert command.startswith("python -m rank4class.scripts.train_sorter ")

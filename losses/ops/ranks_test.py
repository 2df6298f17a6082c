"""The soft ranks from relaxed permutation matrices."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class.losses.ops import ranks

RELAXED = (ranks.neural_sort_ranks, ranks.soft_sort_ranks)
SCORES = np.random.default_rng(0).normal(size=[20, 7]).astype(np.float32)


def written_out(function, scores):
    """Returns the ranks by definition, one place and class at a time."""
    n = len(scores)
    values = np.zeros(n)
    for i in range(1, n + 1):
        if function is ranks.neural_sort_ranks:
            logits = [(n + 1 - 2 * i) * s - sum(abs(s - t) for t in scores) for s in scores]
        else:
            logits = [-abs(sorted(scores)[n - i] - s) for s in scores]
        shares = np.exp(np.array(logits) - max(logits))
        values += i * shares / shares.sum()
    return values


@pytest.mark.parametrize("function", RELAXED)
def test_the_definition(function):
    expected = [written_out(function, row.astype(float)) for row in SCORES]
    np.testing.assert_allclose(function(tf.constant(SCORES)), expected, rtol=1e-4)


@pytest.mark.parametrize("function", [*RELAXED, ranks.sigmoid_ranks])
def test_soft_ranks_approach_the_hard_ranks_and_have_their_sum(function):
    np.testing.assert_allclose(function(SCORES / 1e-4), ranks.all_ranks(SCORES), atol=1e-3)
    for temperature in (0.1, 1.0, 10.0):
        np.testing.assert_allclose(tf.reduce_sum(function(SCORES / temperature), axis=1), 28.0, rtol=1e-5)


@pytest.mark.parametrize("function", [*RELAXED, ranks.all_ranks, ranks.mean_ranks, ranks.sigmoid_ranks])
def test_masked_classes(function):
    scores = tf.constant(SCORES)
    for count in (1, 4, 6):
        where = tf.broadcast_to(tf.range(7) < count, [20, 7])
        spoiled = tf.where(where, scores, 1e9)
        values = function(spoiled, where)
        np.testing.assert_allclose(values[:, :count], function(scores[:, :count]), rtol=1e-5)
        assert function is ranks.sigmoid_ranks or (values.numpy()[:, count:] == count + 1).all()


@pytest.mark.parametrize("function", RELAXED)
def test_ties_and_extreme_scores(function):
    np.testing.assert_allclose(function(tf.zeros([1, 5])), 3.0, rtol=1e-6)
    scores = tf.constant([[1e4, -1e4, 0.0, 1e4]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        values = function(scores)
    assert np.isfinite(values).all()
    assert values[0, 0] == values[0, 3]
    assert np.isfinite(tape.gradient(values, scores)).all()

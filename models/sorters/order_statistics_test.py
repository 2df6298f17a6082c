"""Order statistics against loops over single lists and scores."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class.models import sorters
from rank4class.models.sorters import order_statistics

SCORES = np.random.default_rng(1).normal(size=[8, 10]).astype(np.float32)


def filled_list(scores, where):
    """Returns one list as `fill_masked` defines it, one score at a time."""
    scores = np.where(where, scores, 0.0).astype(np.float64)
    size, num_masked = where.sum(), (~where).sum()
    in_order = np.sort(scores[where])[::-1]
    keys = np.arange(1, num_masked + 1) * 40_503 % 65_536
    for i, j in zip(np.flatnonzero(~where), np.argsort(np.argsort(keys)) + 1, strict=True):
        rank = (j - 1 / 6) * size / num_masked + 0.5
        above = min(max(int(rank), 1), size - 1)
        scores[i] = in_order[above - 1] + (rank - above) * (in_order[above] - in_order[above - 1])
    return scores.astype(np.float32)


@pytest.mark.parametrize(("n", "size"), [(3, 2), (10, 1), (10, 5), (28, 20), (100, 98)])
def test_exact_ranks_of_filled_lists(n, size, rng):
    where = np.argsort(rng.random([20, n]), axis=1) < size
    scores = tf.constant(rng.normal(size=[20, n]), tf.float32)
    filled = order_statistics.fill_masked(scores, tf.constant(where))
    if size > 1:
        for result, original, mask in zip(filled.numpy(), scores.numpy(), where, strict=True):
            np.testing.assert_allclose(result, filled_list(original, mask), rtol=1e-4, atol=1e-6)
    exact = sorters.get("exact")
    ranks = order_statistics.ranks_without_masked(exact.rank_fn(filled), tf.constant(where))
    if size > 1:
        np.testing.assert_allclose(ranks[where], exact.rank_fn(scores, where)[where], rtol=1e-5)
    assert np.isfinite(ranks).all()


def test_standardize():
    shifted = sorters.standardize(tf.constant(1e4 + SCORES))
    np.testing.assert_allclose(tf.reduce_mean(shifted, axis=1), 0.0, atol=1e-5)
    np.testing.assert_allclose(tf.math.reduce_std(shifted, axis=1), 1.0, rtol=1e-5)
    huge = sorters.standardize(tf.constant([[1e30, -1e30, 0.0]]))
    np.testing.assert_allclose(huge, [[1.2247, -1.2247, 0.0]], atol=1e-4)
    where = tf.constant([[True, True, False]])
    np.testing.assert_allclose(sorters.standardize(tf.constant([[3.0, 1.0, 9.0]]), where), [[1.0, -1.0, 0.0]])


def test_linear_recurrence_and_its_derivatives(rng):
    factors = tf.constant(rng.random((3, 9)))
    terms = tf.constant(rng.normal(size=(3, 9)))

    def step_by_step(factors, terms):
        values = [terms[:, 0]]
        for i in range(1, 9):
            values.append(factors[:, i] * values[-1] + terms[:, i])
        return tf.stack(values, axis=1)

    def value_and_derivatives(recurrence):
        with tf.GradientTape() as outer:
            outer.watch([factors, terms])
            with tf.GradientTape() as inner:
                inner.watch([factors, terms])
                value = tf.reduce_sum(tf.sin(recurrence(factors, terms)))
            first = inner.gradient(value, [factors, terms])
            mixed = tf.reduce_sum(first[0] ** 2) + tf.reduce_sum(first[1] ** 3)
        return [value, *first, *outer.gradient(mixed, [factors, terms])]

    actual, expected = map(value_and_derivatives, (order_statistics.linear_recurrence, step_by_step))
    for result, reference in zip(actual, expected, strict=True):
        np.testing.assert_allclose(result, reference, atol=1e-12)

"""Order statistics against loops over single lists and scores."""

import numpy as np
import tensorflow as tf

from rank4class.models import sorters
from rank4class.models.sorters import order_statistics

SCORES = np.random.default_rng(1).normal(size=[8, 10]).astype(np.float32)


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

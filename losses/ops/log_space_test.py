"""Sums of exponentials: values and derivatives in float64, with XLA and without, far and at the limits."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class import compat, scan
from rank4class.losses.ops import log_space, ranks

EVERY_FORM = pytest.mark.parametrize("xla", [False, True])


def evaluate(function, x, xla, upstream=None):
    """Returns a function's value and its derivative."""

    @tf.function(jit_compile=xla, autograph=False)
    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        return value, tape.gradient(value, x, upstream)

    return (tensor.numpy() for tensor in both(tf.constant(x, tf.float32)))


def remaining(x):
    return np.logaddexp.accumulate(np.float64(x)[..., ::-1], axis=-1)[..., ::-1]


@EVERY_FORM
def test_the_form_follows_the_compiler(xla):
    seen = []

    def record(x):
        seen.append(compat.in_xla())
        return x

    inner = tf.function(record, autograph=False)
    function = tf.function(lambda x: inner(record(x)), jit_compile=xla, autograph=False)
    function.get_concrete_function(tf.zeros([2]))
    assert seen == [xla, xla]
    function(tf.zeros([3]))
    assert seen == [xla] * 4
    assert not compat.in_xla()


def test_compiled_softplus_is_exact_to_the_last_bits_everywhere():
    x = np.concatenate([np.linspace(-87, 100, 200_001), *([-(2.0**-i), 2.0**-i] for i in range(0, 120, 7))])
    x = np.float32([*x, 0.0, 1e30, 3e38])
    value, slope = evaluate(log_space.softplus, x, xla=True)
    exact = np.logaddexp(0.0, np.float64(x))
    assert np.max(np.abs(value - exact) / np.spacing(np.float32(exact))) <= 3.0
    exact_slope = np.exp(-np.logaddexp(0.0, -np.float64(x)))
    assert np.max(np.abs(slope - exact_slope) / np.spacing(np.float32(exact_slope))) <= 5.0


@EVERY_FORM
def test_softplus_at_the_limits(xla):
    value, slope = evaluate(log_space.softplus, [-np.inf, -1e30, -200.0, np.inf, np.nan], xla)
    np.testing.assert_array_equal(value, [0.0, 0.0, 0.0, np.inf, np.nan])
    np.testing.assert_array_equal(slope[:4], [0.0, 0.0, 0.0, 1.0])
    assert log_space.softplus(tf.constant(1.0, tf.float64)).dtype == tf.float64


@EVERY_FORM
@pytest.mark.parametrize("n", [1, 2, 7, 22])
def test_remaining_sums(n, xla):
    rng = np.random.default_rng(n)
    x = np.float32(rng.normal(size=[2, 3, n]) * [[[0.01], [1.0], [5.0]]])
    upstream = np.float32(rng.normal(size=x.shape))  # of both signs
    value, slope = evaluate(log_space.remaining_logsumexp, x, xla, upstream)
    exact = remaining(x)
    np.testing.assert_allclose(value, exact, rtol=2e-6, atol=2e-6)
    factors = np.exp(np.minimum(np.float64(x)[..., None, :] - exact[..., :, None], 0.0))
    exact_slope = np.sum(np.triu(np.ones([n, n])) * factors * upstream[..., :, None], axis=-2)
    np.testing.assert_allclose(slope, exact_slope, rtol=1e-4, atol=2e-5)


@EVERY_FORM
def test_remaining_sums_of_masked_and_far_values(xla):
    x = [[1.0, -1e30, -np.inf], [3e4, -3e4, ranks.MASKED], [0.0, 200.0, 0.0], [-np.inf, 2.0, -np.inf]]
    value, slope = evaluate(log_space.remaining_logsumexp, x, xla, tf.constant([[1.0, 0.0, 0.0]] * 4))
    np.testing.assert_array_equal(value[:, 0], [1.0, 3e4, 200.0, 2.0])
    np.testing.assert_array_equal(slope, [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0]])


@pytest.mark.parametrize("n", [1, 2, 5, 8, 31])
def test_running_sums_keep_the_order(n):
    """A combination that depends on the order: affine functions, one after another."""

    def then(earlier, later):
        factor, term = tf.unstack(later, axis=-2)
        return tf.stack([earlier[..., 0, :] * factor, earlier[..., 1, :] * factor + term], axis=-2)

    values = np.random.default_rng(0).integers(-3, 4, [2, 2, n])
    expected = [values[..., 0]]
    for i in range(1, n):
        factor = values[:, 0, i]
        term = values[:, 1, i]
        last = expected[-1]
        expected.append(np.stack([last[:, 0] * factor, last[:, 1] * factor + term], axis=-1))
    for xla in (False, True):
        function = tf.function(lambda x: scan.running(then, x), jit_compile=xla, autograph=False)
        np.testing.assert_array_equal(function(values), np.stack(expected, axis=-1))


@EVERY_FORM
def test_remaining_sums_of_lengths_known_at_run_time(xla):
    signature = [tf.TensorSpec([None, None], tf.float32)]
    function = tf.function(log_space.remaining_logsumexp, signature, jit_compile=xla, autograph=False)
    x = np.random.default_rng(0).normal(size=[3, 13])
    np.testing.assert_allclose(function(np.float32(x)), remaining(np.float32(x)), rtol=1e-5, atol=1e-6)

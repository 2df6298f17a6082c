"""The projections against a convex solver, brute force, closed forms and finite differences."""

import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf

from rank4class import losses
from rank4class.losses.ops import projections

CASES = [(n, k) for n in (2, 3, 6, 9) for k in (1, 2, 5, 9) if k <= n]
STEP = 1e-2
GEOMETRIES = {"euclidean": projections.euclidean, "entropy": projections.entropy}


def some_scores(n, seed=0, spread=1.5):
    return np.random.default_rng(seed).normal(scale=spread, size=[4, n]).astype(np.float32)


def solved(scores, k, alpha, geometry):
    """Solves the argmin problem of one list with scipy."""
    n = len(scores)
    if k == n:
        return np.ones(n)
    regularizer, slope = {
        "euclidean": (lambda p: 0.5 * p @ p, lambda p: p),
        "entropy": (lambda p: np.sum(p * np.log(p + 1e-300)), lambda p: 1.0 + np.log(p + 1e-300)),
    }[geometry]
    result = scipy.optimize.minimize(
        lambda p: -scores @ p + regularizer(p) / alpha,
        np.full(n, k / n),
        jac=lambda p: -scores + slope(p) / alpha,
        bounds=[(1e-12, 1.0)] * n,
        constraints={"type": "eq", "fun": lambda p: p.sum() - k, "jac": lambda p: np.ones(n)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return result.x


def rankmax_by_hand(scores, y, k):
    """Tries every number of classes at 1."""
    scores = scores.astype(np.float64)
    falling = np.sort(scores)[::-1]
    level = min(scores[y], falling[k - 1]) - 1.0
    support = np.sum(scores > level)
    for t in range(min(support, k)):
        alpha = (k - t) / np.sum(falling[t:support] - level)
        if alpha * (falling[t] - level) <= 1.0 + 1e-12:
            return np.clip(alpha * (scores - level), 0.0, 1.0)
    raise AssertionError


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("alpha", [0.3, 4.0])
@pytest.mark.parametrize(("n", "k"), CASES)
def test_projections_solve_their_problem(geometry, alpha, n, k):
    scores = some_scores(n, seed=n + k)
    shares = GEOMETRIES[geometry](scores, k=k, alpha=alpha).numpy()
    for row, expected in zip(shares, scores, strict=True):
        np.testing.assert_allclose(row, solved(expected.astype(np.float64), k, alpha, geometry), atol=2e-5)


@pytest.mark.parametrize(("n", "k"), CASES)
def test_rankmax_equals_brute_force(n, k):
    scores = some_scores(n, seed=3 * n + k)
    scores[0, : n // 2] = scores[0, 0]  # ties
    for y in range(n):
        shares = projections.rankmax(scores, np.full(4, y), k=k).numpy()
        for row, scores_of_list in zip(shares, scores, strict=True):
            np.testing.assert_allclose(row, rankmax_by_hand(scores_of_list, y, k), atol=1e-6)


def sparsemax_by_sort(scores, labels):
    """Returns the shares, and the loss of class ids with its gradient, in float64."""
    scores = np.float64(scores) - np.max(scores, axis=-1, keepdims=True)
    falling = -np.sort(-scores, axis=-1)
    sums = np.cumsum(falling, axis=-1)
    place = np.arange(1, scores.shape[-1] + 1)
    size = np.sum(1 + place * falling > sums, axis=-1, keepdims=True)
    shares = np.maximum(scores - (np.take_along_axis(sums, size - 1, axis=-1) - 1) / size, 0)
    true = np.take_along_axis(scores, labels[:, None], axis=-1)
    values = np.sum(shares * (scores - true - shares / 2), axis=-1) + 0.5
    return shares, values, shares - np.eye(scores.shape[-1])[labels]


@pytest.mark.parametrize("n", [2, 63, 300])
def test_sparsemax_of_short_and_long_supports(n):
    """Each spread of the scores has two lists."""
    rng = np.random.default_rng(n)
    spreads = np.repeat([3.0, 1.0, 0.01, 0.02, 0.0, 1e4, 0.003], 2)
    scores = np.float32(rng.normal(size=[14, n]) * spreads[:, None])
    labels = rng.integers(n, size=14)

    def evaluate(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            values = losses.sparsemax(scores, labels)
        return projections.sparsemax(scores), values, tape.gradient(values, scores)

    expected = sparsemax_by_sort(scores, labels)
    for function in (evaluate, tf.function(evaluate, jit_compile=True, autograph=False)):
        actual = function(tf.constant(scores))
        for result, by_sort in zip(actual, expected, strict=True):
            np.testing.assert_allclose(result, by_sort, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(actual[0] > 0, expected[0] > 0)  # the support is exact
    alone = losses.sparsemax(scores[:1], labels[:1])  # a long support changes no bit of other lists
    np.testing.assert_array_equal(losses.sparsemax(scores, labels)[:1], alone)


def every_projection(k):
    yield lambda s: projections.euclidean(s, k=k)
    yield lambda s: projections.euclidean(s, k=k, alpha=3.0)
    yield lambda s: projections.entropy(s, k=k)
    for y in (0, 3):
        yield lambda s, y=y: projections.rankmax(s, tf.fill(tf.shape(s)[:-1], y), k=k)


@pytest.mark.parametrize("k", [2, *(pytest.param(k, marks=pytest.mark.nightly) for k in (1, 5))])
def test_gradients_equal_finite_differences(k):
    scores = some_scores(5, seed=k)
    weights = np.random.default_rng(1).normal(size=[4, 5]).astype(np.float32)
    moves = np.float32([-STEP, 0.0, STEP])[:, None, None, None] * np.eye(5, dtype=np.float32)[:, None]
    for project in every_projection(k):
        x = tf.constant(scores)
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(weights * project(x))
        gradient = tape.gradient(value, x).numpy()
        values = np.sum(weights * project(scores + moves).numpy(), axis=-1)
        before, after = np.diff(values, axis=0) / STEP
        smooth = np.abs(before - after) < 0.02  # there is no kink within the step
        np.testing.assert_allclose(gradient.T[smooth], (before + after)[smooth] / 2, atol=2e-3)
        assert smooth.sum() > 12


@pytest.mark.parametrize("k", [1, 2, 5])
def test_far_apart_and_equal_scores(k):
    far = np.array([[1e4, -1e4, 0.0, 5e3, -5e3, 1.0]], np.float32)
    equal = np.zeros([1, 6], np.float32)
    one_ahead = np.array([[0.0, 500.0, 0.0, 0.0, 0.0, 0.0]], np.float32)
    for project in every_projection(k):
        for scores in (far, equal, one_ahead):
            shares = project(scores).numpy()
            assert np.isfinite(shares).all()
            np.testing.assert_allclose(shares.sum(), k, rtol=1e-5)
        np.testing.assert_allclose(project(equal), np.full([1, 6], k / 6), atol=1e-6)
    is_held = projections.euclidean(far, k=k).numpy()[0] == 1.0
    np.testing.assert_array_equal(is_held, -far[0].argsort().argsort() + 6 <= k)


@pytest.mark.parametrize("k", [1, 2])
def test_masked_equals_subset(k):
    scores = some_scores(6, seed=11)
    where = np.array([True, False, True, True, False, True])
    for project in GEOMETRIES.values():
        masked = project(scores, k=k, where=where).numpy()
        np.testing.assert_allclose(masked[:, where], project(scores[:, where], k=k), atol=1e-6)
        assert (masked[:, ~where] == 0.0).all()
    masked = projections.rankmax(scores, [2] * 4, k=k, where=where).numpy()
    subset = projections.rankmax(scores[:, where], [1] * 4, k=k)
    np.testing.assert_allclose(masked[:, where], subset, atol=1e-6)
    few = np.arange(6) < 1
    for project in GEOMETRIES.values():
        np.testing.assert_array_equal(project(scores, k=2, where=few), np.tile(few, [4, 1]))
        np.testing.assert_array_equal(project(scores, k=2, where=few & False), np.zeros([4, 6]))
        at_small_alpha = project(np.float32([0, 0, 0, 5]), k=k, alpha=1e-3, where=np.arange(4) < 3)
        np.testing.assert_allclose(at_small_alpha, [k / 3, k / 3, k / 3, 0.0], rtol=1e-6)


def test_nan_scores_do_not_change_other_lists():
    scores = some_scores(5)
    scores[1, 2], scores[2, 0] = np.nan, np.inf
    for project in every_projection(2):
        shares = project(scores).numpy()
        assert np.isnan(shares[1:3]).all()
        assert np.isfinite(shares[[0, 3]]).all()


@pytest.mark.parametrize("shift", [1e5, -3e7])
@pytest.mark.parametrize("k", [1, 3])
def test_shift_invariance(k, shift):
    scores = 16.0 * np.random.default_rng(0).integers(0, 3, [4, 6]).astype(np.float32)
    scores[0] = 0.0
    for project in every_projection(k):
        np.testing.assert_allclose(project(scores + np.float32(shift)), project(scores), atol=1e-6)


@pytest.mark.parametrize("k", [1, 2])
def test_labels_outside_the_classes_do_not_change_other_lists(k):
    for call in (projections.rankmax, tf.function(projections.rankmax, jit_compile=True, autograph=False)):
        shares = call(some_scores(5), tf.constant([0, 5, -1, 4]), k=k).numpy()
        assert np.isnan(shares[1:3]).all()
        assert np.isfinite(shares[[0, 3]]).all()


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64])
def test_other_precisions_are_computed_in_float32(dtype):
    scores = tf.cast(some_scores(5), dtype)
    for project in every_projection(2):
        shares = project(scores)
        assert shares.dtype == tf.float32
        np.testing.assert_array_equal(shares, project(tf.cast(scores, tf.float32)))


@pytest.mark.nightly
def test_xla():
    scores = tf.constant(some_scores(6, seed=12))

    def values_and_gradients(scores):
        results = []
        for project in every_projection(3):
            with tf.GradientTape() as tape:
                tape.watch(scores)
                shares = project(scores)
                value = tf.reduce_sum(tf.square(shares))
            results += [shares, tape.gradient(value, scores)]
        return results

    compiled = tf.function(values_and_gradients, jit_compile=True)
    for left, right in zip(compiled(scores), values_and_gradients(scores), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


def test_errors():
    for call, message in (
        (lambda: projections.euclidean([[1.0, 2.0]], k=3), r"k=3: not an integer in 1..2"),
        (lambda: projections.rankmax([[1.0, 2.0]], [0], k=1.0), r"k=1.0: not an integer in 1..2"),
        (lambda: projections.euclidean([[1.0, 2.0]], alpha=0.0), "alpha=0.0: not positive"),
        (lambda: projections.entropy([[1.0, 2.0]], alpha=float("nan")), "alpha=nan: not positive"),
        (lambda: projections.rankmax([[1.0, 2.0]], [0.0]), r"labels=float32 \(1,\): class ids must be"),
        (lambda: projections.sparsemax([[1.0, 2.0]], where=[True] * 3), r"where=\(3,\): cannot be"),
    ):
        with pytest.raises(ValueError, match=message):
            call()

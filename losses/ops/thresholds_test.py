"""Rankmax, Sparsemax and WARP against their definitions, class by class, and their gradients."""

import json

import numpy as np
import pytest
import tensorflow as tf

from rank4class import losses
from rank4class.losses.ops import projections, thresholds

N = 7
SCORES = np.random.default_rng(0).normal(scale=1.5, size=[6, N]).astype(np.float32)
SCORES[1, 2:5] = SCORES[1, 0]  # ties
SCORES[2] = 0.0
RELEVANT = (np.random.default_rng(1).random([6, N]) < 0.4).astype(np.float32)
RELEVANT[0] = 0.0
RELEVANT[3] *= 2.0  # graded


def value_and_gradient(loss, scores, labels, **options):
    x = tf.constant(scores)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = loss(x, labels, **options)
    return value.numpy(), tape.gradient(value, x).numpy()


def summed(loss, **options):
    """Returns value and gradient of a loss of class ids, summed over the relevant classes."""
    value = np.zeros(6)
    gradient = np.zeros([6, N])
    for y in range(N):
        value_of_class, slope = value_and_gradient(loss, SCORES, np.full(6, y), **options)
        value += RELEVANT[:, y] * value_of_class
        gradient += RELEVANT[:, y, None] * slope
    return value, gradient


@pytest.mark.parametrize("k", [1, 2, 4, N])
def test_rankmax_is_minus_the_log_of_the_true_classs_projection(k):
    for y in range(N):
        share = projections.rankmax(SCORES, np.full(6, y), k=k).numpy()[:, y]
        np.testing.assert_allclose(losses.rankmax(SCORES, np.full(6, y), k=k), -np.log(share), atol=1e-5)


RANKMAX = [(losses.rankmax, {"k": k}) for k in (1, 2, 4, N)]


@pytest.mark.parametrize(("loss", "options"), [*RANKMAX, (losses.sparsemax, {})])
def test_several_relevant_classes_sum(loss, options):
    value, gradient = value_and_gradient(loss, SCORES, RELEVANT, **options)
    smooth = [0, 3, 4, 5]  # ties have several subgradients
    expected, slope = summed(loss, **options)
    np.testing.assert_allclose(value, expected, atol=2e-5)
    np.testing.assert_allclose(gradient[smooth], slope[smooth], atol=2e-5)
    np.testing.assert_allclose(gradient.sum(axis=1), 0.0, atol=2e-5)


@pytest.mark.parametrize(("loss", "options"), [*RANKMAX[:3], (losses.sparsemax, {})])
@pytest.mark.parametrize("labels", [np.array([6, 1, 0, 3, 4, 5]), RELEVANT])
def test_gradients_equal_finite_differences(loss, options, labels):
    _, gradient = value_and_gradient(loss, SCORES, labels, **options)
    step = np.float32(4e-3)
    moves = step * np.multiply.outer(np.float32([-1, 0, 1]), np.eye(N, dtype=np.float32))
    moved = SCORES + moves[:, :, None]  # by a step in each class: [3, N, 6, N]
    values = loss(moved, np.broadcast_to(labels, [3, N, *labels.shape]), **options).numpy()
    before, after = np.diff(values, axis=0) / step
    smooth = np.abs(before - after) < 0.02
    np.testing.assert_allclose(gradient.T[smooth], (before + after)[smooth] / 2, atol=2e-2)
    assert smooth.sum() > 25


def test_gradient_of_rankmax_equals_the_paper():
    y = np.array([0, 1, 2, 3, 4, 5])
    _, gradient = value_and_gradient(losses.rankmax, SCORES, y)
    share = projections.rankmax(SCORES, y).numpy()[np.arange(6), y]
    within = SCORES[np.arange(6), y][:, None] - 1.0 < SCORES
    expected = np.where(within, share[:, None], 0.0)
    # With s for s - 1, as eq. 16 has it, they would not sum to 0.
    expected[np.arange(6), y] = -share * (within.sum(axis=1) - 1)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    for loss in (losses.rankmax, losses.sparsemax, losses.warp):  # none beyond the margin
        value, gradient = value_and_gradient(loss, [[5.0, 3.9, 0.0]], [0])
        assert value == 0.0
        assert not gradient.any()


def test_warp_weights_are_harmonic_numbers():
    def by_hand(y, competes):
        margins = np.where(competes, np.maximum(1.0 + SCORES - SCORES[:, y, None], 0.0), 0.0)
        violators = (margins > 0.0).sum(axis=1)
        weights = [sum(1.0 / i for i in range(1, v + 1)) / max(v, 1) for v in violators]
        return weights * margins.sum(axis=1)

    for y in range(N):
        expected = by_hand(y, np.arange(N) != y)
        np.testing.assert_allclose(losses.warp(SCORES, np.full(6, y)), expected, atol=1e-4)
    expected = sum(RELEVANT[:, y] * by_hand(y, RELEVANT == 0.0) for y in range(N))
    np.testing.assert_allclose(losses.warp(SCORES, RELEVANT), expected, rtol=1e-4, atol=1e-4)


WITH_MAX_RELEVANT = [(losses.rankmax, {"k": 1}), (losses.rankmax, {"k": 3}), (losses.warp, {})]


@pytest.mark.parametrize("shift", [1e5, -3e7])
@pytest.mark.parametrize(("loss", "options"), WITH_MAX_RELEVANT)
def test_shift_invariance(loss, options, shift):
    scores = 16.0 * np.random.default_rng(0).integers(0, 3, [6, N]).astype(np.float32)
    scores[1] = 0.0
    for labels in (np.arange(6), RELEVANT):
        expected = value_and_gradient(loss, scores, labels, **options)
        shifted = value_and_gradient(loss, scores + np.float32(shift), labels, **options)
        for x, y in zip(shifted, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("k", "place"), [(1, 0), (2, 1), (3, 3)])
def test_nan_does_not_change_other_lists(k, place):
    scores = np.tile([2.0, 1.0, 0.0, -1.0], [2, 1]).astype(np.float32)
    scores[0, place] = np.nan
    for labels in (tf.constant([1, 1]), tf.one_hot([1, 1], 4)):
        value = losses.rankmax(scores, labels, k=k).numpy()
        assert np.isnan(value[0])
        assert np.isfinite(value[1])


MOST = int((RELEVANT > 0.0).sum(axis=1).max())


@pytest.mark.parametrize(("loss", "options"), WITH_MAX_RELEVANT)
@pytest.mark.parametrize("most", [MOST, MOST + 1, N, 10 * N])
def test_max_relevant_does_not_change_values(loss, options, most):
    expected = value_and_gradient(loss, SCORES, RELEVANT, **options)
    ours = value_and_gradient(loss, SCORES, RELEVANT, max_relevant=most, **options)
    for x, y in zip(ours, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["rankmax", "warp"])
def test_more_than_max_relevant_classes(name):
    loss = losses.get(name, max_relevant=MOST - 1, reduction="none")
    crowded = (RELEVANT > 0.0).sum(axis=1) == MOST
    i = int(np.argmax(crowded))
    message = rf"max_relevant={MOST - 1}: labels\[{i}\] have {MOST} relevant classes\. Raise it"
    with pytest.raises(ValueError, match=message):
        loss(RELEVANT, SCORES)
    for jit_compile in (False, True):
        values = tf.function(lambda s, y: loss(y, s), jit_compile=jit_compile)(SCORES, RELEVANT).numpy()
        np.testing.assert_array_equal(np.isnan(values), crowded)
    where = RELEVANT == 0.0  # masked classes are not relevant
    assert np.isfinite(losses.rankmax(SCORES, RELEVANT, where=where, max_relevant=1)).all()


@pytest.mark.nightly
def test_integers_of_numpy():
    name = "rankmax"
    options = {"k": 3, "max_relevant": MOST}
    loss = losses.get(name, **{option: np.int64(value) for option, value in options.items()})
    restored = tf.keras.losses.deserialize(json.loads(json.dumps(tf.keras.losses.serialize(loss))))
    forms = RELEVANT, np.arange(6)
    expected = [losses.get(name, **options)(labels, SCORES) for labels in forms]

    def of_forms(scores, loss=loss):
        return [loss(labels, scores) for labels in forms]

    np.testing.assert_allclose(of_forms(SCORES, restored), expected, rtol=1e-6)
    for call in (of_forms, tf.function(of_forms), tf.function(of_forms, jit_compile=True)):
        np.testing.assert_allclose(call(tf.constant(SCORES)), expected, rtol=1e-6)


COUNT_OF_ANY = tf.function(thresholds.count, [tf.TensorSpec([3, None]), tf.TensorSpec([3, 40])])


@pytest.mark.parametrize("n", [1, 2, 8, 9, 63, 64, 300])  # of many, the last steps look up
def test_count(n):
    rng = np.random.default_rng(n)
    falling = -np.sort(-rng.integers(0, max(6, n // 2), size=[3, n]).astype(np.float32), axis=1)
    levels = rng.integers(-1, max(7, n // 2 + 1), size=[3, 40]).astype(np.float32)
    above = (falling[:, None] > levels[:, :, None]).sum(axis=2)
    at_or_above = (falling[:, None] >= levels[:, :, None]).sum(axis=2)
    np.testing.assert_array_equal(thresholds.count(falling, levels, or_equal=True), at_or_above)
    compiled = tf.function(thresholds.count, jit_compile=True, autograph=False)
    for count in (thresholds.count, COUNT_OF_ANY, compiled):
        np.testing.assert_array_equal(count(falling, levels), above)


@pytest.mark.parametrize("shape", [(3, 1), (3, 2), (2, 3, 8), (9,)])
@pytest.mark.parametrize(("m", "dtype"), [(1, tf.float32), (5, tf.float32), (8, tf.float64)])
def test_at_or_above(shape, m, dtype):
    rng = np.random.default_rng(m)
    scores = rng.integers(0, 6, size=shape).astype(np.float32)
    levels = -np.sort(-rng.integers(-1, 7, size=[*shape[:-1], m]).astype(np.float32))
    scores[..., 0] = levels[..., -1] = -np.inf  # left-out classes, and levels without a class
    expected = (scores[..., None, :] >= levels[..., None]).sum(axis=-1)
    actual = thresholds.at_or_above(tf.constant(scores, dtype), tf.constant(levels, dtype))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("shape", [(3, 1), (2, 3, 8), (9,)])
@pytest.mark.parametrize("m", [1, 5, pytest.param(100, marks=pytest.mark.nightly)])
def test_excess_equals_the_sum_of_hinges(shape, m):
    rng = np.random.default_rng(m)
    # Few distinct values: scores equal levels, and levels equal each other.
    scores = tf.constant(rng.integers(0, 6, size=shape), tf.float32)
    levels = tf.constant(-np.sort(-rng.integers(-1, 7, size=[*shape[:-1], m])), tf.float32)
    upstream = rng.normal(size=[*shape[:-1], m]).astype(np.float32)
    origin = tf.constant(rng.integers(-1, 2, size=[*shape[:-1], 1]), tf.float32)

    def hinges(scores, levels, origin):
        over = tf.nn.relu((scores - origin)[..., None, :] - levels[..., None])
        return tf.reduce_sum(over, axis=-1), tf.math.count_nonzero(over, axis=-1, dtype=tf.float32)

    seen = []
    for form in (thresholds.excess, hinges):
        with tf.GradientTape() as tape:
            tape.watch([scores, levels, origin])
            total, count = form(scores, levels, origin)
            value = tf.reduce_sum(upstream * total)
        seen.append([total, count, *tape.gradient(value, [scores, levels, origin])])
    for ours, expected in zip(*seen, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize("m", [1, 3])
def test_excess_of_many_almost_equal_scores(m):
    """A float32 sum of one class after another would lose up to a percent of it."""
    n = 300_000
    scores = np.float32(0.7) * np.ones([2, n], np.float32)
    below = np.linspace(0.4, 0.1, m, dtype=np.float32)
    x = tf.constant(scores)
    with tf.GradientTape() as tape:
        tape.watch(x)
        sums, counts = thresholds.excess(x, tf.constant(np.tile(below, [2, 1])))
    expected = n * (np.float64(np.float32(0.7)) - below)
    rounding = 2.0**-24 * n / 256  # of each value of a block
    np.testing.assert_allclose(sums, np.tile(expected, [2, 1]), rtol=rounding)
    assert (counts.numpy() == n).all()
    np.testing.assert_allclose(tape.gradient(sums, x), np.full([2, n], m), rtol=1e-6)


def test_small_excess_of_large_scores():
    scores = tf.constant([[1e4 + 0.25, 1e4, 1e4 - 1.0, -1e4]])
    total, _ = thresholds.excess(scores, tf.constant([[1e4, 1e4 - 2.0]]))
    np.testing.assert_array_equal(total, [[0.25, 5.25]])

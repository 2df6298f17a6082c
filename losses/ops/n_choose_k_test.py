"""n-choose-k: values against sums over all sets and a recursion, identities, draws."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from rank4class import losses
from rank4class.losses.ops import n_choose_k

SPREADS = (0.0, 1.0, 10.0, 100.0)


def log_z_by_recursion(scores, most):
    """Returns `log Z_0 .. log Z_most` of one list by the recursion over its classes, `O(n k)`."""
    sums = np.full(most + 1, -np.inf)
    sums[0] = 0.0
    for score in scores:
        sums[1:] = np.logaddexp(sums[1:], sums[:-1] + score)
    return sums


def all_sets(n, k):
    """Returns the sets of `k` out of `n` classes as rows of zeros and ones."""
    return np.array([np.isin(np.arange(n), chosen) for chosen in itertools.combinations(range(n), k)], float)


def by_all_sets(scores, k):
    """Returns `log Z_k`, the marginals and their covariance from the probability of every set."""
    sets = all_sets(len(scores), k)
    weights = sets @ scores
    log_z = np.logaddexp.reduce(weights)
    chances = np.exp(weights - log_z)
    mean = chances @ sets
    return log_z, mean, (sets - mean).T @ (chances[:, None] * (sets - mean))


def gradient(function, scores):
    scores = tf.constant(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = function(scores)
    return tape.gradient(value, scores).numpy()


def test_counts_of_a_short_type():
    scores = tf.zeros([1, 300])
    expected = n_choose_k.log_z(scores, tf.constant(50))
    for dtype in (tf.int8, tf.uint8, tf.int16, tf.uint64):
        assert n_choose_k.log_z(scores, tf.constant(50, dtype)) == expected


@pytest.mark.nightly
@pytest.mark.parametrize(("n", "spread"), [(1, 1.0), (2, 10.0), (5, 0.0), (5, 100.0), (9, 1.0), (9, 10.0)])
def test_all_sets(n, spread):
    scores = spread * np.random.default_rng(n).normal(size=[3, n])
    vector = np.random.default_rng(9).normal(size=[3, n])
    for k in range(n + 1):
        expected = [by_all_sets(row, k) for row in scores]
        log_z, marginals, covariance = map(np.array, zip(*expected, strict=True))
        np.testing.assert_allclose(n_choose_k.log_z(scores, k), log_z, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(n_choose_k.marginals(scores, k), marginals, atol=1e-12)
        slope = gradient(lambda s, k=k: n_choose_k.log_z(s, k), scores)
        np.testing.assert_allclose(slope, marginals, atol=1e-12)
        product = gradient(lambda s, k=k: tf.reduce_sum(vector * n_choose_k.marginals(s, k)), scores)
        np.testing.assert_allclose(product, np.einsum("bij,bj->bi", covariance, vector), atol=1e-11)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("n", [12, *(pytest.param(n, marks=pytest.mark.nightly) for n in (55, 56, 513))])
def test_log_z_equals_the_recursion(n, spread):
    """Beyond 55 classes the quadrature is not exact; 513 classes take two blocks of products."""
    scores = spread * np.random.default_rng(n).normal(size=n)
    expected = log_z_by_recursion(scores, n)
    counts = np.unique([0, 1, 2, 10, n // 10, n // 2, n - 1, n])
    actual = n_choose_k.log_z(np.tile(scores, [len(counts), 1]), counts)
    np.testing.assert_allclose(actual, expected[counts], rtol=1e-11, atol=1e-11)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "scores",
    [
        np.random.default_rng(0).normal(size=10_000) * 30.0,
        np.append(np.full(5_000, 50.0), np.full(5_000, -50.0)),
    ],
    ids=["spread", "two levels"],
)
def test_ten_thousand_classes(scores):
    counts = np.array([1, 10, 5_000, 9_999])
    expected = log_z_by_recursion(scores, 5_000)[[1, 10, 5_000]]
    actual = n_choose_k.log_z(np.tile(scores, [4, 1]), counts)
    np.testing.assert_allclose(actual[:3], expected, rtol=1e-12)
    # n - 1 of n classes: exactly one is left out.
    all_but_one = scores.sum() + np.logaddexp.reduce(-scores)
    np.testing.assert_allclose(actual[3], all_but_one, rtol=1e-12, atol=1e-8)
    marginals = n_choose_k.marginals(np.tile(scores, [4, 1]), counts)
    np.testing.assert_allclose(tf.reduce_sum(marginals, axis=1), counts, rtol=1e-11)


@pytest.mark.nightly
def test_one_of_n_is_softmax():
    scores = np.random.default_rng(0).normal(size=[4, 30]) * 5.0
    np.testing.assert_allclose(n_choose_k.log_z(scores, 1), tf.reduce_logsumexp(scores, axis=1), rtol=1e-13)
    np.testing.assert_allclose(n_choose_k.marginals(scores, 1), tf.nn.softmax(scores), atol=1e-13)


@pytest.mark.nightly
def test_marginals_are_invariant_to_a_shift():
    scores = np.random.default_rng(0).normal(size=[2, 50])
    for shift in (-1e4, 1e4):
        moved = n_choose_k.log_z(scores + shift, 7)
        np.testing.assert_allclose(moved, n_choose_k.log_z(scores, 7) + 7 * shift, rtol=1e-12)
        marginals = n_choose_k.marginals(scores + shift, 7)
        np.testing.assert_allclose(marginals, n_choose_k.marginals(scores, 7), atol=1e-10)


@pytest.mark.nightly
def test_k_and_mask_of_each_instance():
    scores = np.random.default_rng(0).normal(size=[2, 3, 9]).astype(np.float32)
    where = np.random.default_rng(1).random([2, 3, 9]) < 0.7
    where[0, 0], where[0, 1] = False, True
    k = np.array([[0, 9, 1], [2, 3, where[1, 2].sum()]])
    log_z = n_choose_k.log_z(scores, k, where=where)
    marginals = n_choose_k.marginals(scores, k, where=where)
    assert log_z.dtype == marginals.dtype == tf.float32
    for place in np.ndindex(2, 3):
        allowed = where[place]
        value, mean, _ = by_all_sets(scores[place][allowed].astype(np.float64), k[place])
        np.testing.assert_allclose(log_z[place], value, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(marginals[place][allowed], mean, rtol=1e-6, atol=1e-7)
        assert not np.any(marginals[place][~allowed])
    slope = gradient(lambda s: n_choose_k.log_z(s, k, where=where), scores)
    np.testing.assert_allclose(slope, marginals, rtol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize(("dtype", "jit_compile"), [(tf.float16, True), (tf.bfloat16, False)])
def test_in_a_graph_of_any_type(dtype, jit_compile):
    scores = tf.cast(np.random.default_rng(0).normal(size=[3, 20]), dtype)
    expected = n_choose_k.log_z(tf.cast(scores, tf.float64), [2, 0, 20])

    def value_and_slope(scores, k):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = n_choose_k.log_z(scores, k)
        return value, tape.gradient(value, scores)

    signature = [tf.TensorSpec([None, None], dtype), tf.TensorSpec([None], tf.int32)]
    compiled = tf.function(value_and_slope, input_signature=signature, jit_compile=jit_compile)
    value, slope = compiled(scores, [2, 0, 20])
    assert value.dtype == tf.float32
    assert slope.dtype == dtype
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(tf.reduce_sum(tf.cast(slope, tf.float32), axis=1), [2, 0, 20], rtol=1e-2)


@pytest.mark.nightly
def test_invalid_instances_have_nan_and_do_not_change_others():
    scores = np.zeros([3, 4])
    scores[1, 2], scores[2, 0] = np.nan, np.inf
    assert np.isnan(n_choose_k.log_z(scores, 2)).tolist() == [False, True, True]
    assert np.isnan(n_choose_k.marginals(scores, 2)).all(axis=1).tolist() == [False, True, True]
    compiled = tf.function(n_choose_k.log_z)
    assert np.isnan(compiled(tf.zeros([3, 4]), tf.constant([-1, 2, 5]))).tolist() == [True, False, True]


def test_bad_input():
    for scores, k, message in (
        ([[0.0, 0.0], [0.0, 0.0]], [1, -1], r"k\[1\]=-1: outside 0\.\.2\. Choose"),
        ([[0.0, 0.0]], [1, 1], r"k=\(2,\): cannot be broadcast to \(1,\)\."),
        ([[0.0, 0.0]], 1.0, r"k=float32: not integers\. Cast"),
        ([[0, 1]], 1, r"scores=int32 \(1, 2\): not floats of shape \[\.\.\., n\]\. Convert"),
    ):
        for function in (n_choose_k.log_z, n_choose_k.marginals):
            with pytest.raises(ValueError, match=message):
                function(scores, k)


GRADED = np.array([[2, 0, 1, 0, 2, 1, 0], [0, 0, 0, 2, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1], [0] * 7], np.float32)


def random_scores():
    return np.random.default_rng(0).normal(size=GRADED.shape).astype(np.float32) * 2.0


def test_likelihood_of_levels_is_that_of_successive_sets():
    """The first list chooses 2 of 7 classes, then 2 of the other 5."""
    expected = []
    for scores, labels in zip(random_scores(), GRADED, strict=True):
        total = 0.0
        left = np.ones(7, bool)
        for level in (2, 1):
            chosen = labels == level
            total += by_all_sets(scores[left], int(chosen.sum()))[0] - scores[chosen].sum()
            left &= ~chosen
        expected.append(total)
    assert expected[2] == pytest.approx(0.0, abs=1e-6)
    # Levels without classes change nothing.
    for labels, levels in ((GRADED, 3), (GRADED + (GRADED == 2), 4)):
        actual = losses.n_choose_k(random_scores(), labels, levels=levels)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_one_class_per_level_is_plackett_luce():
    order = np.array([[3.0, 1.0, 0.0, 2.0]], np.float32)
    scores = random_scores()[:1, :4]
    expected = losses.list_mle(scores, order, seed=[0, 0])
    np.testing.assert_allclose(losses.n_choose_k(scores, order, levels=4), expected, rtol=1e-5)


def test_poisson_binomial_prior_is_logistic_regression():
    """Eq. 2: with p(k) = Z_k / sum Z the classes are independent."""
    scores = random_scores()
    labels = (GRADED > 0).astype(np.float32)
    k = labels.sum(axis=1).astype(int)
    log_sums = np.stack([n_choose_k.log_z(scores, i) for i in range(8)], axis=1)
    log_prior = log_sums[np.arange(4), k] - np.logaddexp.reduce(log_sums, axis=1)
    independent = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels, scores), axis=1)
    np.testing.assert_allclose(losses.n_choose_k(scores, labels) - log_prior, independent, rtol=1e-5)


def top_k_gain_by_all_sets(scores, labels, k):
    """Returns the loss and its gradient, from sums over the logarithms of all sets' probabilities."""
    sets = all_sets(len(scores), k)
    gains = sets @ labels
    log_all = sets @ scores
    log_gains = log_all[gains > 0.0] + np.log(gains[gains > 0.0])
    total = np.logaddexp.reduce(log_all)
    gained = np.logaddexp.reduce(log_gains)
    value = total - gained + np.log(np.sort(labels)[-k:].sum())
    return value, np.exp(log_all - total) @ sets - np.exp(log_gains - gained) @ sets[gains > 0.0]


@pytest.mark.parametrize("k", [1, 2, 5, 7])
def test_top_k_gain_is_the_probability_of_the_label_in_the_set(k):
    pairs = zip(random_scores(), GRADED, strict=True)
    expected = [top_k_gain_by_all_sets(*pair, k)[0] if pair[1].any() else 0.0 for pair in pairs]
    actual = losses.top_k_gain(random_scores(), GRADED, k=k)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("k", "temperature", "jit_compile"),
    [
        (1, 0.5, False),
        *(pytest.param(*case, marks=pytest.mark.nightly) for case in ((6, 4.0, False), (3, 0.5, True))),
    ],
)
def test_gains_of_any_size(k, temperature, jit_compile):
    """Relevant classes with low scores, gaps up to thousands, and labels that differ by a factor of 1e10."""
    spread = np.array([[0.0], [10.0], [100.0], [1000.0]])
    scores = np.sort(spread * np.random.default_rng(k).normal(size=[4, 7])).astype(np.float32)
    scores[0] = (39.28, 14.48, -9.97, -99.0, -99.0, -99.0, -99.0)
    labels = np.array([[0, 1, 1, 0, 0, 0, 0], [3, 0, 1e-10, 0, 0, 0, 0]], np.float32)[[0, 1, 1, 1]]

    def value_and_slope(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = losses.top_k_gain(scores, labels, k=k, temperature=temperature)
        return value, tape.gradient(value, scores)

    function = tf.function(value_and_slope, jit_compile=True) if jit_compile else value_and_slope
    value, slope = function(tf.constant(scores))
    # Division by a power of 2 is exact.
    expected = [top_k_gain_by_all_sets(*pair, k) for pair in zip(scores / temperature, labels, strict=True)]
    values, slopes = map(np.array, zip(*expected, strict=True))
    assert k > 3 or values.max() > 100.0
    np.testing.assert_allclose(value, values, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(slope * temperature, slopes, atol=1e-6)
    if (k, temperature) == (1, 0.5):
        assert values[0] == pytest.approx(49.6)
        np.testing.assert_allclose(slope[0], [2.0, -2.0, *[0.0] * 5], atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("k", [1, 3, 6])
def test_tiny_marginals(k):
    scores = np.array([0.0, 300.0, 100.0, 200.0, -100.0, 400.0, -200.0])
    sets = all_sets(7, k)
    chances = np.exp(sets @ scores - np.logaddexp.reduce(sets @ scores))
    expected = [chances[sets[:, j] > 0.0].sum() for j in range(7)]
    assert min(expected) < 1e-15
    np.testing.assert_allclose(n_choose_k.marginals(scores[None], k)[0], expected, rtol=2e-8)
    slope = gradient(lambda s: tf.math.log(n_choose_k.marginals(s, k))[0, 4], scores[None])
    of_sets_with = chances * sets[:, 4] / expected[4]
    np.testing.assert_allclose(slope[0], of_sets_with @ sets - chances @ sets, atol=1e-7)


def test_invalid_levels():
    for labels, levels, message in (
        ([[0.0, 2.0]], 2, r"labels\[0, 1\]=2: not a whole number in 0\.\.1\. Raise levels"),
        ([[0.5, 1.0]], 3, r"labels\[0, 0\]=0\.5: not a whole number in 0\.\.2"),
        ([[0.0, 1.0]], 1, "levels=1: not an integer of at least 2"),
    ):
        with pytest.raises(ValueError, match=message):
            losses.n_choose_k([[0.0, 0.0]], labels, levels=levels)
        if levels == 2 and labels[0][1] == 2.0:
            compiled = tf.function(losses.n_choose_k)
            assert np.isnan(compiled(tf.zeros([1, 2]), tf.constant(labels))).all()

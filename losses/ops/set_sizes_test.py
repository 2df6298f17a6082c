import numpy as np
import pytest
import tensorflow as tf

from rank4class.losses.ops import n_choose_k, set_sizes
from rank4class.losses.ops.n_choose_k_test import all_sets, log_z_by_recursion

SCORES = np.random.default_rng(0).normal(size=[3, 6]) * np.array([[1.0], [5.0], [40.0]])
PRIOR = np.log(np.random.default_rng(1).dirichlet(np.ones(7), size=3))
SETS = np.concatenate([all_sets(6, k) for k in range(7)]).astype(bool)


def log_chances(scores, prior):
    """Returns the logarithm of how likely each of `SETS` is."""
    values = SETS @ scores
    sizes = SETS.sum(axis=1)
    log_z = np.array([np.logaddexp.reduce(values[sizes == k]) for k in range(7)])
    return prior[sizes] + values - log_z[sizes]


NIGHTLY = [pytest.param(*sizes, marks=pytest.mark.nightly) for sizes in ((12, 4), (200, None))]


@pytest.mark.parametrize(("n", "most"), [(1, None), (3, None), (12, None), *NIGHTLY])
def test_all_counts_equal_the_recursion(n, most):
    spreads = np.array([[0.0], [1.0], [30.0], [100.0], [1e6], [1e11]])
    scores = np.random.default_rng(n).uniform(-spreads, spreads, size=[6, n])
    expected = [log_z_by_recursion(row, n if most is None else most) for row in scores]
    np.testing.assert_allclose(set_sizes.log_z_by_count(scores, most), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["normal", "two groups", "equal"])
def test_all_counts_of_many_classes_equal_single_counts(kind):
    rng = np.random.default_rng(0)
    scores = {
        "normal": rng.normal(size=3000),
        "two groups": np.repeat([-60.0, 60.0], 1500) + rng.normal(size=3000),
        "equal": np.zeros(3000),
    }[kind]
    values = set_sizes.log_z_by_count(tf.constant(scores)).numpy()
    k = np.unique(np.concatenate([[0, 1, 2, 3, 1499, 1500, 1501, 2999, 3000], rng.integers(3000, size=40)]))
    expected = n_choose_k.log_z(tf.constant(np.tile(scores, [len(k), 1])), k)
    np.testing.assert_allclose(values[k], expected, rtol=1e-11, atol=1e-11)


@pytest.mark.nightly
def test_masked_classes():
    where = np.array([[True] * 6, [True, False] * 3, [False] * 6])
    values = set_sizes.log_z_by_count(tf.constant(SCORES), where=where).numpy()
    np.testing.assert_allclose(values[1, :4], log_z_by_recursion(SCORES[1, ::2], 3), rtol=1e-12)
    assert (values[1, 4:] == -np.inf).all()
    assert values[2].tolist() == [0.0] + [-np.inf] * 6
    prior = np.where(np.arange(7) <= where.sum(axis=1, keepdims=True), PRIOR, -np.inf)
    chances = set_sizes.marginals(tf.constant(SCORES), prior, where=where).numpy()
    assert (chances[~where] == 0.0).all()
    subset = set_sizes.marginals(tf.constant(SCORES[1, ::2]), prior[1, :4])
    np.testing.assert_allclose(chances[1, ::2], subset, rtol=1e-10)


@pytest.mark.nightly
def test_gradients_of_all_counts_are_marginals():
    upstream = tf.constant(np.random.default_rng(0).normal(size=[3, 7]))
    scores = tf.constant(SCORES)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = tf.reduce_sum(upstream * set_sizes.log_z_by_count(scores))
    each = sum(upstream[:, k : k + 1] * n_choose_k.marginals(scores, k) for k in range(7))
    np.testing.assert_allclose(tape.gradient(value, scores), each, rtol=1e-9, atol=1e-12)


@pytest.mark.nightly
def test_poisson_binomial_is_the_count_of_independent_classes():
    scores = tf.constant(SCORES)
    probabilities = np.exp(set_sizes.poisson_binomial(scores))
    chances = np.array([np.prod(np.where(SETS, p, 1 - p), axis=1) for p in tf.sigmoid(scores).numpy()])
    for k in range(7):
        expected = chances[:, SETS.sum(axis=1) == k].sum(axis=1)
        np.testing.assert_allclose(probabilities[:, k], expected, rtol=1e-9)
    for i in range(0, len(SETS), 7):
        value = set_sizes.log_likelihood(scores, SETS[i : i + 1], set_sizes.poisson_binomial(scores))
        np.testing.assert_allclose(value, np.log(chances[:, i]), rtol=1e-9)
    marginals = set_sizes.marginals(scores, tf.math.log(probabilities))
    np.testing.assert_allclose(marginals, tf.sigmoid(scores), rtol=1e-9)


@pytest.mark.nightly
def test_brute_force():
    chances = np.exp([log_chances(s, p) for s, p in zip(SCORES, PRIOR, strict=True)])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    scores = tf.constant(SCORES)
    np.testing.assert_allclose(set_sizes.marginals(scores, PRIOR), chances @ SETS, rtol=1e-9)
    for i in (0, 5, 40, 63):
        value = set_sizes.log_likelihood(scores, SETS[i : i + 1], PRIOR)
        np.testing.assert_allclose(value, np.log(chances[:, i]), rtol=1e-9)
    np.testing.assert_array_equal(set_sizes.most_probable(scores, PRIOR), SETS[chances.argmax(axis=1)])


@pytest.mark.nightly
def test_most_probable_sets_of_random_priors():
    """Also with counts of probability 0, and with masked classes."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=[200, 6]) * 2.0
    priors = np.where(rng.random([200, 7]) < 0.4, -np.inf, -rng.random([200, 7]))
    priors[:, 2] = -3.0
    values = set_sizes.most_probable(scores, priors).numpy()
    expected = [SETS[np.argmax(log_chances(s, p))] for s, p in zip(scores, priors, strict=True)]
    np.testing.assert_array_equal(values, expected)
    assert len(set(values.sum(axis=1))) > 3
    where = np.arange(6) < 4
    priors[:, 5:] = -np.inf
    values = set_sizes.most_probable(scores, priors, where=where).numpy()
    np.testing.assert_array_equal(values[:, :4], set_sizes.most_probable(scores[:, :4], priors[:, :5]))
    assert not values[:, 4:].any()


def test_counts_of_probability_0():
    prior = np.log([0.5, 0.5])
    assert set_sizes.log_likelihood([[0.0, 0.0]], [[True, True]], prior).numpy() == -np.inf
    with np.errstate(divide="ignore"):
        prior = np.log([0.0, 0.0, 1.0])
    assert set_sizes.log_likelihood([[0.0, 0.0]], [[True, False]], prior).numpy() == -np.inf
    assert not set_sizes.most_probable([[0.0, 0.0]], np.zeros(1)).numpy().any()


def test_a_conditioned_prior_is_that_of_the_counts_that_are_left():
    prior = tf.math.log([[0.1, 0.2, 0.3, 0.4], [0.0, 0.5, 0.0, 0.5]])
    where = np.array([[True, False, True, False, False], [True] * 5])
    expected = [[1 / 6, 2 / 6, 3 / 6, 0.0], [0.0, 0.5, 0.0, 0.5]]
    np.testing.assert_allclose(tf.exp(set_sizes.conditioned(prior, where)), expected, rtol=1e-6)
    scores = np.array([[1.0, 9.0, 2.0, 9.0, 9.0], [1.0, 2.0, 3.0, 4.0, 5.0]], np.float32)
    marginals = set_sizes.marginals(scores, set_sizes.conditioned(prior, where), where=where)
    np.testing.assert_allclose(tf.reduce_sum(marginals, axis=1), [8 / 6, 2.0], rtol=1e-6)


@pytest.mark.nightly
def test_in_a_graph():
    def all_of(scores):
        return set_sizes.marginals(scores, PRIOR[0]), set_sizes.log_z_by_count(scores, 3)

    scores = tf.cast(SCORES, tf.bfloat16)
    for size in (None, 3):
        signature = [tf.TensorSpec([size, 6], tf.bfloat16)]
        compiled = tf.function(all_of, input_signature=signature, jit_compile=size == 3)
        for values, expected in zip(compiled(scores), all_of(scores), strict=True):
            np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_bad_priors():
    for prior, where, message in (
        (np.zeros(4), None, r"log_prior=\(4,\): of counts up to 3, but there are only 2 classes\. Shorten"),
        (np.zeros([5, 2]), None, r"log_prior=\(5, 2\): cannot be broadcast to \(1, 2\)\. "),
        (np.array([0.0, np.nan]), None, r"log_prior\[0\]: no distribution of counts up to .* Correct it\."),
        (np.full(3, -np.inf), None, r"log_prior\[0\]: no distribution of counts"),
        (np.zeros(3), [True, False], r"log_prior\[0\]: no distribution of counts"),
    ):
        for function in (set_sizes.marginals, set_sizes.most_probable):
            with pytest.raises(ValueError, match=message):
                function([[0.0, 0.0]], prior, where=where)


@pytest.mark.nightly
def test_search_without_classes():
    hopeless = [[np.nan] * 10, [1e20] * 10, [-np.inf] * 9 + [0.0], [1e25, -1e25] * 5]
    scores = tf.constant([*hopeless, [0.0] * 10], tf.float64)
    prior = np.zeros(4)
    expected = [True] * 4 + [False]
    assert np.isnan(set_sizes.log_z_by_count(scores, 3)).all(axis=1).tolist() == expected
    assert np.isnan(set_sizes.marginals(scores, prior)).all(axis=1).tolist() == expected
    assert np.isnan(set_sizes.log_likelihood(scores, SETS[:1].repeat(2, 1)[:, :10], prior))[:4].all()
    assert not set_sizes.most_probable(scores, prior).numpy()[:4].any()
    for function in (set_sizes.marginals, set_sizes.most_probable):  # of the last one alone
        np.testing.assert_allclose(function(scores, prior)[4:], function(scores[4:], prior), rtol=1e-12)


def test_bad_counts():
    with pytest.raises(ValueError, match=r"scores=\(2, 0\): no classes\. Give at least one"):
        set_sizes.log_z_by_count(tf.zeros([2, 0]))
    with pytest.raises(ValueError, match="most=3: not an integer in 0..2"):
        set_sizes.log_z_by_count([[0.0, 0.0]], 3)


@pytest.mark.nightly
def test_marginals_of_several_counts_have_no_derivative():
    scores = tf.constant(SCORES)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = set_sizes.marginals(scores, PRIOR)
    with pytest.raises(LookupError, match="marginals: those of several counts have no gradient"):
        tape.gradient(value, scores)

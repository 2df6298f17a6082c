"""Sorters: values by hand, order and gradients, masked lists, and invalid arguments."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from rank4class.models import sorters

SCORES = np.random.default_rng(1).normal(size=[8, 10]).astype(np.float32)
TIED = np.round(SCORES)


@pytest.fixture(scope="module", params=sorters.SORTERS)
def sorter(request):
    """Returns each sorter, built once."""
    return sorters.get(request.param)


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorters.SORTERS)
def test_ranks_and_finite_gradients_for_extreme_scores(name):
    sorter = sorters.get(name)
    cases = [SCORES, TIED, np.zeros_like(SCORES), 1e4 * SCORES, 1e4 + SCORES, -1e4 * TIED, 1e-20 * SCORES]

    @tf.function(jit_compile=True)
    def ranks_and_gradient(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            ranks = sorter(scores)
            loss = tf.reduce_sum(ranks * tf.range(10.0))
        return ranks, tape.gradient(loss, scores, unconnected_gradients="zero")

    for scores in cases:
        ranks, gradient = ranks_and_gradient(tf.constant(scores))
        assert ranks.dtype == tf.float32
        assert ((ranks.numpy() > 0.0) & (ranks.numpy() < 1.0 + 1e-6)).all(), scores
        assert np.isfinite(gradient).all(), scores


def test_shapes_and_rank_functions(sorter):
    lists = tf.constant(SCORES.reshape(2, 4, 10))
    ranks = sorter(lists)
    assert ranks.shape == [2, 4, 10]
    np.testing.assert_array_equal(tf.reshape(ranks, [8, 10]), sorter(SCORES))
    np.testing.assert_allclose(sorter.rank_fn(lists), 10.0 * ranks, rtol=1e-6)
    half = sorter(tf.cast(SCORES[0], tf.float16))
    assert half.shape == [10]
    assert half.dtype == tf.float32


def test_exact_ranks_are_means_among_ties():
    exact = sorters.get("exact")
    for scores in (SCORES, TIED, np.zeros_like(SCORES)):
        np.testing.assert_allclose(exact.rank_fn(scores), scipy.stats.rankdata(-scores, axis=1), rtol=1e-6)
    with tf.GradientTape() as tape:
        scores = tf.constant(SCORES)
        tape.watch(scores)
        ranks = exact(scores)
    assert tape.gradient(ranks, scores) is None


def test_handcrafted_written_out():
    results = sorters.get("handcrafted", sharpness=3.0)(SCORES).numpy()
    for scores, ranks in zip(SCORES.astype(float), results, strict=True):
        for i in range(10):
            comparisons = sum(1 / (1 + np.exp(-3.0 * (scores[j] - scores[i]))) for j in range(10) if j != i)
            assert ranks[i] == pytest.approx((1 + comparisons) / 10, rel=1e-5)


def equivariant_ranks(scores, sharpness):
    """The equivariant sorter's definition, one pair at a time."""
    n = len(scores)
    positions = (scores - scores.mean()) / scores.std() * n / np.sqrt(12)
    ranks = np.full(n, 0.5)
    for i in range(n):
        for j in range(n):
            x = sharpness * (positions[j] - positions[i])
            ranks[i] += 0.5 * np.exp(x) if x < 0 else 1 - 0.5 * np.exp(-x)
    return ranks


def test_equivariant_written_out():
    sorter = sorters.get("equivariant")
    sharpness = float(np.exp(sorter.weights[0].numpy()))
    expected = [equivariant_ranks(scores.astype(float), sharpness) for scores in SCORES]
    np.testing.assert_allclose(sorter.rank_fn(SCORES), expected, rtol=1e-5)
    assert sorter.count_params() == 1


@pytest.mark.parametrize("name", ["exact", "equivariant"])
@pytest.mark.parametrize(("n", "digits"), [(2, 0), (10, 6), (100, 0), (1000, 6)])
def test_sorters_are_equivariant_bit_for_bit(name, n, digits, rng):
    sorter = sorters.get(name)
    scores = rng.normal(size=[4, n]).round(digits).astype(np.float32)  # with ties, and almost without
    ranks = sorter(scores).numpy()
    for _ in range(5):
        order = rng.permutation(n)
        np.testing.assert_array_equal(sorter(scores[:, order]).numpy(), ranks[:, order])


def test_equivariant_preserves_order_and_sum_and_ignores_scale(rng):
    sorter = sorters.get("equivariant")
    for scores in (SCORES, TIED, rng.standard_cauchy(size=[20, 300]).astype(np.float32)):
        n = scores.shape[1]
        ranks = sorter.rank_fn(scores).numpy()
        np.testing.assert_allclose(ranks.sum(axis=1), n * (n + 1) / 2, rtol=1e-5)
        order = np.argsort(-scores, axis=1, kind="stable")
        assert (np.diff(np.take_along_axis(ranks, order, axis=1), axis=1) >= 0).all()
        for list_scores, list_ranks in zip(scores, ranks, strict=True):
            assert all(np.ptp(list_ranks[list_scores == score]) == 0.0 for score in list_scores)
        np.testing.assert_allclose(sorter.rank_fn(1e4 * scores - 7e3), ranks, rtol=1e-2)
    np.testing.assert_array_equal(sorter.rank_fn(np.full([1, 5], 7.0, np.float32)), [[3.0] * 5])


@pytest.mark.nightly
def test_gradient_equals_finite_differences(rng):
    for name in ("handcrafted", "equivariant"):
        sorter = sorters.get(name)
        scores = SCORES[:2].astype(np.float32)
        weights = rng.normal(size=scores.shape).astype(np.float32)
        with tf.GradientTape() as tape:
            watched = tf.constant(scores)
            tape.watch(watched)
            total = tf.reduce_sum(sorter(watched) * weights)
        gradient = tape.gradient(total, watched).numpy()
        for i in range(10):
            step = np.zeros_like(scores)
            step[:, i] = 1e-3
            ends = [(sorter(scores + sign * step).numpy() * weights).sum(axis=1) for sign in (1, -1)]
            np.testing.assert_allclose(gradient[:, i], (ends[0] - ends[1]) / 2e-3, atol=2e-3)


def test_ties_have_the_gradient_of_nearby_scores():
    """The derivative of the comparison is continuous where two scores are equal."""
    sorter = sorters.get("equivariant")

    def gradient(second):
        scores = tf.constant([[1.0, second, 0.0, -1.0]])
        with tf.GradientTape() as tape:
            tape.watch(scores)
            first = sorter(scores)[0, 0]
        return tape.gradient(first, scores).numpy()

    tied = gradient(1.0)
    assert abs(tied[0, 0]) > 0.1
    for nearby in (1.0 - 1e-4, 1.0 + 1e-4):
        np.testing.assert_allclose(gradient(nearby), tied, atol=2e-3)


@pytest.mark.parametrize("name", ["exact", "handcrafted", "equivariant"])
def test_ranks_of_a_masked_list_equal_those_of_the_shorter_list(name):
    sorter = sorters.get(name)
    where = np.arange(10) < 6
    changed = np.where(where, SCORES, 1e9).astype(np.float32)
    ranks = sorter.rank_fn(changed, where).numpy()
    np.testing.assert_allclose(ranks[:, :6], sorter.rank_fn(SCORES[:, :6]), rtol=1e-5)
    np.testing.assert_allclose(ranks[:, 6:], 7.0, rtol=1e-6)
    assert np.isfinite(sorter(SCORES, np.zeros_like(SCORES, bool))).all()
    one = sorter.rank_fn(SCORES, np.arange(10) == 3)
    np.testing.assert_allclose(one[:, 3], 1.0, rtol=1e-6)


def test_a_saved_sorter_does_not_need_its_file(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(sorters.to_bytes(sorters.get("equivariant")))
    inputs = tf.keras.Input([4])
    model = tf.keras.Model(inputs, sorters.get("equivariant", trained=str(path))(inputs))
    expected = model(SCORES[:, :4])
    model.save(tmp_path / "model.keras")
    path.unlink()
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(SCORES[:, :4]), expected)


def test_invalid_arguments():
    for arguments, message in (
        ({"name": "bubble"}, "sorter='bubble': unknown. There are: exact, handcrafted, equivariant"),
        ({"name": "exact", "sharpness": 2.0}, "sharpness: sorter 'exact' has no such option"),
        ({"name": "equivariant", "trained": "nowhere"}, "nowhere: cannot be read"),
    ):
        with pytest.raises(ValueError, match=message):
            sorters.get(**arguments)


def test_masked_scores_may_be_nan(sorter):
    where = np.tile(np.arange(10) < 7, [8, 1])
    where[5] = False
    scores = tf.constant(np.where(where, SCORES, np.nan))
    with tf.GradientTape() as tape:
        tape.watch(scores)
        ranks = sorter.rank_fn(scores, where)
    np.testing.assert_allclose(ranks, sorter.rank_fn(np.where(where, SCORES, 0.0), where), rtol=1e-6)
    assert np.isfinite(tape.gradient(ranks, scores, unconnected_gradients="zero")).all()

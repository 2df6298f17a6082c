"""Sorters: values by hand, order and gradients, masked lists, and invalid arguments."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from rank4class.models import precision, sorters
from rank4class.models.sorters import order_statistics

SCORES = np.random.default_rng(1).normal(size=[8, 10]).astype(np.float32)
TIED = np.round(SCORES)


@pytest.fixture(scope="module", params=sorters.SORTERS)
def sorter(request):
    """Returns each sorter, built once."""
    return sorters.get(request.param, n=10)


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorters.SORTERS)
def test_ranks_and_finite_gradients_for_extreme_scores(name):
    options = {"trained": None, "units": 4, "layers": 1} if name == "lstm" else {}  # compiles faster
    sorter = sorters.get(name, n=10, **options)
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


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["cnn", "lstm"])
def test_a_sorter_of_one_length_ranks_a_filled_list(name, rng):
    sorter = sorters.get(name, n=10)
    where = np.arange(10) % 5 < 3
    other = np.where(where, SCORES, rng.normal(size=SCORES.shape)).astype(np.float32)
    np.testing.assert_array_equal(sorter.rank_fn(SCORES, where), sorter.rank_fn(other, where))
    np.testing.assert_allclose(sorter.rank_fn(SCORES, where).numpy()[:, ~where], 7.0, rtol=1e-6)
    filled = order_statistics.fill_masked(tf.constant(SCORES), tf.constant(np.tile(where, [8, 1])))
    filled_ranks = sorter.rank_fn(filled).numpy()[:, where]
    masked_ranks = sorter.rank_fn(SCORES, where).numpy()[:, where]
    exact_filled = scipy.stats.rankdata(-filled.numpy(), axis=1)[:, where]
    exact_masked = scipy.stats.rankdata(-SCORES[:, where], axis=1)
    for i in range(8):
        # Linear between whole ranks. It extrapolates beyond the first and the last, which np.interp does not.
        inner = (filled_ranks[i] > exact_filled[i].min()) & (filled_ranks[i] < exact_filled[i].max())
        expected = np.interp(filled_ranks[i], np.sort(exact_filled[i]), np.sort(exact_masked[i]))
        np.testing.assert_allclose(masked_ranks[i, inner], expected[inner], rtol=1e-4)
        assert inner.sum() >= 3


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["cnn", "lstm"])
def test_sorters_compute_in_float32_under_any_policy(name):
    expected = sorters.get(name, n=10)(SCORES)
    with precision.scope("mixed_float16"):
        np.testing.assert_array_equal(sorters.get(name, n=10)(SCORES), expected)


def test_ranks_out_of_bounds_are_clipped_and_keep_their_gradient():
    sorter = sorters.get("lstm", n=10)
    readout = sorter.net.get_layer("readout")
    readout.bias.assign([9.0])
    scores = tf.constant(SCORES)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        ranks = sorter(scores)
        total = tf.reduce_sum(ranks * tf.range(10.0))
    np.testing.assert_array_equal(ranks, np.ones_like(SCORES))
    assert np.abs(tape.gradient(total, scores)).max() > 0


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
        ({"name": "bubble"}, "sorter='bubble': unknown. There are: exact, handcrafted, cnn, lstm"),
        ({"name": "cnn", "n": 57}, "no weights of sorter 'cnn' for lists of 57 are shipped.*train_sorter"),
        ({"name": "cnn", "n": 1, "trained": None}, "n=1: not an integer of at least 2"),
        ({"name": "cnn", "n": 9, "trained": None, "layers": 0}, "layers=0: not"),
        ({"name": "exact", "sharpness": 2.0}, "sharpness: sorter 'exact' has no such option"),
        ({"name": "cnn", "n": 9, "trained": "nowhere"}, "nowhere: cannot be read"),
        ({"name": "lstm", "n": 10, "units": 4}, "other weights than those of sorter 'lstm' with n=10. Set"),
    ):
        with pytest.raises(ValueError, match=message):
            sorters.get(**arguments)


@pytest.mark.nightly
def test_lists_of_another_length():
    sorter = sorters.get("cnn", n=10)
    with pytest.raises(ValueError, match="sorter 'cnn' is for lists of 10 scores, not of 9"):
        sorter(SCORES[:, :9])
    any_length = tf.function(sorter, input_signature=[tf.TensorSpec([None, None])])
    np.testing.assert_allclose(any_length(SCORES), sorter(SCORES), rtol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[5,4\] is not compatible with .*\[\?,10\]"):
        any_length(SCORES[:5, :4])


def test_masked_scores_may_be_nan(sorter):
    where = np.tile(np.arange(10) < 7, [8, 1])
    where[5] = False
    scores = tf.constant(np.where(where, SCORES, np.nan))
    with tf.GradientTape() as tape:
        tape.watch(scores)
        ranks = sorter.rank_fn(scores, where)
    np.testing.assert_allclose(ranks, sorter.rank_fn(np.where(where, SCORES, 0.0), where), rtol=1e-6)
    assert np.isfinite(tape.gradient(ranks, scores, unconnected_gradients="zero")).all()

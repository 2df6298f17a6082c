"""Sorters of lists of one length: filled lists, bounds, weights of files, and invalid lists."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from rank4class.models import precision, sorters
from rank4class.scripts.research.sorters import networks

SCORES = np.random.default_rng(1).normal(size=[8, 10]).astype(np.float32)


def filled_list(scores, where):
    """Returns one list as `fill_masked` defines it, one score at a time."""
    scores = np.where(where, scores, 0.0).astype(np.float64)
    size = where.sum()
    num_masked = (~where).sum()
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
    filled = networks.fill_masked(scores, tf.constant(where))
    if size > 1:
        for result, original, mask in zip(filled.numpy(), scores.numpy(), where, strict=True):
            np.testing.assert_allclose(result, filled_list(original, mask), rtol=1e-4, atol=1e-6)
    exact = sorters.get("exact")
    ranks = networks.ranks_without_masked(exact.rank_fn(filled), tf.constant(where))
    if size > 1:
        np.testing.assert_allclose(ranks[where], exact.rank_fn(scores, where)[where], rtol=1e-5)
    assert np.isfinite(ranks).all()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["cnn", "lstm"])
def test_a_sorter_of_one_length_ranks_a_filled_list(name, rng):
    sorter = sorters.get(name, n=10)
    where = np.arange(10) % 5 < 3
    other = np.where(where, SCORES, rng.normal(size=SCORES.shape)).astype(np.float32)
    np.testing.assert_array_equal(sorter.rank_fn(SCORES, where), sorter.rank_fn(other, where))
    np.testing.assert_allclose(sorter.rank_fn(SCORES, where).numpy()[:, ~where], 7.0, rtol=1e-6)
    filled = networks.fill_masked(tf.constant(SCORES), tf.constant(np.tile(where, [8, 1])))
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


@pytest.mark.nightly
def test_lists_of_another_length():
    sorter = sorters.get("cnn", n=10)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[8,9\] is not compatible with .*\[\?,10\]"):
        sorter(SCORES[:, :9])
    any_length = tf.function(sorter, input_signature=[tf.TensorSpec([None, None])])
    np.testing.assert_allclose(any_length(SCORES), sorter(SCORES), rtol=1e-5)
    with pytest.raises(ValueError, match="cnn-57.safetensors: cannot be read"):
        sorters.get("cnn", n=57)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["lstm", "cnn"])
def test_weights_are_restored_from_a_file(name, tmp_path, rng):
    sorter = sorters.get(name, n=10, trained=None, layers=2)
    for weight in sorter.weights:
        weight.assign(rng.normal(size=weight.shape).astype(np.float16).astype(np.float32) ** 2)
    path = tmp_path / "weights.safetensors"
    path.write_bytes(sorters.to_bytes(sorter, sizes="10"))
    restored = sorters.get(name, n=10, trained=str(path), layers=2)
    for actual, expected in zip(restored.get_weights(), sorter.get_weights(), strict=True):
        np.testing.assert_array_equal(np.asarray(actual, np.float16), np.asarray(expected, np.float16))
    with pytest.raises(ValueError, match="weights.safetensors: for lists of 10 scores, not of 11"):
        sorters.get(name, n=11, trained=str(path), layers=2)
    with pytest.raises(ValueError, match=f"weights.safetensors: other weights than those of sorter '{name}'"):
        sorters.get(name, n=10, trained=str(path), layers=3)

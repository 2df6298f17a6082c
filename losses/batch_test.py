"""Losses on a rank function: values against SciPy, scikit-learn and arithmetic; masks, optima, saving."""

import functools
import types

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import tensorflow as tf

from rank4class import losses
from rank4class.losses import batch
from rank4class.losses.ops import ranks

SOFT = {
    "sigmoid": lambda scores, where=None: ranks.sigmoid_ranks(scores * 5.0, where),
    "neural_sort": ranks.neural_sort_ranks,
    "soft_sort": lambda scores, where=None: ranks.soft_sort_ranks(scores * 5.0, where),
}


def test_spearman_is_one_minus_the_correlation(rng):
    for _ in range(5):
        scores, targets = rng.normal(size=[2, 30]).astype(np.float32)
        values = batch.spearman(scores, targets, rank_fn=ranks.mean_ranks)
        assert values.shape == [30]
        expected = 1.0 - scipy.stats.spearmanr(scores, targets).statistic
        assert np.mean(values) == pytest.approx(expected, rel=1e-4)
    values = batch.spearman([0.1, 0.2, 0.3], [2.0, 2.0, 1.0], rank_fn=ranks.mean_ranks)
    np.testing.assert_allclose(values, np.array([1.5**2, 0.5**2, 2.0**2]) * 6 / 8, rtol=1e-6)


def test_average_precision_equals_scikit_learn(rng):
    for _ in range(5):
        scores = rng.normal(size=[40, 6]).astype(np.float32)
        labels = (rng.random([40, 6]) < 0.2).astype(np.float32)
        labels[:, 0] = 0.0  # a class without an instance does not count
        values = batch.mean_average_precision(scores, labels, rank_fn=ranks.mean_ranks, form="precision")
        expected = sklearn.metrics.average_precision_score(labels[:, 1:], scores[:, 1:], average="macro")
        assert np.mean(values) == pytest.approx(-expected, rel=1e-4)


def test_ranks_written_out():
    scores = np.array([[0.9, 0.1], [0.1, 0.5], [0.5, 0.2]], np.float32)
    labels = [[1, 0], [1, 1], [0, 1]]
    values = batch.mean_average_precision(scores, labels, rank_fn=ranks.mean_ranks)
    np.testing.assert_allclose(values, [1 / 3, 3 / 3 + 1 / 3, 2 / 3], rtol=1e-6)
    ids = batch.mean_average_precision(scores, [0, 0, 1], rank_fn=ranks.mean_ranks)
    np.testing.assert_allclose(ids, [1 / 3, 3 / 3, 2 / 3], rtol=1e-6)


@pytest.mark.parametrize("name", SOFT)
def test_masked_entries_do_not_change_losses(name, rng):
    rank_fn = SOFT[name]
    scores = rng.normal(size=[9]).astype(np.float32)
    targets = rng.normal(size=[9]).astype(np.float32)
    where = np.arange(9) < 6
    spoiled = np.where(where, scores, np.nan)
    values = batch.spearman(spoiled, np.where(where, targets, np.nan), where=where, rank_fn=rank_fn)
    unmasked = batch.spearman(scores[:6], targets[:6], rank_fn=rank_fn)
    np.testing.assert_allclose(values[:6], unmasked, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(values[6:], 0.0)

    scores = rng.normal(size=[9, 3]).astype(np.float32)
    labels = (rng.random([9, 3]) < 0.5).astype(np.float32)
    spoiled = np.where(where[:, None], scores, np.inf)
    for form in batch.FORMS:
        loss = functools.partial(batch.mean_average_precision, rank_fn=rank_fn, form=form)
        values = loss(spoiled, labels, where=where[:, None]).numpy()
        unmasked = loss(scores[:6], labels[:6])
        scale = 9 / 6 if form == "precision" else 1.0  # the mean is over all rows of the batch
        np.testing.assert_allclose(values[:6], scale * unmasked, rtol=1e-4)
        np.testing.assert_array_equal(values[6:], 0.0)


@pytest.mark.parametrize("name", SOFT)
def test_a_step_along_the_gradient_lowers_the_loss(name, rng):
    rank_fn = SOFT[name]
    targets = rng.normal(size=[8]).astype(np.float32)
    labels = (rng.random([8, 8]) < 0.3).astype(np.float32)
    for loss in (
        lambda s: batch.spearman(s[:, 0], targets, rank_fn=rank_fn),
        lambda s: batch.mean_average_precision(s, labels, rank_fn=rank_fn),
        lambda s: batch.mean_average_precision(s, labels, rank_fn=rank_fn, form="precision"),
    ):
        scores = tf.constant(rng.normal(size=[8, 8]), tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = tf.reduce_mean(loss(scores))
        slope = tape.gradient(value, scores)
        step = 1e-3 / tf.norm(slope)
        after = tf.reduce_mean(loss(scores - step * slope))
        np.testing.assert_allclose(value - after, 1e-3 * tf.norm(slope), rtol=0.1)


@pytest.mark.nightly
def test_gradients_are_finite_for_ties_and_extremes(rng):
    targets = tf.range(6.0)
    labels = tf.eye(6)

    @tf.function(jit_compile=True)
    def value_and_gradient(scores, rank_fn):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = tf.reduce_sum(batch.spearman(scores[:, 0], targets, rank_fn=rank_fn, l1=0.5))
            for form in batch.FORMS:
                value += tf.reduce_sum(
                    batch.mean_average_precision(scores, labels, rank_fn=rank_fn, form=form, l1=0.5)
                )
        return value, tape.gradient(value, scores)

    for rank_fn in SOFT.values():
        for scores in (np.zeros([6, 6]), 1e4 * rng.normal(size=[6, 6]), rng.integers(0, 2, [6, 6])):
            value, gradient = value_and_gradient(tf.constant(scores, tf.float32), rank_fn)
            assert np.isfinite(value)
            assert np.isfinite(gradient).all()


def test_nan_never_looks_good():
    scores = np.zeros([4, 4], np.float32)
    scores[1, 2] = np.nan
    exact = ranks.mean_ranks
    assert np.isnan(batch.spearman(scores[1], np.arange(4.0), rank_fn=exact)).all()
    assert np.isnan(batch.mean_average_precision(scores, np.eye(4), rank_fn=exact)).all()


def test_targets_are_ranked_in_their_own_type():
    targets = np.array([1_700_000_003, 1_700_000_001, 1_700_000_002])
    scores = [0.1, 0.3, 0.2]
    value = batch.spearman(scores, targets, rank_fn=ranks.all_ranks)
    assert value.numpy().mean() == 1.0 - scipy.stats.spearmanr(scores, targets).statistic == 2.0


def test_l1_is_added():
    scores = np.array([0.0, 2.0, 1.0], np.float32)
    targets = np.array([1.0, 2.0, 3.0], np.float32)
    plain = batch.spearman(scores, targets, rank_fn=ranks.mean_ranks)
    beside = batch.spearman(scores, targets, rank_fn=ranks.mean_ranks, l1=0.5)
    np.testing.assert_allclose(beside - plain, [0.5, 0.0, 1.0], rtol=1e-6)
    matrix = np.array([[0.5, 0.0], [1.0, 3.0]], np.float32)
    # The mean is over the classes that take part.
    for where, errors in ((None, [0.5, 3.0]), ([[True, False], [True, True]], [1.0, 3.0])):
        loss = functools.partial(batch.mean_average_precision, rank_fn=ranks.mean_ranks, where=where)
        added = loss(matrix, np.eye(2), l1=2.0) - loss(matrix, np.eye(2))
        np.testing.assert_allclose(added, errors, rtol=1e-6)


def test_weights_multiply(rng):
    scores, targets = rng.normal(size=[2, 5]).astype(np.float32)
    plain = batch.spearman(scores, targets, rank_fn=ranks.mean_ranks)
    weighed = batch.spearman(scores, targets, rank_fn=ranks.mean_ranks, weights=[0.0, 1.0, 2.0, 0.5, 1.0])
    np.testing.assert_allclose(weighed, plain * [0.0, 1.0, 2.0, 0.5, 1.0])


A_SORTER = types.SimpleNamespace(rank_fn=abs, name="mine")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: batch.spearman([1.0, 2.0], [1.0, 2.0]), "rank_fn=None: not a function"),
        (lambda: batch.spearman([[1.0]], [[1.0]], rank_fn=abs), r"scores=float32 \(1, 1\): not floats of"),
        (lambda: batch.spearman([1.0], [1.0, 2.0], rank_fn=abs), r"labels=\(2,\): do not fit scores"),
        (lambda: batch.mean_average_precision([[1.0]], [[1]], form="roc"), "form='roc': unknown"),
        (lambda: batch.mean_average_precision([[1.0], [2.0]], [0, 1], rank_fn=abs), r"\[1\]=1: outside"),
        (lambda: losses.Spearman(rank_fn=abs)([[1.0, 2.0]], [[1.0, 2.0]]), r"scores=\(1, 2\): not one per"),
        (lambda: batch.spearman([1.0], [1.0], rank_fn=A_SORTER), "rank_fn=sorter 'mine': its ranks are in"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_invalid_labels_have_nan_losses_in_compiled_code():
    compiled = tf.function(functools.partial(batch.mean_average_precision, rank_fn=ranks.mean_ranks))
    scores = tf.constant([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
    values = compiled(scores, tf.constant([0, 1, 2]))
    np.testing.assert_array_equal(np.isnan(values), [False, False, True])
    values = compiled(scores, tf.constant([[1.0, 0.0], [-1.0, 0.0], [0.0, np.nan]]))
    np.testing.assert_array_equal(np.isnan(values), [False, True, True])
    values = batch.spearman(scores[:, 0], [1.0, np.nan, 2.0], rank_fn=ranks.mean_ranks)
    assert np.isnan(values).all()


@pytest.mark.nightly
def test_as_keras_losses(tmp_path, rng):
    """A regression by Spearman's correlation: trained, saved and loaded."""
    x = rng.normal(size=[64, 3]).astype(np.float32)
    y = np.exp(x @ [1.0, -2.0, 0.5]).astype(np.float32)
    model = tf.keras.Sequential([tf.keras.layers.Input([3]), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.Adam(0.05), loss=losses.Spearman(rank_fn=ranks.sigmoid_ranks, l1=0.1))
    before = model.evaluate(x, y, batch_size=64, verbose=0)
    model.fit(x, y, batch_size=64, epochs=10, verbose=0)
    after = model.evaluate(x, y, batch_size=64, verbose=0)
    assert after < before
    model.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    assert again.evaluate(x, y, batch_size=64, verbose=0) == pytest.approx(after, rel=1e-5)
    assert again.loss.options["l1"] == 0.1

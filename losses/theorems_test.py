"""The papers' theorems about losses and metrics, over drawn cases and all orders of few classes."""

import itertools

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest

from rank4class import losses
from rank4class.losses import metrics

drawn = hypothesis.settings(max_examples=12, deadline=None, derandomize=True)
SCORES = st.floats(-6.0, 6.0, width=32)
SEEDS = st.integers(0, 2**32 - 1)


@drawn
@hypothesis.given(
    scores=hnp.arrays(np.float32, st.tuples(st.just(4), st.integers(2, 9)), elements=SCORES), seed=SEEDS
)
def test_softmax_bounds_the_logarithms_of_mrr_and_ndcg(scores, seed):
    """Rank4Class, Theorem 2: `-log(mean MRR)` and `-log(mean NDCG)` are at most the mean cross entropy."""
    rng = np.random.default_rng(seed)
    n = scores.shape[1]
    ids = rng.integers(n, size=len(scores))
    grades = rng.integers(4, size=scores.shape)
    grades[:, 0] += 1
    gains = 2.0**grades - 1.0
    shares = (gains / gains.sum(axis=1, keepdims=True)).astype(np.float32)
    for (labels, gained), metric in itertools.product(
        ((ids, ids), (shares, grades)), (metrics.mrr, metrics.ndcg)
    ):
        cross_entropy = losses.softmax(scores, labels).numpy()
        values = metric(scores, gained).numpy()
        assert (cross_entropy >= -np.log(values) - 1e-5).all()
        assert cross_entropy.mean() >= -np.log(values.mean()) - 1e-5


def every_labelling(theta, levels, rng):
    """Returns all labels `[N, n]`, and their probabilities under a random distribution of the counts."""
    labels = np.array(list(itertools.product(range(levels), repeat=len(theta))), np.float32)
    counts = [tuple(np.bincount(row.astype(int), minlength=levels)) for row in labels]
    sizes = sorted(set(counts))
    prior = dict(zip(sizes, rng.dirichlet(np.full(len(sizes), 0.3)), strict=True))
    nll = losses.n_choose_k(np.tile(theta, [len(labels), 1]), labels, levels=levels).numpy()
    return labels, np.exp(-nll) * [prior[count] for count in counts]


def expected_gains(labels, probabilities, levels, rng):
    """Returns name -> expected gain of every order of the classes, `[n!]`, and the orders `[n!, n]`."""
    n = labels.shape[1]
    orders = np.array(list(itertools.permutations(range(n))))
    places = np.argsort(orders, axis=1)
    scores = np.repeat(-places.astype(np.float32), len(labels), axis=0)
    repeated = np.tile(labels, [len(orders), 1])
    values = {"ndcg": metrics.ndcg(scores, repeated)}
    for k in range(1, n):
        values[f"ndcg@{k}"] = metrics.ndcg(scores, repeated, k)
        values[f"precision@{k}"] = metrics.grade_precision(scores, repeated, k, levels - 1)
    # A gain of Definition 1: weights that never rise with the place, gains that never fall with the level.
    weights = np.sort(rng.random(n))[::-1]
    gains = np.sort(rng.random(levels))
    values["monotonic"] = (gains[labels.astype(int)][:, orders] * weights).sum(axis=2).T
    return {name: np.reshape(v, [len(orders), -1]) @ probabilities for name, v in values.items()}, orders


@pytest.mark.parametrize(("levels", "n"), [(2, 4), (3, 3)])
@drawn
@hypothesis.given(draw=st.data(), seed=SEEDS)
def test_sorting_the_scores_is_optimal_for_monotonic_gains(levels, n, draw, seed):
    """n-choose-k, Theorem 1: no order has a higher expected gain, for any distribution of the counts."""
    rng = np.random.default_rng(seed)
    theta = draw.draw(hnp.arrays(np.float32, n, elements=SCORES))
    labels, probabilities = every_labelling(theta, levels, rng)
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-5)
    gains, orders = expected_gains(labels, probabilities, levels, rng)
    is_sorted = (np.diff(theta[orders], axis=1) <= 0.0).all(axis=1)
    for name, gain in gains.items():
        np.testing.assert_allclose(gain[is_sorted], gain.max(), rtol=1e-5, atol=1e-6, err_msg=name)


def test_other_orders_have_lower_expected_gains(rng):
    theta = np.array([2.0, -1.0, 0.5, 1.0], np.float32)
    gains, orders = expected_gains(*every_labelling(theta, 3, rng), 3, rng)
    best = orders.tolist().index([0, 3, 2, 1])
    for name, gain in gains.items():
        assert gain.argmax() == best or gain[best] == pytest.approx(gain.max(), rel=1e-6), name
        assert gain[orders.tolist().index([1, 2, 3, 0])] < 0.9 * gain[best], name

"""Candidates: probabilities of the classes, their batches, and the nearest wrong classes."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy.sparse import csr_array

from rank4class import data
from rank4class.data import candidates
from rank4class.data.candidates import Mined, Sampled

N = 40  # classes


def numbered_split(labels, **others):
    features = {"image": np.arange(labels.shape[0], dtype=np.float32)[:, None]}
    return data.Split(features, labels, **others)


@pytest.fixture
def single(rng):
    return numbered_split(rng.integers(N // 2, size=60).astype(np.int32))


@pytest.fixture
def several(rng):
    """Examples of up to three classes, with gains and excluded classes."""
    gains = csr_array(np.where(rng.random([60, N]) < 0.05, rng.integers(1, 4, [60, N]), 0).astype(np.float32))
    excluded = csr_array((rng.random([60, N]) < 0.2) & (gains.toarray() == 0))
    return numbered_split(gains, excluded=excluded)


def batches(split, sampled, count, **options):
    options = {"batch_size": 4, "seed": 0, **options}
    return [
        tf.nest.map_structure(lambda x: x.numpy(), batch)
        for batch in data.training_batches(split, candidates=sampled, **options).take(count)
    ]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", ["single", "several"])
def test_batches_are_those_of_all_classes_at_the_candidates(request, kind, padded):
    split = request.getfixturevalue(kind)
    sampled = Sampled(split, N, batch_size=4, count=7, padded=padded)
    plain = data.training_batches(split, batch_size=4, seed=0).take(30)
    for (features, labels, weights), expected in zip(batches(split, sampled, 30), plain, strict=True):
        ids = features["candidates"]
        excluded = features["excluded"]
        is_repeated = np.append(False, np.diff(ids) == 0)
        assert (np.diff(ids) >= 0).all()
        assert len(ids) == sampled.size if padded else is_repeated.sum() <= len(ids) / 8
        np.testing.assert_array_equal(features["image"], expected[0]["image"])
        np.testing.assert_array_equal(weights, expected[2])
        if kind == "single":
            np.testing.assert_array_equal(ids[labels], expected[1])
            relevant = np.arange(len(ids)) == labels[:, None]
            np.testing.assert_array_equal(excluded, np.tile(is_repeated, [4, 1]))
        else:
            np.testing.assert_array_equal(labels, np.where(is_repeated, 0.0, expected[1].numpy()[:, ids]))
            assert labels.sum() == expected[1].numpy().sum()
            relevant = labels > 0
            np.testing.assert_array_equal(excluded, is_repeated | expected[0]["excluded"].numpy()[:, ids])
        assert (features["log_q"][relevant] == 0.0).all()
        assert (features["log_q"][~relevant] < 0.0).all()


@pytest.mark.parametrize(("kind", "power"), [("single", 1.0), ("several", 0.0), ("mined", 1.0)])
def test_sums_over_other_classes_are_unbiased(request, kind, power, rng):
    split = request.getfixturevalue("several" if kind == "several" else "single")
    sampled = Sampled(split, N, batch_size=4, count=7, power=power)
    if kind == "mined":
        nearest = candidates.nearest_wrong(np.tile(rng.permutation(N), [60, 1]), split.class_matrix(N), 2)
        sampled = Mined(split, N, 4, nearest, count=15, power=power, fraction=8 / 15)
        assert (sampled.num_nearest, sampled.count) == (2, 7)
    values = np.exp(rng.normal(size=N))
    split = data.Split(split.features, split.labels)
    errors = []
    for features, _, _ in batches(split, sampled, 800):
        ids = features["candidates"]
        terms = np.where(features["excluded"], 0.0, values[ids] / np.exp(features["log_q"]))
        rows = features["image"][:, 0].astype(int)
        relevant = split.class_matrix(N)[rows].toarray()
        is_relevant = relevant[:, ids]
        errors.append(np.mean(terms.sum(axis=1, where=~is_relevant) - np.sum(~relevant * values, axis=1)))
    assert abs(np.mean(errors)) < 4.0 * np.std(errors) / np.sqrt(len(errors))
    assert np.std(errors) > 0.0


def test_replicas_and_later_starts_share_the_candidates_of_a_step(single):
    sampled = Sampled(single, N, batch_size=4, count=7)
    whole = batches(single, sampled, 6)
    later = batches(single, sampled, 4, start_step=2)
    assert [x[0]["candidates"].tolist() for x in later] == [x[0]["candidates"].tolist() for x in whole[2:]]
    context = tf.distribute.InputContext(num_input_pipelines=2, input_pipeline_id=1, num_replicas_in_sync=4)
    parts = batches(single, sampled, 4, context=context)
    for i, (features, labels, _) in enumerate(parts):
        step, replica = divmod(i, 2)
        np.testing.assert_array_equal(features["candidates"], whole[step][0]["candidates"])
        np.testing.assert_array_equal(labels, whole[step][1][2 + replica : 3 + replica])
        np.testing.assert_array_equal(features["log_q"], whole[step][0]["log_q"][2 + replica : 3 + replica])


def test_mined_candidates_have_the_nearest_classes(single):
    nearest = ((single.labels[:, None] + [1, 2]) % N).astype(np.int32)
    mined = Mined(single, N, 4, nearest, count=15, fraction=8 / 15)
    assert Mined(single, N, 4, count=15, fraction=8 / 15).size == mined.size  # before they are known
    for features, _, _ in batches(single, mined, 5):
        rows = features["image"][:, 0].astype(int)
        assert set(nearest[rows].ravel()) <= set(features["candidates"])
        position = np.searchsorted(features["candidates"], nearest[rows])
        assert (np.take_along_axis(features["log_q"], position, axis=1) == 0.0).all()


def test_bad_options(single):
    with pytest.raises(ValueError, match=r"count=41: more than the 40 classes of the training\. Choose"):
        Sampled(single, N, batch_size=4, count=41)
    with pytest.raises(ValueError, match=r"power=-1: too small\. Choose at least 0"):
        Sampled(single, N, batch_size=4, count=4, power=-1)
    with pytest.raises(ValueError, match=r"fraction=1.0: not in \(0, 1\)"):
        Mined(single, N, batch_size=4, count=8, fraction=1.0)
    for padded, count in ((True, 36), (False, 40)):
        assert Sampled(single, N, batch_size=4, count=count, padded=padded).covers_all
        assert not Sampled(single, N, batch_size=4, count=count - 1, padded=padded).covers_all


@pytest.mark.parametrize("power", [0.0, 0.5, 2.0])
def test_classes_are_drawn_with_their_probabilities(single, power):
    sampled = Sampled(single, N, batch_size=4, count=7, power=power)
    weights = np.maximum(single.class_counts(N), 1.0) ** power
    expected = np.diff(sampled._ends)
    assert expected.sum() == pytest.approx(7)
    below = expected < 1.0
    np.testing.assert_allclose(expected[below] / weights[below], (expected / weights)[below][0])
    assert (weights[~below] >= weights[below].max()).all()
    draw = tf.function(lambda step: sampled.draw(3, step))
    draws = np.array([draw(tf.constant(step)) for step in range(2_000)])
    np.testing.assert_allclose(np.bincount(draws.ravel(), minlength=N) / len(draws), expected, atol=0.05)
    drawn = np.mean([np.isin(np.arange(N), row) for row in draws], axis=0)
    np.testing.assert_allclose(candidates._probability_of_draw(sampled._ends), drawn, atol=0.05)
    assert draws[5].tolist() == sampled.draw(3, 5).numpy().tolist() != sampled.draw(4, 5).numpy().tolist()


@pytest.mark.parametrize("batch_size", [1, 2, 3, 6, 9])
def test_probability_that_the_batch_has_a_class(batch_size):
    examples = np.array([0, 1, 2, 5])  # of each class, among 6
    others = list(itertools.combinations(range(5), min(batch_size, 6) - 1))
    expected = [np.mean([any(i < count for i in batch) for batch in others]) for count in examples]
    actual = candidates._probability_in_batch(examples, 6, batch_size)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)

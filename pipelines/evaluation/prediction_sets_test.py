import json
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
import scipy.special
import tensorflow as tf

from rank4class.pipelines.evaluation import prediction_sets, thresholds
from rank4class.pipelines.evaluation.prediction_sets import PredictionSets
from rank4class.pipelines.storage import files

NAMES = ("rank", "threshold", "adaptive")


def _examples(size, seed=0, weight=2.0):
    """Returns probabilities and true classes whose law they are."""
    rng = np.random.default_rng(seed)
    logits = weight * rng.normal(size=(size, 6))
    probabilities = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)
    return probabilities, (probabilities.cumsum(axis=1) > rng.random((size, 1))).argmax(axis=1)


def fit(name, block, labels, **by_class):
    pairs = prediction_sets.true_scores(name, {}, block, labels)
    return prediction_sets.fit(name, {}, pairs, labels, **by_class)


def above(score):
    """Returns the limit that comes from a score."""
    return np.float32(score + thresholds.ROUNDING * (1 + score))


def _in_sets(sets, probabilities, coverage):
    return sets.scores(probabilities, probabilities).numpy() <= sets.limits(coverage)


def test_limit_is_the_order_statistic_of_split_conformal_prediction():
    # Ranks of the true classes: 1, 1, 2, 3; the limit of coverage 0.6 is the ceil(5 * 0.6) = 3rd smallest.
    probabilities = np.array([[0.7, 0.2, 0.1]] * 4, np.float32)
    sets = fit("rank", (probabilities, probabilities, None), np.array([0, 2, 1, 0]))
    assert sets.limits(0.6) == [above(2.0)]
    assert sets.limits(0.2) == [above(1.0)]
    assert sets.limits(0.8) == [above(3.0)]
    assert _in_sets(sets, probabilities[:1], 0.6).tolist() == [[True, True, False]]


@pytest.mark.parametrize("name", NAMES)
def test_coverage_has_its_beta_law(name):
    m = 99
    coverage = 0.9
    hits = []
    for seed in range(100):
        probabilities, labels = _examples(m + 1000, seed=seed)
        first = probabilities[:m]
        sets = fit(name, (first, first, None), labels[:m])
        hits.append(_in_sets(sets, probabilities[m:], coverage)[np.arange(1000), labels[m:]].mean())
    low, high = prediction_sets.coverage_interval(m, coverage)
    assert np.mean(hits) > coverage - 0.005
    if name != "rank":  # its scores are integers: it covers more
        assert np.mean(hits) < coverage + 0.012
        assert 0.9 < np.mean([low - 0.02 < hit < high + 0.02 for hit in hits]) <= 1.0


def test_threshold_has_the_smallest_sets_and_adaptive_no_empty_one():
    probabilities, labels = _examples(2000, weight=6.0)
    sizes = {}
    for name in NAMES:
        sets = fit(name, (probabilities, probabilities, None), labels)
        sizes[name] = _in_sets(sets, probabilities, 0.7).sum(axis=1)
    assert sizes["threshold"].mean() < sizes["rank"].mean()
    assert sizes["threshold"].min() == 0
    assert sizes["adaptive"].min() == 1


def test_adaptive_scores_by_hand():
    probabilities = tf.constant([[0.1, 0.6, 0.3]])
    scores = prediction_sets.adaptive(probabilities, tf.constant([[2, 0, 1]]), penalty=0.5, free_ranks=1)
    u = (0.6180339887 * np.floor(64 * np.log(0.6 / 0.3))) % 1.0
    np.testing.assert_allclose(scores, [[0.9 + 0.1 * u + 1.0, 0.6 * u, 0.6 + 0.3 * u + 0.5]], atol=1e-4)


def test_limits_of_several_classes_are_exact(rng):
    """One over the number of classes is a fraction that floats round."""
    for size in range(30, 60):
        counts = rng.integers(1, 8, size)
        labels = scipy.sparse.csr_array((np.arange(8) < counts[:, None]).astype(np.float32))
        scores = np.float32(rng.permutation(size * 8).reshape(size, 8))
        sets = prediction_sets.fit("rank", {}, scores[labels.nonzero()], labels)
        for percent in (50, 60, 75, 80, 90):
            allowed = size - Fraction(percent, 100) * (size + 1)
            weights = {
                score: Fraction(1, int(c)) for c, row in zip(counts, scores, strict=True) for score in row[:c]
            }
            missed = Fraction(0)
            limit = max(weights)
            for score in sorted(weights, reverse=True):  # the lowest limit that misses no more than allowed
                limit = score
                missed += weights[score]
                if missed > allowed:
                    break
            assert sets.limits(percent / 100) == [above(limit)]


def test_groups_of_classes_by_hand():
    """The last class has no example: the class with the fewest joins it."""
    scores = np.arange(270, dtype=np.float32)
    for counts in ([150, 120, 0], [150, 112, 8]):
        labels = np.repeat([0, 1, 2], counts)
        sets = prediction_sets.fit("threshold", {}, scores, labels, True, 3)
        assert sets.class_groups.tolist() == [0, 1, 1]
        assert sets.examples.tolist() == [150, 120]
        np.testing.assert_array_equal(sets.limits(0.5), np.float32([above(75), above(210), above(210)]))
    alone = prediction_sets.fit("threshold", {}, scores[:99], labels[:99], True, 3)
    assert alone.class_groups.tolist() == [0, 0, 0]


def frequencies(name):
    """Returns the relative frequencies of classes, and how much easier than chance each of them is."""
    if name == "rare":
        return np.repeat([0.2, 0.2 / 56], [4, 56]), np.repeat([4.0, 2.0], [4, 56])
    n = int(name)
    return 1 / np.arange(1, n + 1), np.linspace(2.0, 4.0, n)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["rare", "5", "20", "60", "150", "500"])
def test_limits_by_class_cover_all_and_rare_classes(name):
    weights, gains = frequencies(name)
    n = len(weights)
    m = 1000
    draws = 40
    covered = []
    rare = weights < weights.max() / 2
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        labels = rng.choice(n, m + 2000, p=weights / weights.sum())
        scores = rng.normal(size=(len(labels), n)) + np.log(weights / weights.max())
        scores[np.arange(len(labels)), labels] += gains[labels]
        probabilities = scipy.special.softmax(scores, axis=1).astype(np.float32)
        first = probabilities[:m]
        sets = fit("threshold", (first, first, None), labels[:m], by_class=True, num_classes=n)
        inside = _in_sets(sets, probabilities[m:], 0.9)[np.arange(2000), labels[m:]]
        covered.append([inside.mean(), inside[rare[labels[m:]]].mean()])
    mean = np.mean(covered, axis=0)
    error = np.std(covered, axis=0) / np.sqrt(draws)
    assert (mean > 0.9 - 3 * error - [0.0, 0.01]).all()
    assert mean[0] < 0.92


def test_classes_with_few_examples_share_the_limit_of_their_cluster():
    rng = np.random.default_rng(1)
    n = 30
    each = 60
    labels = np.repeat(np.arange(n), each)
    scores = rng.normal(size=(len(labels), n)).astype(np.float32)
    scores[np.arange(len(labels)), labels] += np.where(labels < n // 2, 5.0, 0.0)
    sets = fit("rank", (None, scores, None), labels, by_class=True, num_classes=n)
    easy = sets.class_groups[: n // 2]
    hard = sets.class_groups[n // 2 :]
    assert len(set(easy)) == 1
    assert not set(easy) & set(hard)
    assert sets.limits(0.9)[0] < 5
    assert sets.limits(0.9)[n // 2 :].min() > 20


def test_excluded_classes_and_scores_that_are_not_finite_are_in_no_set():
    ranking = np.array([[3.0, 2.0, 1.0], [np.nan, 2.0, 1.0]], np.float32)
    where = np.array([[False, True, True], [True, True, True]])
    sets = fit("rank", (None, np.tile(ranking[0], [9, 1]), np.tile(where[0], [9, 1])), np.ones(9, int))
    in_set = sets.scores(None, ranking, where).numpy() <= sets.limits(0.9)
    assert in_set.tolist() == [[False, True, False], [False, False, False]]


@pytest.mark.parametrize("coverage", [0.0, 1.0, 1.2, float("nan")])
def test_wrong_coverages(coverage):
    sets = fit("rank", (None, np.eye(3, dtype=np.float32), None), np.arange(3))
    with pytest.raises(ValueError, match=rf"^coverage={coverage}: not in \(0, 1\). Choose another value."):
        sets.limits(coverage)


@pytest.mark.parametrize("by_class", [False, True])
def test_json_keeps_the_limits(by_class):
    probabilities, labels = _examples(700)
    probabilities[0, labels[0]] = 0.0  # an infinite score
    block = probabilities, probabilities, None
    sets = fit("threshold", block, labels, by_class=by_class, num_classes=6)
    again = PredictionSets.from_json(json.loads(files.to_json(sets.to_json())))
    for coverage in (0.5, 0.9):
        np.testing.assert_array_equal(again.limits(coverage), sets.limits(coverage))


def test_several_classes_have_the_expected_recall():
    rng, size, n = np.random.default_rng(0), 4000, 8
    scores = rng.normal(size=(size, n)).astype(np.float32)
    labels = scipy.sparse.csr_array(
        (rng.random((size, n)) < 1 / (1 + np.exp(2 - 2 * scores))).astype(np.float32)
    )
    probabilities = 1 / (1 + np.exp(2 - 2 * scores))
    half = size // 2
    sets = fit("threshold", (probabilities[:half], scores[:half], None), labels[:half])
    relevant = labels[half:].toarray() > 0
    hits = (_in_sets(sets, probabilities[half:], 0.9) & relevant).sum(axis=1)
    counts = relevant.sum(axis=1)
    recalls = np.where(counts > 0, hits / np.maximum(counts, 1), 1.0)
    assert 0.88 < recalls.mean() < 0.92

"""Labels that look wrong: predictions without an example, planted mistakes, and their share."""

import numpy as np
import pytest
import scipy.sparse
import sklearn.datasets
from sklearn.metrics.pairwise import rbf_kernel

from rank4class.pipelines.evaluation import label_errors


@pytest.fixture(scope="module")
def groups():
    """Vectors `[1200, 5]` of six groups, their classes, and labels of which a tenth is drawn anew."""
    rng = np.random.default_rng(0)
    centers = 4.0 * rng.normal(size=[6, 5])
    vectors, classes = sklearn.datasets.make_blobs(1_200, centers=centers, random_state=0)
    labels = np.where(rng.random(1_200) < 0.1, rng.integers(6, size=1_200), classes)
    return vectors.astype(np.float32), classes, labels


@pytest.mark.parametrize("landmarks", [4_096, 7])
def test_predictions_are_those_of_fits_without_the_example(landmarks):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=[20, 3])
    targets = np.eye(4)[rng.integers(4, size=20)]
    chosen = np.sort(np.random.default_rng(0).permutation(20)[:landmarks])
    gamma = 0.5 / np.square(vectors[chosen] - vectors[chosen].mean(axis=0)).sum(axis=1).mean()
    kernels = rbf_kernel(vectors, vectors[chosen], gamma=gamma)
    penalty = 0.3 * (kernels[chosen] + 1e-6 * np.eye(len(chosen)))
    expected = []
    for i in range(20):
        others = np.arange(20) != i
        mean, y = kernels[others].mean(axis=0), targets[others]
        centered = kernels[others] - mean
        weights = np.linalg.solve(centered.T @ centered + penalty, centered.T @ (y - y.mean(axis=0)))
        expected.append(y.mean(axis=0) + (kernels[i] - mean) @ weights)
    regression = label_errors.LeaveOneOut(vectors, scipy.sparse.csr_array(targets), landmarks)
    np.testing.assert_allclose(regression.predict(np.arange(20), 0.3), expected, atol=1e-6)


def test_mistakes_come_first_with_their_class_and_share(groups):
    vectors, classes, labels = groups
    judgement = label_errors.judge(vectors, labels, num_classes=7)
    is_wrong = labels != classes
    suspicions = judgement.suspicions
    first = suspicions.rows[: is_wrong.sum()]
    assert is_wrong[first].mean() > 0.95
    assert (suspicions.suggested[: len(first)] == classes[first]).mean() > 0.95
    np.testing.assert_array_equal(suspicions.labels, labels[suspicions.rows])
    assert np.argsort(-judgement.scores)[0] == first[0]
    assert judgement.interval[0] < 100.0 * is_wrong.mean() < judgement.interval[1]
    assert judgement.interval[1] - judgement.interval[0] < 5.0


def test_the_interval_holds_the_share_of_random_mistakes_in_most_draws(groups):
    vectors, classes, _ = groups
    holds = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rows = rng.choice(len(classes), 200, replace=False)
        labels = np.where(rng.random(200) < 0.15, rng.integers(6, size=200), classes[rows])
        judgement = label_errors.judge(vectors[rows], labels, num_classes=6)
        low, high = judgement.interval
        holds.append(low <= 100.0 * np.mean(labels != classes[rows]) <= high)
    assert sum(holds) >= 7


def test_examples_far_from_all_classes(groups):
    vectors, _, labels = groups
    vectors = vectors.copy()
    vectors[[17, 900]] += 60.0
    assert set(label_errors.judge(vectors, labels, num_classes=6).unlike[:2]) == {17, 900}


def test_the_only_example_of_a_class_has_no_judgement(groups):
    vectors, _, labels = groups
    labels = labels.copy()
    labels[3] = 6
    judgement = label_errors.judge(vectors, labels, num_classes=7)
    assert judgement.scores[3] == -np.inf
    assert 3 not in judgement.suspicions.rows


def test_sparse_vectors_have_the_judgement_of_dense_ones(groups):
    vectors, _, labels = groups
    vectors, labels = np.where(vectors > 0.0, vectors, 0.0)[:200], labels[:200]
    dense = label_errors.judge(vectors, labels, num_classes=6)
    sparse = label_errors.judge(scipy.sparse.csr_array(vectors), labels, num_classes=6)
    np.testing.assert_allclose(sparse.scores, dense.scores, rtol=1e-4)
    np.testing.assert_array_equal(sparse.suspicions.rows, dense.suspicions.rows)


def test_missing_and_superfluous_classes_of_several(groups):
    vectors, classes, _ = groups
    labels = np.zeros([len(classes), 7])
    labels[np.arange(len(classes)), classes] = 1.0
    labels[classes < 3, 6] = 1.0
    missing = np.flatnonzero(classes == 0)[:5]
    superfluous = np.flatnonzero(classes == 4)[:5]
    labels[missing, 6] = 0.0
    labels[superfluous, 6] = 1.0
    rows, present, suggested, probabilities = label_errors.judge_several(
        vectors, scipy.sparse.csr_array(labels)
    )
    lacks, has = (suggested == 6) & (present == -1), (present == 6) & (suggested == -1)
    assert set(missing) <= set(rows[lacks])
    assert set(superfluous) <= set(rows[has])
    assert lacks.sum() < 30
    assert has.sum() < 30
    assert (np.diff(probabilities) <= 0.0).all()


def test_distances_are_to_class_means_without_the_example():
    vectors = np.random.default_rng(0).normal(size=[6, 2])
    labels = np.array([0, 0, 0, 1, 1, 1])
    means = np.stack([vectors[:3].mean(axis=0), vectors[3:].mean(axis=0)])
    nearness = label_errors._nearness(vectors, labels, np.array([3, 3]), means, np.array([1]))
    without = vectors[[0, 2]].mean(axis=0)
    expected = [-np.square(vectors[1] - mean).sum() for mean in (without, means[1])]
    np.testing.assert_allclose(nearness, [expected])

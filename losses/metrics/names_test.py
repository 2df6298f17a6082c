import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf

from rank4class import losses
from rank4class.losses import metrics
from rank4class.losses.ops import set_sizes

SCORES = np.random.default_rng(0).normal(size=[40, 5]).astype(np.float32) * 2.0
LABELS = (np.random.default_rng(1).random([40, 5]) < 0.4).astype(np.float32)
PRIOR = np.log(np.random.default_rng(2).dirichlet(np.ones(6), size=40)).astype(np.float32)


def test_nll_is_that_of_the_size_and_of_the_set_given_its_size():
    expected = set_sizes.count_nll(PRIOR, LABELS) + losses.n_choose_k(SCORES, LABELS)
    in_graph = tf.function(metrics.nll)(SCORES.astype(np.float64), LABELS, PRIOR)
    np.testing.assert_allclose(in_graph, expected, rtol=1e-5)


@pytest.mark.nightly
def test_class_ids_are_sets_of_one():
    ids = np.arange(40) % 5
    one_hot = np.eye(5, dtype=np.float32)[ids]
    for metric in (metrics.nll, metrics.exact_match):
        for dtype in (tf.int8, tf.uint64):
            of_ids = metric(SCORES, tf.constant(ids, dtype), PRIOR)
            np.testing.assert_allclose(of_ids, metric(SCORES, one_hot, PRIOR), rtol=1e-6)
    np.testing.assert_allclose(set_sizes.count_nll(PRIOR, ids), -PRIOR[:, 1])


@pytest.mark.nightly
def test_grades_are_binary_and_masked_classes_are_ignored():
    prior = np.where(np.arange(6) < 5, PRIOR, -np.inf)
    where = np.arange(5) < 4
    for metric in (metrics.nll, metrics.exact_match):
        subset = metric(SCORES[:, :4], LABELS[:, :4], prior[:, :5])
        np.testing.assert_allclose(metric(SCORES, 3.0 * LABELS, prior, where=where), subset, rtol=1e-5)
    subset = set_sizes.count_nll(PRIOR, LABELS[:, :4])
    np.testing.assert_allclose(set_sizes.count_nll(PRIOR, LABELS, where=where), subset)


def test_masks_are_numbers_too():
    scores = [[5.0, 4.0, 9.0]]
    labels = [[1.0, 1.0, 0.0]]
    prior = np.log([0.1, 0.2, 0.7])
    for mask in ([[1, 1, 0]], [1.0, 1.0, 0.0], [[True, True, False]]):
        assert metrics.exact_match(scores, labels, prior, where=mask).numpy() == [1.0]
        assert metrics.exact_match(scores, [[1.0, 0.0, 0.0]], prior, where=mask).numpy() == [0.0]
        np.testing.assert_allclose(set_sizes.count_nll([prior], labels, where=mask), [-prior[2]], rtol=1e-6)
    with pytest.raises(ValueError, match=r"where=\(2,\): cannot be broadcast to \(1, 3\)"):
        set_sizes.count_nll([prior], labels, where=[True, False])


@pytest.mark.nightly
def test_invalid_scores_have_the_worst_value():
    scores = np.array([[np.nan, 0.0], [0.0, np.inf], [0.0, 1.0]], np.float32)
    labels = [[0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    prior = np.log([0.1, 0.8, 0.1])
    assert np.isinf(metrics.nll(scores, labels, prior)).tolist() == [True, True, False]
    assert metrics.exact_match(scores, labels, prior).numpy().tolist() == [0.0, 0.0, 1.0]
    broken = tf.zeros([1, 2]), tf.zeros([1, 2]), tf.constant([[0.0, np.nan, 0.0]])
    assert np.isinf(tf.function(metrics.nll)(*broken)).all()
    assert tf.function(metrics.exact_match)(*broken).numpy().tolist() == [0.0]


@pytest.mark.parametrize("labels", [[3], [-1], [[0.0, np.nan, 0.0]], [[0.0, -1.0, 0.0]], [[0, np.inf, 0]]])
def test_invalid_labels_have_the_worst_value(labels):
    scores, prior = [[-9.0, -9.0, -9.0]], np.log([0.8, 0.1, 0.1])  # the most probable set is empty
    assert metrics.exact_match(scores, [[0.0, 0.0, 0.0]], prior).numpy() == [1.0]
    assert metrics.exact_match(scores, labels, prior).numpy() == [0.0]
    assert np.isinf(metrics.nll(scores, labels, prior))
    if np.ndim(labels) == 2:
        where = tf.constant([[True, False, True]])
        assert metrics.exact_match(scores, labels, prior, where=where).numpy() == [1.0]


def test_by_name():
    for name in metrics.SET_METRICS:
        metric = losses.get_metric(name, max_relevant=3)
        assert metric.function(SCORES, LABELS, PRIOR).shape == [40]
        assert metric.percent != (name == "nll")
        assert metric.higher_is_better != (name == "nll")
    with pytest.raises(ValueError, match="metric='nl': unknown. There are: .*map, nll, exact_match"):
        losses.get_metric("nl")


def test_count_likelihood_as_a_keras_loss():
    loss = losses.CountLikelihood()
    np.testing.assert_allclose(loss(LABELS, PRIOR), tf.reduce_mean(set_sizes.count_nll(PRIOR, LABELS)))
    again = tf.keras.losses.deserialize(tf.keras.losses.serialize(loss))
    np.testing.assert_allclose(again(LABELS, PRIOR), loss(LABELS, PRIOR))
    ids = tf.constant([[0], [4]] * 20)
    np.testing.assert_allclose(loss(ids, PRIOR), -np.mean(PRIOR[:, 1]), rtol=1e-6)
    weights = np.arange(40, dtype=np.float32)
    expected = tf.reduce_mean(weights * set_sizes.count_nll(PRIOR, LABELS))
    np.testing.assert_allclose(loss(LABELS, PRIOR, sample_weight=weights), expected, rtol=1e-6)


@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.parametrize("errors", [0.3, 0.0, 1.0])
def test_f1_of_counts_equals_scikit_learns(average, errors):
    rng = np.random.default_rng(0)
    labels = rng.random([60, 5]) < [0.5, 0.3, 0.1, 0.0, 0.0]  # the last two classes have no example
    decided = labels ^ (rng.random([60, 5]) < np.multiply(errors, [1.0, 1.0, 1.0, 1.0, 0.0]))
    counts = [np.sum(part, axis=0, dtype=float) for part in (decided & labels, decided, labels)]
    expected = sklearn.metrics.f1_score(labels, decided, average=average, zero_division=0)
    metric = losses.get_metric(f"f1_{average}")
    np.testing.assert_allclose(metric.function(*counts), expected, rtol=1e-12)
    np.testing.assert_allclose(metric.function(*np.stack([counts] * 2, axis=1)), [expected] * 2)
    assert metric.function(*np.zeros([3, 5])) == 0.0


def test_mean_recall_of_counts_equals_scikit_learns():
    labels, top = np.random.default_rng(0).integers([[4], [6]], size=[2, 60])  # two classes have no example
    decided = np.eye(6)[top]
    relevant = np.eye(6)[labels]
    counts = [part.sum(axis=0) for part in (decided * relevant, decided, relevant)]
    with pytest.warns(UserWarning, match="y_pred contains classes not in y_true"):
        expected = sklearn.metrics.balanced_accuracy_score(labels, top)
    assert 0.0 < expected < 1.0
    accuracy, error = (losses.get_metric(name) for name in ("balanced_accuracy", "macro_top1_error"))
    np.testing.assert_allclose(accuracy.function(*np.stack([counts] * 2, axis=1)), [expected] * 2)
    np.testing.assert_allclose(error.function(*counts), 1.0 - expected)
    assert (accuracy.higher_is_better, error.higher_is_better) == (True, False)
    assert error.function(*np.zeros([3, 6])) == 1.0  # without an example

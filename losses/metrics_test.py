"""Metrics against arithmetic, TF-Ranking and scikit-learn, and the rule that bad scores look bad."""

import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf
import tensorflow_ranking as tfr

from rank4class import losses
from rank4class.losses import metrics, ranks

NAMES = ("top1_error", "top5_error", "top1_accuracy", "top5_accuracy", "ndcg@5", "ndcg", "mrr")
WORST = {"top1_error": 1, "top5_error": 1, "top1_accuracy": 0, "top5_accuracy": 0}


def result(name, labels, scores, sample_weight=None):
    metric = losses.get_metric(name)
    metric.update_state(labels, scores, sample_weight)
    return metric.result().numpy()


def test_rank_by_hand():
    scores = [[0.3, 0.9, 0.1, 0.5], [0.3, 0.9, 0.1, 0.5]]
    np.testing.assert_array_equal(ranks.hard_rank(scores, [1, 0]), [1, 3])
    np.testing.assert_array_equal(ranks.hard_rank(scores, [1, 0], where=[True, False, True, True]), [1, 2])


def test_ties_go_against_the_true_class():
    np.testing.assert_array_equal(ranks.hard_rank([[1.0, 1.0, 1.0, 0.0]], [1]), [3])
    assert result("top1_error", [1], [[1.0, 1.0, 1.0, 0.0]]) == 1.0


def test_sigmoid_rank_tends_to_the_hard_rank():
    rng = np.random.default_rng(0)
    scores, labels = tf.constant(rng.normal(size=[50, 9])), tf.constant(rng.integers(9, size=50))
    margins = scores - ranks.true_score(scores, labels)[:, None]
    soft = ranks.sigmoid_rank(tf.cast(margins, tf.float32), ranks.others(scores, labels), 1e-5)
    np.testing.assert_allclose(soft, ranks.hard_rank(scores, labels), atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "row",
    [
        [np.nan] * 7,
        [1.0, 0.0, np.nan, 0.0, 0.0, 0.0, 0.0],
        [np.nan, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [np.inf, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, -np.inf, -np.inf, -np.inf, -np.inf, -np.inf, -np.inf],
    ],
)
def test_scores_that_are_not_finite_are_the_worst(name, row):
    metric = losses.get_metric(name)
    for jit in (False, True):
        values = tf.function(lambda s, y: metric.of_rank(ranks.hard_rank(s, y)), jit_compile=jit)
        assert values(tf.constant([row]), tf.constant([0])).numpy() == WORST.get(name, 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("label", [-1, 7])
def test_labels_outside_the_classes_are_the_worst(name, label):
    assert result(name, tf.constant([label]), tf.constant([[3.0, 1, 2, 0, 5, 6, 7]])) == WORST.get(name, 0)


@pytest.mark.parametrize("n", [6, 28, 1000])
def test_equal_tf_ranking_and_scikit_learn(n):
    rng = np.random.default_rng(n)
    scores = rng.normal(size=[50, n]).astype(np.float32)
    labels = rng.integers(n, size=50)
    one_hot = np.eye(n, dtype=np.float32)[labels]
    theirs = tfr.keras.metrics.NDCGMetric(topn=5)
    np.testing.assert_allclose(result("ndcg@5", labels, scores), theirs(one_hot, scores), rtol=1e-5)
    np.testing.assert_allclose(
        result("mrr", labels, scores), tfr.keras.metrics.MRRMetric()(one_hot, scores), rtol=1e-5
    )
    np.testing.assert_allclose(
        result("top5_accuracy", labels, scores),
        sklearn.metrics.top_k_accuracy_score(labels, scores, k=5, labels=range(n)),
    )
    for k in (5, None):
        np.testing.assert_allclose(
            result("ndcg" if k is None else f"ndcg@{k}", labels, scores),
            sklearn.metrics.ndcg_score(one_hot, scores, k=k),
            rtol=1e-5,
        )
    assert result("top1_error", labels, scores) == np.float32(1) - result("ndcg@1", labels, scores)


def test_one_hot_labels_and_sample_weights():
    scores = tf.constant([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    for labels in (tf.constant([2, 0]), tf.constant([[2], [0]]), tf.constant([[0, 0, 1.0], [1.0, 0, 0]])):
        np.testing.assert_allclose(result("mrr", labels, scores), (0.5 + 1) / 2)
        np.testing.assert_allclose(result("mrr", labels, scores, [1.0, 3.0]), (0.5 + 3) / 4)


def test_rows_that_are_not_one_hot_do_not_look_good():
    assert result("mrr", tf.constant([[1.0, 1.0, 0.0]]), tf.constant([[3.0, 1.0, 2.0]])) == 0.0


def test_batches_add_up():
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=[10, 8]), rng.integers(8, size=10)
    metric = losses.NDCG(k=5)
    metric.update_state(labels[:7], scores[:7])
    metric.update_state(labels[7:], scores[7:])
    np.testing.assert_allclose(metric.result(), result("ndcg@5", labels, scores), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_config_round_trip(name):
    metric = losses.get_metric(name)
    again = type(metric).from_config(metric.get_config())
    assert (again.name, again.get_config()) == (name, metric.get_config())


def test_a_top_k_that_says_nothing_is_refused():
    for k in (0, 3, 4):
        with pytest.raises(ValueError, match=f"top-{k} says nothing about 3 classes"):
            metrics.top_k_error(tf.zeros([1, 3]), tf.constant([0]), k)
    with pytest.raises(ValueError, match="K of at least 1, got 0"):
        metrics.ndcg(tf.zeros([1, 3]), tf.constant([0]), 0)


def test_class_ids_have_to_be_integers():
    with pytest.raises(ValueError, match="class ids must be integers, got float32"):
        result("mrr", tf.constant([1.0]), tf.constant([[1.0, 2.0]]))


def test_what_the_built_in_metrics_accept():
    scores = tf.constant([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    assert result("mrr", tf.constant([2, 0], tf.uint8), scores, 2.0) == 0.75
    assert result("mrr", tf.constant([2, 0]), scores, [[1.0], [3.0]]) == 3.5 / 4
    with pytest.raises(ValueError, match=r"class ids of shape \(2, 1\) do not fit scores of shape \(2, 3\)"):
        metrics.mrr(scores, [[2], [0]])
    for name in ("ndcg@0", "top0_error"):
        with pytest.raises(ValueError, match="needs K of at least 1, got 0"):
            losses.get_metric(name)


def test_float64_scores_are_compared_as_they_are():
    np.testing.assert_array_equal(ranks.hard_rank(np.array([[1.0, 1.0 + 1e-9]]), [1]), [1])

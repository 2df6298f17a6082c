import numpy as np
import pytest
import scipy.sparse
import scipy.stats
import sklearn.metrics
import tensorflow as tf

from rank4class.pipelines.evaluation import evaluator, per_class, statistics
from rank4class.pipelines.task.task import ModelOutputs

NAMES = ("top1_error", "ndcg@2", "mean_rank")


def judge(scores, labels, names=NAMES):
    scorer = evaluator.Evaluator(lambda features, training: ModelOutputs(features), names)
    labels = np.asarray(labels, np.int32 if np.ndim(labels) == 1 else np.float32)
    return scorer([(tf.constant(scores, tf.float32), labels, tf.ones([len(labels)]))])


def table_of(scores, labels, names=NAMES):
    class_names = [f"class {i}" for i in range(np.shape(scores)[1])]
    own = np.asarray(labels) if np.ndim(labels) == 1 else scipy.sparse.csr_array(labels)
    return per_class.per_class(judge(scores, labels, names), own, class_names)


def subsample(n=7, size=500, seed=0):
    """Returns scores that are often right, and labels that leave out the last class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(n - 1, size=size)
    scores = rng.normal(size=[size, n])
    scores[np.arange(size), labels] += 1.0
    return scores, labels


def test_precision_recall_and_mistakes_are_those_of_scikit_learn():
    scores, labels = subsample()
    table, top = table_of(scores, labels), scores.argmax(axis=1)
    precision, recall, _, support = sklearn.metrics.precision_recall_fscore_support(
        labels, top, labels=range(7), zero_division=np.nan
    )
    np.testing.assert_array_equal(table.examples, support)
    np.testing.assert_allclose(table.precision, 100 * precision)
    np.testing.assert_allclose(table.means[:6, 0], 100 * (1 - recall[:6]))
    matrix = sklearn.metrics.confusion_matrix(labels, top, labels=range(7))
    np.testing.assert_array_equal(table.named, matrix.sum(axis=0))
    np.fill_diagonal(matrix, 0)
    np.testing.assert_array_equal(table.most_confused_with[:6], matrix[:6].argmax(axis=1))
    np.testing.assert_array_equal(table.taken, matrix.max(axis=1))


def test_the_means_over_the_classes_make_up_the_mean_over_the_examples():
    scores, labels = subsample()
    table, whole = table_of(scores, labels), judge(scores, labels).summarize()
    for name, means in zip(NAMES, table.means.T, strict=True):
        np.testing.assert_allclose(np.average(means[:6], weights=table.examples[:6]), whole[name], rtol=1e-5)


def test_by_hand():
    scores = [[3, 2, 1], [3, 2, 1], [3, 2, 1], [1, 2, 3]]
    table = table_of(scores, [0, 1, 1, 1])
    np.testing.assert_array_equal(table.examples, [1, 3, 0])
    second = 100 / np.log2(3)
    np.testing.assert_allclose(table.means[:2], [[0, 100, 1], [100, second, 2]], rtol=1e-6)
    np.testing.assert_array_equal(table.named, [3, 0, 1])
    np.testing.assert_allclose(table.precision, [100 / 3, np.nan, 0])
    np.testing.assert_array_equal(table.most_confused_with, [per_class.NO_CLASS, 0, per_class.NO_CLASS])
    np.testing.assert_array_equal(table.taken, [0, 2, 0])
    assert np.isnan(table.intervals[0, 2]).all()  # a mean rank has no bound to tell it from


def test_a_class_without_an_example_has_no_figure_and_stands_last():
    table = table_of(*subsample())
    assert table.examples[6] == 0
    assert np.isnan(table.means[6]).all()
    assert np.isnan(table.intervals[6]).all()
    for name in NAMES:
        assert table.worst_first(name)[-1] == 6
    errors = table.means[table.worst_first("top1_error")[:6], 0]
    gains = table.means[table.worst_first("ndcg@2")[:6], 1]
    assert (np.diff(errors) <= 0).all()
    assert (np.diff(gains) >= 0).all()


def test_an_example_of_several_classes_belongs_to_each():
    scores = [[4, 3, 2, 1], [4, 3, 2, 1], [1, 2, 3, 4], [1, 2, 3, 4]]
    labels = [[1, 0, 1, 0], [0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    table = table_of(scores, labels, ["top1_error"])
    np.testing.assert_array_equal(table.examples, [1, 2, 2, 0])
    np.testing.assert_allclose(table.means[:, 0], [0, 100, 50, np.nan])
    np.testing.assert_array_equal(table.named, [2, 0, 0, 2])
    np.testing.assert_allclose(table.precision, [50, np.nan, np.nan, 0])
    np.testing.assert_array_equal(table.most_confused_with, [per_class.NO_CLASS, 0, 0, per_class.NO_CLASS])
    np.testing.assert_array_equal(table.taken, [0, 1, 1, 0])


@pytest.mark.parametrize("labels", [[0, 0, 1], np.eye(3)[[0, 0, 1]]])
def test_a_constant_scorer_looks_as_bad_as_it_is(labels):
    table = table_of(np.ones([3, 3]), labels)
    np.testing.assert_array_equal(table.means[:2, 0], [100, 100])
    np.testing.assert_array_equal(table.named, [3, 0, 0])
    assert table.precision[0] == 0.0
    np.testing.assert_array_equal(table.taken, [0, 1, 0])  # two share their highest score with their own


def test_scores_that_cannot_be_judged_name_no_class():
    scores = np.array([[3.0, 1.0], [np.nan, 1.0], [np.inf, 1.0]])
    table = table_of(scores, [0, 0, 0], ["top1_error", "mean_rank"])
    np.testing.assert_allclose(table.means[0], [200 / 3, np.inf])
    assert table.named.tolist() == [1, 0]
    assert table.precision[0] == 100.0
    assert table.taken.tolist() == [0, 0]


def test_the_interval_of_a_share_is_wilsons():
    for right, count in ((0, 5), (3, 7), (40, 40), (199, 500)):
        theirs = scipy.stats.binomtest(right, count).proportion_ci(method="wilson")
        ours = statistics.wilson(np.array(right / count), np.array(count))
        np.testing.assert_allclose(ours, [theirs.low, theirs.high], atol=1e-12)


def test_the_interval_of_graded_values_holds_the_mean_often_enough():
    rng, true, held = np.random.default_rng(0), 0.0, 0
    of_rank = np.array([1 / np.log2(1 + rank) if rank <= 5 else 0.0 for rank in range(1, 13)])
    share = rng.dirichlet(np.ones(12))
    true = share @ of_rank
    for _ in range(1000):
        values = rng.choice(of_rank, p=share, size=15)
        low, high = statistics.wilson(values.mean(), np.array(15))
        held += low <= true <= high
    assert held >= 950

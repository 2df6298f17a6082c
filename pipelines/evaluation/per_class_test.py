import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from rank4class.pipelines.evaluation import evaluator, per_class, statistics
from rank4class.pipelines.task_data.task_data import ModelOutputs

NAMES = ("top1_error", "ndcg@2", "mean_rank")
MEANS = ["top1_error (%)", "ndcg@2 (%)", "mean_rank"]


def evaluate(scores, labels, names=NAMES):
    scorer = evaluator.Evaluator(lambda features, training: ModelOutputs(features), names)
    labels = np.asarray(labels, np.int32 if np.ndim(labels) == 1 else np.float32)
    return scorer([(tf.constant(scores, tf.float32), labels, tf.range(len(labels)))])


def table_of(scores, labels, names=NAMES):
    class_names = [f"class {i}" for i in range(np.shape(scores)[1])]
    ids_or_matrix = np.asarray(labels) if np.ndim(labels) == 1 else scipy.sparse.csr_array(labels)
    return per_class.per_class(evaluate(scores, labels, names), ids_or_matrix, class_names)


def draw_examples():
    """Returns scores whose top class is often right, and labels without the last class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(6, size=500)
    scores = rng.normal(size=[500, 7])
    scores[np.arange(500), labels] += 1.0
    return scores, labels


def confused_with(table):
    """Returns the name of the class that each class is most often confused with, or ""."""
    return table["most confused with"].fillna("").tolist()


def test_thirds_of_the_training_examples():
    # Of 6 classes 0 and 5 are in the first third, 1 and 4 in the second, 2 and 3 in the last.
    counts = np.array([90, 20, 1, 1, 9, 40])
    scores = np.eye(6)[[0, 5, 1, 2, 3, 0]]
    labels = np.array([0, 5, 4, 2, 2, 3])  # the predictions are right, right, wrong, right, wrong, wrong
    table = per_class.by_frequency(evaluate(scores, labels), labels, counts)
    assert table["class"].tolist() == ["40 to 90 (2 classes)", "9 to 20 (2 classes)", "1 (2 classes)"]
    assert table["examples"].tolist() == [2, 1, 3]
    assert table[["classes", "fewest", "most"]].to_numpy().tolist() == [[2, 40, 90], [2, 9, 20], [2, 1, 1]]
    rows = per_class.to_json(table)
    assert [(row["most"], row["top1_error (%)"]) for row in rows[:2]] == [(90, 0.0), (20, 100.0)]
    assert (rows[0]["mean_rank low"], rows[0]["most confused with"]) == (None, None)
    assert table["predicted"].tolist() == [3, 1, 2]
    assert confused_with(table) == ["", "", "40 to 90 (2 classes)"]
    several = scipy.sparse.csr_array(np.eye(6, dtype=np.float32)[labels] + np.eye(6)[[1, 0, 4, 2, 2, 2]] > 0)
    table = per_class.by_frequency(evaluate(scores, several.toarray()), several, counts)
    assert table["examples"].tolist() == [2, 2, 3]
    equal = per_class.by_frequency(evaluate(scores, labels), labels, np.full(6, 7))
    assert equal["class"].tolist() == ["7 (6 classes)"]


def test_by_hand():
    scores = [[3, 2, 1], [3, 2, 1], [3, 2, 1], [1, 2, 3]]
    table = table_of(scores, [0, 1, 1, 1])
    assert table["examples"].tolist() == [1, 3, 0]
    second = 100 / np.log2(3)
    np.testing.assert_allclose(table[MEANS][:2], [[0, 100, 1], [100, second, 2]], rtol=1e-6)
    assert table["predicted"].tolist() == [3, 0, 1]
    np.testing.assert_allclose(table["precision (%)"], [100 / 3, np.nan, 0])
    assert confused_with(table) == ["", "class 0", ""]
    assert table["most confused count"].tolist() == [0, 2, 0]
    assert table.loc[0, ["mean_rank low", "mean_rank high"]].isna().all()  # a mean rank has no upper bound
    for name, right, count in (("top1_error", 3, 3), ("precision", 0, 1)):
        interval = 100 * statistics.wilson(np.array(right / count), np.array(count))
        row = 1 if name == "top1_error" else 2
        np.testing.assert_allclose(table.loc[row, [f"{name} low", f"{name} high"]].astype(float), interval)


def test_classes_without_examples_are_last():
    table = table_of(*draw_examples())
    assert table["examples"][6] == 0
    assert table.loc[6, MEANS].isna().all()
    assert table.loc[6, ["top1_error low", "ndcg@2 high"]].isna().all()
    for name in NAMES:
        assert per_class.worst_first(table, name).index[-1] == 6
    errors = per_class.worst_first(table, "top1_error")["top1_error (%)"][:6]
    gains = per_class.worst_first(table, "ndcg@2")["ndcg@2 (%)"][:6]
    assert (np.diff(errors) <= 0).all()
    assert (np.diff(gains) >= 0).all()


def test_examples_of_several_classes():
    scores = [[4, 3, 2, 1], [4, 3, 2, 1], [1, 2, 3, 4], [1, 2, 3, 4]]
    labels = [[1, 0, 1, 0], [0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    table = table_of(scores, labels, ["top1_error"])
    assert table["examples"].tolist() == [1, 2, 2, 0]
    np.testing.assert_allclose(table["top1_error (%)"], [0, 100, 50, np.nan])
    assert table["predicted"].tolist() == [2, 0, 0, 2]
    np.testing.assert_allclose(table["precision (%)"], [50, np.nan, np.nan, 0])
    assert confused_with(table) == ["", "class 0", "class 0", ""]
    assert table["most confused count"].tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("labels", [[0, 0, 1], np.eye(3)[[0, 0, 1]]])
def test_constant_scores_have_no_correct_prediction(labels):
    table = table_of(np.ones([3, 3]), labels)
    assert table["top1_error (%)"][:2].tolist() == [100, 100]
    assert table["predicted"].tolist() == [3, 0, 0]
    assert table["precision (%)"][0] == 0.0
    assert table["most confused count"].tolist() == [0, 1, 0]  # two have their label among tied top classes


def test_scores_that_are_not_finite():
    scores = np.array([[3.0, 1.0], [np.nan, 1.0], [np.inf, 1.0]])
    table = table_of(scores, [0, 0, 0], ["top1_error", "mean_rank"])
    np.testing.assert_allclose(table.loc[0, ["top1_error (%)", "mean_rank"]].astype(float), [200 / 3, np.inf])
    assert table["predicted"].tolist() == [1, 0]
    assert table["precision (%)"][0] == 100.0
    assert table["most confused count"].tolist() == [0, 0]


def test_a_million_classes():
    labels = np.array([999_999] * 3 + [7] * 5 + [8], np.int32)
    predicted = np.array([999_998] * 3 + [6] * 4 + [7] + [8], np.int32)
    errors = per_class.frequent_errors(labels, predicted)
    assert errors.to_numpy().tolist() == [[7, 6, 4], [999_999, 999_998, 3]]

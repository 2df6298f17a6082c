"""The worst examples, by probability or by rank."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse

from rank4class import data
from rank4class.pipelines.evaluation import calibration, reliability, worst_examples
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.reporting import tables

CLASSES = ("a", "b\tc", "d")
# By rows: probabilities in proportions 1:2:1, 6:1:1, 1:1:6, 2:5:1 of the sums 4, 8, 8 and 8.
SCORES = np.log(np.float32([[1, 2, 1], [6, 1, 1], [1, 1, 6], [2, 5, 1]]))
LABELS = np.array([1, 1, 2, 0])  # probabilities 2/4, 1/8, 6/8, 2/8
SPLIT = data.Split({}, LABELS, np.array(["x:1", "x:2", "x:3", "x:4"], object))
RESULT = EvaluationResult(
    names=(),
    values=np.zeros([4, 0]),
    top_classes=np.array([1, 0, 2, 1]),
    right=np.array([1, 0, 1, 0]),
    ranks=np.float32([1, 3, 1, 2]),
    scores=SCORES,
)


def with_temperature(temperature):
    fitted = calibration.Temperature(temperature)
    return dataclasses.replace(RESULT, calibrated=reliability.evaluate(fitted, SCORES, LABELS))


def worst_of(result, split, count):
    return worst_examples.frame(result, split, CLASSES, worst_examples.worst(result, count))


def test_the_lowest_probability_of_the_class_comes_first():
    table = worst_of(with_temperature(1.0), SPLIT, 3)
    assert table["example"].tolist() == ["x:2", "x:4", "x:1"]
    assert table["class"].tolist() == ["b\tc", "a", "b\tc"]
    assert table["predicted"].tolist() == ["a", "b\tc", "b\tc"]
    assert table["rank"].tolist() == [3, 2, 1]
    np.testing.assert_allclose(table["probability"], [1 / 8, 2 / 8, 2 / 4], rtol=1e-6)
    np.testing.assert_allclose(table["predicted probability"], [6 / 8, 5 / 8, 2 / 4], rtol=1e-6)
    assert tables.example_table(table).splitlines()[2:] == [
        r"x:2      b\tc   a             3       0.1250                 0.7500",
        r"x:4      a      b\tc          2       0.2500                 0.6250",
        r"x:1      b\tc   b\tc          1       0.5000                 0.5000",
    ]


def test_probabilities_are_calibrated_and_leave_out_excluded_classes():
    # Temperature 1/2 squares the proportions: 1:4:1. The last class is excluded.
    excluded = scipy.sparse.csr_array(np.array([[False, False, True], [False] * 3, [False] * 3, [False] * 3]))
    split = dataclasses.replace(SPLIT, excluded=excluded)
    table = worst_of(with_temperature(0.5), split, 9)
    assert table["example"].tolist() == ["x:2", "x:4", "x:1", "x:3"]
    np.testing.assert_allclose(table["probability"], [1 / 38, 4 / 30, 4 / 5, 36 / 38], rtol=1e-6)


@pytest.mark.parametrize("result", [RESULT, dataclasses.replace(with_temperature(1.0), scores=None)])
def test_without_probabilities_or_with_too_many_scores_the_last_rank_comes_first(result):
    ranks = np.float32([1, 3, np.inf, 2])  # a score of the third is not finite
    result = dataclasses.replace(result, ranks=ranks, top_classes=np.array([1, 0, -1, 1]))
    table = worst_of(result, SPLIT, 2)
    assert list(table.columns) == ["example", "class", "predicted", "rank"]
    assert tables.example_table(table).splitlines() == [
        "example  class  predicted  rank",
        "-------  -----  ---------  ----",
        "x:3      d      -           inf",
        r"x:2      b\tc   a             3",
    ]


def test_all_examples_in_their_order(monkeypatch):
    monkeypatch.setattr(worst_examples, "_BLOCK", 3)
    best = SCORES.max(axis=1, keepdims=True)
    table = worst_examples.frame(dataclasses.replace(with_temperature(1.0), best_scores=best), SPLIT, CLASSES)
    np.testing.assert_array_equal(table["predicted score"], best[:, 0])
    np.testing.assert_allclose(table["probability"], [2 / 4, 1 / 8, 6 / 8, 2 / 8], rtol=1e-6)
    several = data.Split({}, scipy.sparse.csr_array(np.float32([[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]])))
    platt = calibration.Platt((1.0,), (0.0,))
    result = dataclasses.replace(RESULT, calibrated=reliability.evaluate(platt, SCORES, several.labels))
    table = worst_examples.frame(result, several, CLASSES)
    assert list(table.columns) == ["example", "class", "predicted", "rank", "predicted probability"]
    assert table["class"].tolist() == [("a", "b\tc"), (), ("d",), ("a",)]
    # The sigmoid of the logarithm of 2 is 2 / 3.
    np.testing.assert_allclose(table["predicted probability"], [2 / 3, 6 / 7, 6 / 7, 5 / 6], rtol=1e-6)


def test_several_classes_are_refused():
    split = data.Split({}, scipy.sparse.csr_array(np.float32([[1, 1, 0]])))
    with pytest.raises(ValueError, match="worst=3: an example may have several classes. Leave it out, and"):
        worst_examples.check(split, 3)

"""The report of prediction sets against written-out arithmetic."""

import numpy as np
import pytest
import scipy.sparse

from rank4class.pipelines.evaluation import evaluator, per_class, prediction_sets, statistics
from rank4class.pipelines.reporting import plots, tables

LABELS = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2])
SIZES = np.array([0, 1, 1, 2, 3, 3, 4, 5, 6, 11, 28, 28])
COVERED = np.array([0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0])


@pytest.fixture
def result():
    ids = np.zeros(12, np.int32)
    values = np.zeros([12, 1], np.float32)
    sizes, covered = (np.stack([values // 2, values], axis=1) for values in (SIZES, COVERED))
    sets = prediction_sets.Evaluated("rank", np.array([0.5, 0.9]), sizes, np.float32(covered))
    return evaluator.EvaluationResult(("top1_error",), values, ids, ids, values[:, 0], sets=sets)


def test_the_metrics_of_a_coverage(result):
    extended = result.with_metrics(result.sets.metrics(0.9))
    assert extended.names == ("top1_error", "set_coverage@90", "set_size@90")
    np.testing.assert_array_equal(extended.values, np.stack([0 * SIZES, COVERED, SIZES], axis=1))
    assert extended.with_metrics(extended.sets.metrics(0.9)).names == extended.names
    summary = extended.summarize()
    assert summary["sets"]["score"] == "rank"
    assert summary["sets"]["examples"] == 12
    for name, mean in {
        "set_coverage@50": 0.0,
        "set_size@50": np.mean(SIZES // 2),
        "set_coverage@90": 100 * 7 / 12,
        "set_size@90": np.mean(SIZES),
    }.items():
        low, high = summary["sets"]["intervals"][name]
        assert summary["sets"][name] == pytest.approx(mean)
        assert low <= mean <= high
    wilson = 100 * statistics.wilson(np.array(7 / 12), np.array(12))
    np.testing.assert_allclose(summary["sets"]["intervals"]["set_coverage@90"], wilson)


@pytest.mark.parametrize("several", [False, True])
def test_the_table_by_hand(result, several):
    labels = scipy.sparse.csr_array(np.eye(3)[LABELS]) if several else LABELS
    extended = result.with_metrics(result.sets.metrics(0.9))
    classes = per_class.per_class(extended, labels, ["a", "b", "c"])
    thirds = per_class.by_frequency(extended, labels, np.array([9, 5, 1]))
    names = ("set_coverage@90", "set_size@90")
    table = per_class.by_set_size(extended, classes, thirds, *names)
    expected = [
        # title, examples, how many of them covered, sum of their sizes
        ("empty", 1, 0, 0),
        ("1 class", 2, 2, 2),
        ("2 classes", 1, 1, 2),
        ("3 classes", 2, 2, 6),
        ("4 to 5 classes", 2, 0, 9),
        ("6 to 10 classes", 1, 1, 6),
        ("more classes", 3, 1, 67),
        ("worst class: b", 5, 3, 29),  # c has two examples
        ("worst third by training examples: 1 (1 classes)", 2, 0, 56),
    ]
    titles, counts, hits, sums = map(list, zip(*expected, strict=True))
    assert table["class"].tolist() == titles
    assert table["examples"].tolist() == counts
    np.testing.assert_allclose(table["share (%)"], 100 * np.array(counts) / 12)
    np.testing.assert_allclose(table["set_coverage@90 (%)"], 100 * np.divide(hits, counts))
    np.testing.assert_allclose(table["set_size@90"], np.divide(sums, counts), rtol=1e-6)
    shown = tables.sets_table(table, *names).splitlines()
    assert " ".join(shown[-2].split()) == "worst class: b 5 41.7 60.00 [23.07, 88.24] -30.00 5.80"
    without = per_class.by_set_size(extended, classes, None, *names)
    assert without["class"].tolist() == titles[:-1]


def test_the_line_and_the_picture(result):
    sets = result.summarize()["sets"]
    line = tables.sets_line(sets)
    assert line.startswith("Prediction sets (rank) for 90%: coverage 58.33% [31.95, 80.67], mean size 7.67 [")
    pixels = plots.pixels(plots.set_sizes(sets))
    shifted = plots.pixels(plots.set_sizes({**sets, "intervals": {**sets["intervals"], "set_size@50": None}}))
    assert pixels.shape == shifted.shape
    assert not np.array_equal(pixels, shifted)

"""Evaluation results of each class: its metrics, its precision and its most frequent confusion."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from rank4class import losses
from rank4class.pipelines.evaluation.evaluator import EvaluationResult, metric_heading
from rank4class.pipelines.evaluation.split_metrics import SplitMetrics, of_counts
from rank4class.pipelines.evaluation.statistics import wilson
from rank4class.pipelines.storage import files

NO_CLASS = -1  # top class of an example whose scores are not finite
LEAST_EXAMPLES = 5  # of a class among the worst of many
_LARGEST_SETS = (0, 1, 2, 3, 5, 10)  # number of classes in each row but the last
_SET_SIZES = ("empty", "1 class", *(f"{n} classes" for n in ("2", "3", "4 to 5", "6 to 10", "more")))


def per_class(
    result: EvaluationResult, labels: np.ndarray | scipy.sparse.csr_array, class_names: Sequence[str]
) -> pd.DataFrame:
    """Returns a table of results, a row per class; undefined figures are NaN.

    An example with several classes counts for each of them. Its metrics, and whether its top class is right,
    concern all of its classes together. The columns:

    - "class" (printable), "examples";
    - of each metric its heading, "<metric> low" and "<metric> high": mean over these examples, and for a
      fraction the interval of `statistics.wilson`, both in percent;
    - "predicted": number of examples of any class with this top class;
    - "precision (%)", "precision low", "precision high": how many of those are right;
    - "most confused with", "most confused count": the most frequent wrong top class of its examples;
    - of metrics of the whole split their headings, and "low" and "high" without values;
    - of decided classes "decided", the number of examples, and "decided precision (%)", "decided recall (%)"
      and "f1 (%)".
    """
    n = len(class_names)
    top = result.top_classes
    right = result.right > 0
    rows, classes = (np.arange(len(labels)), labels) if labels.ndim == 1 else labels.nonzero()
    shares_top_score = np.bincount(rows[top[rows] == classes], minlength=len(top)) > 0
    # If one of an example's classes shares the highest score, no single class is confused with it.
    confused = ~right & ~shares_top_score & (top != NO_CLASS)
    examples = np.bincount(classes, minlength=n)
    columns: dict[str, Any] = {"class": list(map(files.printable, class_names)), "examples": examples}
    for metric, values in zip(result.names, result.values.T, strict=True):
        best = result.whole.best.get(metric, np.ones(len(top)))
        sums = (np.bincount(classes, each[rows], minlength=n) for each in (values, best))
        columns |= _with_ends(metric, _divide(*sums), losses.get_metric(metric).percent, examples)
    for metric, values in result.whole.by_class(rows, classes, n).items():
        columns |= _with_ends(metric, values, losses.get_metric(metric).percent)
    predicted = np.bincount(top[top != NO_CLASS], minlength=n)
    columns["predicted"] = predicted
    precision = _divide(np.bincount(top[right], minlength=n), predicted)
    table = pd.DataFrame(columns | _with_ends("precision", precision, True, predicted))
    errors = frequent_errors(classes[confused[rows]], top[rows][confused[rows]])
    errors = errors.drop_duplicates("true").set_index("true").reindex(range(n))
    table["most confused with"] = errors["predicted"].map(table["class"])
    table["most confused count"] = errors["count"].fillna(0).astype(np.int64)
    if result.decisions is not None:
        hits, decided, relevant = result.decisions.counts()
        table["decided"] = decided.astype(np.int64)
        table["decided precision (%)"] = 100.0 * _divide(hits, decided)
        table["decided recall (%)"] = 100.0 * _divide(hits, relevant)
        table["f1 (%)"] = 200.0 * _divide(hits, decided + relevant)
    return table


def by_frequency(
    result: EvaluationResult, labels: np.ndarray | scipy.sparse.csr_array, training_counts: np.ndarray
) -> pd.DataFrame:
    """Returns a `per_class` table of thirds of the classes by training examples, the most frequent first.

    Classes with equally many are in one third, so there may be fewer than three. More columns are "classes",
    their number, and "fewest" and "most", the training examples of one of them.
    """
    ends = np.unique(np.quantile(training_counts, [1 / 3, 2 / 3, 1.0], method="inverted_cdf"))[::-1]
    third = len(ends) - 1 - np.searchsorted(ends[::-1], training_counts)
    names = []
    sizes = []
    for i in range(len(ends)):
        counts = training_counts[third == i]
        sizes.append((len(counts), counts.min(), counts.max()))
        least = f"{counts.min():,} to " if counts.min() < counts.max() else ""
        names.append(f"{least}{counts.max():,} ({len(counts):,} classes)")
    top = result.top_classes
    groups = np.where(top == NO_CLASS, NO_CLASS, third[top])
    grouped = dataclasses.replace(
        result, top_classes=groups, decisions=None, whole=result.whole.grouped(third)
    )
    if isinstance(labels, np.ndarray):
        table = per_class(grouped, third[labels], names)
    else:
        arrays = (labels.data, third[labels.indices], labels.indptr)
        labels = scipy.sparse.csr_array(arrays, shape=(labels.shape[0], len(ends)))
        labels.sum_duplicates()  # an example counts once for a third
        table = per_class(grouped, labels, names)
    table[["classes", "fewest", "most"]] = sizes
    return table


def by_set_size(
    result: EvaluationResult, classes: pd.DataFrame, thirds: pd.DataFrame | None, covered: str, size: str
) -> pd.DataFrame:
    """Returns a `per_class` table of the prediction sets by size and of the worst class and third.

    It has the "share (%)" of the examples. The worst class has at least `LEAST_EXAMPLES`. The tables of the
    result are `per_class` and `by_frequency`, and it has the metrics with the names `covered` and `size`.
    """
    rows = np.searchsorted(_LARGEST_SETS, result.values[:, result.names.index(size)])
    by_size = dataclasses.replace(result, top_classes=rows, decisions=None, whole=SplitMetrics())
    worst = {"worst class": classes[classes["examples"] >= LEAST_EXAMPLES]}
    if thirds is not None:
        worst["worst third by training examples"] = thirds
    firsts = [
        group.sort_values(f"{covered} (%)", kind="stable")[:1].assign(
            **{"class": lambda one, title=title: f"{title}: " + one["class"]}
        )
        for title, group in worst.items()
    ]
    whole = pd.concat([per_class(by_size, rows, _SET_SIZES), *firsts], ignore_index=True)
    whole["share (%)"] = 100.0 * whole["examples"] / len(rows)
    return whole[whole["examples"] > 0]


def to_json(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns the rows of a table by its columns; undefined figures are None."""
    return json.loads(table.to_json(orient="records"))


def worst_first(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Sorts a `per_class` table by a metric, the worst class first and classes without examples last.

    For the F1 of all classes, that is the F1 of each; for their mean recall or error, the recall of each.
    """
    ascending = losses.get_metric(metric).higher_is_better
    heading = metric_heading(metric)
    if of_counts([metric]):
        ascending = True
        heading = "f1 (%)" if metric.startswith("f1") else "decided recall (%)"
    if heading not in table:  # of a run that has not fitted its thresholds yet
        return table
    return table.sort_values(heading, ascending=ascending, kind="stable")


def frequent_errors(labels: np.ndarray, predicted: np.ndarray) -> pd.DataFrame:
    """Returns "true" class, "predicted" class and "count" of wrong predictions, the most frequent first."""
    errors = pd.DataFrame({"true": labels, "predicted": predicted})[labels != predicted]
    counts = errors.groupby(["true", "predicted"]).size()
    return counts.sort_values(ascending=False, kind="stable").reset_index(name="count")


def _with_ends(
    name: str, means: np.ndarray, percent: bool, counts: np.ndarray | None = None
) -> dict[str, Any]:
    """Returns the columns of a metric; a fraction of some counts has Wilson's interval."""
    low = np.nan
    high = np.nan
    if percent and counts is not None:
        low, high = 100.0 * wilson(means, counts).T
    scaled = {f"{name} (%)": 100.0 * means} if percent else {name: means}
    return {**scaled, f"{name} low": low, f"{name} high": high}


def _divide(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)

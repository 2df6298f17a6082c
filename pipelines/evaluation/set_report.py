"""Prediction sets of one coverage, by size, and of the class and the third of the classes missed most."""

import dataclasses

import numpy as np
import pandas as pd

from rank4class.pipelines.evaluation import per_class
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.evaluation.split_metrics import SplitMetrics

_LARGEST = (0, 1, 2, 3, 5, 10)  # size in each row but the last
_SIZES = ("empty", "1 class", "2 classes", "3 classes", "4 to 5 classes", "6 to 10 classes", "more classes")


def table(
    result: EvaluationResult, classes: pd.DataFrame, thirds: pd.DataFrame | None, covered: str, size: str
) -> pd.DataFrame:
    """Returns a `per_class` table of the sets by size and of the worst classes, with "share (%)" of examples.

    The worst class is one with at least `per_class.LEAST_EXAMPLES`. The tables of the result are `per_class`
    and `by_frequency`, and it has the metrics with the names `covered` and `size`.
    """
    rows = np.searchsorted(_LARGEST, result.values[:, result.names.index(size)])
    by_size = dataclasses.replace(result, top_classes=rows, decisions=None, whole=SplitMetrics())
    worst = {"worst class": classes[classes["examples"] >= per_class.LEAST_EXAMPLES]}
    if thirds is not None:
        worst["worst third by training examples"] = thirds
    firsts = [
        group.sort_values(f"{covered} (%)", kind="stable")[:1].assign(
            **{"class": lambda one, title=title: f"{title}: " + one["class"]}
        )
        for title, group in worst.items()
    ]
    whole = pd.concat([per_class.per_class(by_size, rows, _SIZES), *firsts], ignore_index=True)
    whole["share (%)"] = 100.0 * whole["examples"] / len(rows)
    return whole[whole["examples"] > 0]

"""The examples of an evaluation as a table, and those that a model gets most wrong."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from rank4class import data
from rank4class.pipelines.evaluation.evaluator import EvaluationResult

_BLOCK = 256  # examples whose probabilities of all classes are in memory at a time


def check(split: data.Split, count: int) -> None:
    """Raises ValueError, with the number of examples, if one may have several classes."""
    if split.multi_label:
        raise ValueError(
            f"worst={count}: an example may have several classes. Leave it out, and read the metrics of each "
            "example in predictions.npz of --output."
        )


def frame(
    result: EvaluationResult, split: data.Split, class_names: Sequence[str], rows: np.ndarray | None = None
) -> pd.DataFrame:
    """Returns a table with a row per example of a split, or per one of `rows`, int `[K]`.

    Its columns are "example" (its origin), "class" (a tuple if there may be several), "predicted" (None if a
    score is not finite), "rank" (of the first of its classes), "predicted score" if the result has its best
    classes, and with scores and a calibration "predicted probability" and, for one class, "probability".
    """
    rows = np.arange(len(split)) if rows is None else rows
    names, top = [*class_names, None], result.top_classes[rows]  # -1 is the last of the names
    columns: dict[str, Any] = {"example": [split.origin(i) for i in rows.tolist()]}
    if split.multi_label:
        labels = split.label_matrix[rows]
        ids = np.split(labels.indices, labels.indptr[1:-1])
        columns["class"] = [tuple(names[j] for j in each) for each in ids]
    else:
        labels = split.labels[rows]
        columns["class"] = [names[j] for j in labels]
    columns |= {"predicted": [names[j] for j in top], "rank": result.ranks[rows]}
    if result.best_scores is not None:
        columns["predicted score"] = result.best_scores[rows, 0]
    if result.calibrated is not None and result.scores is not None:
        if not split.multi_label:
            columns["probability"] = _probabilities(result, split, rows, labels)
        columns["predicted probability"] = _probabilities(result, split, rows, top)
    return pd.DataFrame(columns)


def _probabilities(
    result: EvaluationResult, split: data.Split, rows: np.ndarray, classes: np.ndarray
) -> np.ndarray:
    """Returns the calibrated probability of a class of each example, float64 `[K]`, in blocks of examples."""
    assert result.calibrated is not None
    assert result.scores is not None
    parts = []
    for first in range(0, len(rows), _BLOCK):
        block = rows[first : first + _BLOCK]
        where = None if split.excluded is None else ~split.excluded[block].toarray()
        probabilities = result.calibrated.calibration.probabilities(result.scores[block], where)
        parts.append(probabilities[np.arange(len(block)), classes[first : first + _BLOCK]])
    return np.concatenate(parts)


def worst(result: EvaluationResult, count: int) -> np.ndarray:
    """Returns the ids of the `count` examples of the lowest probability, or else rank, the worst first.

    Probabilities need the scores, which may be too many.
    """
    losses = result.ranks
    if result.calibrated is not None and result.scores is not None:
        nlls = result.calibrated.after.nlls
        losses = nlls if len(nlls) == len(losses) else losses  # or they are of a part of the examples
    return np.argsort(-losses, kind="stable")[:count]

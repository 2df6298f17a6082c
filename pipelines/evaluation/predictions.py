"""The files of an evaluation; see `docs/reference/files.md`.

In `predictions.npz` the labels of examples with several classes are the arrays of a `scipy.sparse.csr_array`:
a dense matrix of many classes would not fit.
"""

import csv
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from rank4class import data
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.storage import files

LARGEST_SCORES = 4 * 10**9  # bytes
BEST_CLASSES = 100  # of an example that are written by default; of at most as many classes all scores


def scores_fit(examples: int, classes: int) -> bool:
    """Whether the scores of the examples and classes take at most `LARGEST_SCORES`."""
    return 4 * examples * classes <= LARGEST_SCORES


def check_size(field: str, examples: int, classes: int, remedy: str) -> None:
    """Raises ValueError, for a field that needs the scores, if they exceed `LARGEST_SCORES`."""
    if not scores_fit(examples, classes):
        raise ValueError(
            f"{field}: needs the scores of {examples:,} examples and {classes:,} classes, "
            f"{4e-9 * examples * classes:.1f} GB, and the limit is {1e-9 * LARGEST_SCORES:.1f} GB. {remedy}"
        )


def write(
    folder: str | os.PathLike,
    summary: dict[str, Any],
    table: pd.DataFrame,
    result: EvaluationResult,
    split: data.Split,
    class_names: Sequence[str],
) -> None:
    """Writes an evaluation to an existing folder; the summary is the content of `evaluation.json`."""
    arrays: dict[str, np.ndarray | None] = {
        "class_names": np.array(class_names, str),
        "origins": np.array([split.origin(i) for i in range(len(split))], str),
        "metrics": np.array(result.names, str),
        "values": result.values,
        "scores": result.scores,
        "best_classes": result.best_classes,
        "best_scores": result.best_scores,
        "log_counts": result.log_counts,
    }
    if isinstance(split.labels, np.ndarray):
        arrays["labels"] = split.labels
    else:
        arrays |= {f"labels_{name}": getattr(split.labels, name) for name in ("data", "indices", "indptr")}
    present = {name: array for name, array in arrays.items() if array is not None}
    files.remove([os.path.join(folder, "evaluation.json")])  # it marks a complete evaluation
    files.write_npz(os.path.join(folder, "predictions.npz"), present)
    # Readers would take a quote at the start for that of CSV.
    names = table[["class", "most confused with"]].replace('^"', r"\"", regex=True)
    tsv = table.assign(**names).to_csv(
        sep="\t", index=False, float_format="%.4f", na_rep="-", quoting=csv.QUOTE_NONE, lineterminator="\n"
    )
    files.write(os.path.join(folder, "classes.tsv"), tsv)
    files.write(os.path.join(folder, "evaluation.json"), files.to_json(summary, indent=2) + "\n")

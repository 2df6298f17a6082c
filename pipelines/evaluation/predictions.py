"""Files of an evaluation, from which runs are compared example by example; see `docs/reference/files.md`.

In `predictions.npz` the labels of examples with several classes are the arrays of a `scipy.sparse.csr_array`:
a dense matrix of many classes would not fit.
"""

import csv
import dataclasses
import os
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import tensorflow as tf

from rank4class import data
from rank4class.pipelines.evaluation import comparison
from rank4class.pipelines.evaluation.evaluator import EvaluationResult
from rank4class.pipelines.storage import files

LARGEST_SCORES = 4 * 10**9  # bytes
BEST_CLASSES = 100  # of an example that are written by default; of at most as many classes all scores
_SPARSE_LABELS = ("labels_data", "labels_indices", "labels_indptr")


@dataclasses.dataclass(frozen=True)
class Predictions:
    """The examples of a `predictions.npz`."""

    labels: np.ndarray | scipy.sparse.csr_array  # as in `data.Split`
    class_names: np.ndarray  # of the `n` ranked classes
    origins: np.ndarray  # of the `N` examples
    metrics: np.ndarray  # names of the `M` metrics
    values: np.ndarray  # of the metrics, float32 `[N, M]`
    best_values: np.ndarray  # of the `P` propensity-scored metrics, float64 `[N, P]`; `[0]` of none


def scores_fit(examples: int, classes: int) -> bool:
    """Whether the scores of the examples and classes take at most `LARGEST_SCORES`."""
    return 4 * examples * classes <= LARGEST_SCORES


def check_size(examples: int, classes: int) -> None:
    """Raises ValueError if the scores of the examples and classes exceed `LARGEST_SCORES`."""
    if not scores_fit(examples, classes):
        size = 4 * examples * classes
        raise ValueError(
            f"keep_scores=True: the scores of {examples:,} examples and {classes:,} classes take "
            f"{size / 1e9:.1f} GB, which exceeds the limit of {LARGEST_SCORES / 1e9:.1f} GB. Leave it out to "
            f"write the best {BEST_CLASSES}, or set --nokeep_scores."
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
        "best_values": np.array([*result.whole.best.values()]).T,
        "scores": result.scores,
        "best_classes": result.best_classes,
        "best_scores": result.best_scores,
        "log_counts": result.log_counts,
    }
    if isinstance(split.labels, np.ndarray):
        arrays["labels"] = split.labels
    else:
        matrix = (split.labels.data, split.labels.indices, split.labels.indptr)
        arrays |= zip(_SPARSE_LABELS, matrix, strict=True)
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


def read(path: str | os.PathLike) -> Predictions:
    """Reads a `predictions.npz` without its scores, so only a small part of the file.

    Raises:
      FileNotFoundError: the file does not exist.
      ValueError: it is damaged or no such file.
    """
    if not files.exists(path) or tf.io.gfile.isdir(path):
        raise FileNotFoundError(f"{path}: no such file. Write it with rank4class evaluate --output=FOLDER.")
    try:
        with files.errors_of(path), tf.io.gfile.GFile(path, "rb") as file, np.load(file) as npz:
            names = ("class_names", "origins", "metrics", "values", "best_values")
            arrays = {name: npz[name] for name in names}
            if "labels" in npz.files:
                arrays["labels"] = npz["labels"]
            else:
                matrix = tuple(npz[name] for name in _SPARSE_LABELS)
                shape = len(arrays["origins"]), len(arrays["class_names"])
                arrays["labels"] = scipy.sparse.csr_array(matrix, shape=shape)
            return Predictions(**arrays)
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError) as error:
        raise ValueError(
            f"{path}: damaged, or not written by rank4class evaluate ({error}). Evaluate again."
        ) from error


def check_same_examples(first: Predictions, second: Predictions, first_path: str, second_path: str) -> None:
    """Raises ValueError if two files differ in their classes or examples, or in the order of these."""
    both = f"{first_path} and {second_path}"
    if not np.array_equal(first.class_names, second.class_names):
        raise ValueError(f"{both}: different classes. Compare runs on the same dataset.")
    has_same_labels = first.labels.shape == second.labels.shape and not (first.labels != second.labels).sum()
    if not has_same_labels or not np.array_equal(first.origins, second.origins):
        raise ValueError(f"{both}: different examples or labels. Compare evaluations of the same split.")


def have_same_weights(first: Predictions, second: Predictions) -> bool:
    """Returns whether the propensity-scored metrics of both files have the same best possible values."""
    best, others = (
        dict(zip(filter(comparison.is_weighted, each.metrics.tolist()), each.best_values.T, strict=True))
        for each in (first, second)
    )
    return all(np.array_equal(best[name], others[name]) for name in best.keys() & others)

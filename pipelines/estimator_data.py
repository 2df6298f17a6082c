"""The labels, weights and columns of the estimator's examples, and the files of its run."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import tensorflow as tf
from sklearn.preprocessing import LabelEncoder, MultiLabelBinarizer
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from rank4class import arguments, data
from rank4class.data.dataset import MIN_TO_SPLIT
from rank4class.data.readers import row_values
from rank4class.pipelines.storage import files


class Indicator:
    """Indicator matrices in the form of that of the training, with the interface of `MultiLabelBinarizer`."""

    def __init__(self, y: Any):
        self.classes_ = np.asarray(getattr(y, "columns", range(np.shape(y)[1])))
        self._is_sparse = scipy.sparse.issparse(y)
        self._dtype = getattr(y, "dtype", np.int64)

    def transform(self, y: Any) -> Any:
        return y

    def inverse_transform(self, decided: np.ndarray) -> Any:
        decided = decided.astype(self._dtype)
        return scipy.sparse.csr_array(decided) if self._is_sparse else decided


def label_encoder(y: Any) -> Any:
    """Returns the encoder of labels `y` and others; raises ValueError if they are not of two classes."""
    for i, label in enumerate(y if is_flat(y) else ()):
        if pd.isna(label) is True:
            raise ValueError(f"y[{i}]={label}: a missing label. Remove the example.")
    rows = [row for row in y if isinstance(row, list | tuple | set | np.ndarray)] if is_flat(y) else []
    if any(isinstance(label, str) for row in rows for label in row):  # lists of names
        encoder = MultiLabelBinarizer(sparse_output=True).fit(y)
    elif y is not None and type_of_target(y, input_name="y") == "multilabel-indicator":
        encoder = Indicator(y)
    else:
        if is_flat(y) and len({isinstance(label, str) for label in y}) == 2:
            raise ValueError("y: texts and numbers. Give labels of one type.")
        check_classification_targets(column_or_1d(y, warn=True))
        encoder = LabelEncoder().fit(column_or_1d(y))
        categories = getattr(getattr(y, "cat", y), "categories", ())  # of pandas, in their order
        if encoder.classes_.dtype == object:
            encoder.classes_ = np.array(
                sorted(encoder.classes_, key=[*categories, *encoder.classes_].index), object
            )
    if len(encoder.classes_) < 2:
        names = ", ".join(map(repr, encoder.classes_.tolist()))
        raise ValueError(f"y: one class, {names}. Give two or more.")
    return encoder


def encode(encoder: Any, y: Any) -> np.ndarray | scipy.sparse.csr_array:
    """Returns labels as those of a `data.Split`; raises ValueError for those of no class."""
    if isinstance(encoder, LabelEncoder):
        return encoder.transform(y).astype(np.int32)
    is_lists = isinstance(encoder, MultiLabelBinarizer)
    if is_lists and (unknown := {name for names in y for name in names} - {*encoder.classes_}):
        raise ValueError(f"y contains previously unseen labels: {sorted(unknown)}")
    labels = scipy.sparse.csr_array(encoder.transform(y), dtype=np.float32)
    labels.sum_duplicates()
    labels.eliminate_zeros()
    return labels


def weights_of(sample_weight: Any, class_weight: Any, y: Any) -> np.ndarray | None:
    """Returns the weights of examples, or None; raises ValueError for weights that are not."""
    if class_weight not in (None, "balanced") and not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight={class_weight!r}: unknown. Give 'balanced' or a dict of weights.")
    if sample_weight is None and not isinstance(class_weight, Mapping):
        return None
    weights = np.ones(len(y), np.float32) if sample_weight is None else np.asarray(sample_weight, np.float32)
    if isinstance(class_weight, Mapping):
        if not is_flat(y) or any(isinstance(label, list | tuple | set) for label in y):
            raise ValueError("class_weight: a dict is for single labels. Give sample_weight.")
        weights = weights * np.array([class_weight.get(label, 1.0) for label in y], np.float32)
    if weights.ndim != 1 or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError("sample_weight: not one finite number from 0 for each example. Correct it.")
    if not weights.any():
        raise ValueError("sample_weight: all weights are zero. Give some examples a weight.")
    return weights


def is_mixed(X: Any) -> bool:
    """Returns whether X is a frame with a column of other values than numbers, or with a missing number."""
    return isinstance(X, pd.DataFrame) and bool(_others(X) or X.isna().to_numpy().any())


def _others(X: pd.DataFrame) -> list[Any]:
    """Returns the names of the columns of other values than numbers."""
    return [name for name, dtype in X.dtypes.items() if not pd.api.types.is_numeric_dtype(dtype)]


def frame(X: Any) -> pd.DataFrame:
    """Returns X; raises ValueError if it is no DataFrame."""
    if not isinstance(X, pd.DataFrame):
        raise ValueError(f"X: a {type(X).__name__}. Give a DataFrame with the columns of the training.")
    return X


def cells(X: Any) -> np.ndarray:
    """Returns the cells of a frame as strings, object `[N, c]`; ValueError for another X."""
    X = frame(X)
    return np.array([[row_values.cell_text(cell) for cell in row] for row in X.to_numpy(object)], object)


def is_flat(values: Any) -> bool:
    return isinstance(values, list | tuple) or getattr(values, "ndim", None) == 1


def columns(X: pd.DataFrame, text_column: str | None) -> pd.DataFrame | pd.Series:
    """Returns the texts of a frame, or the frame."""
    if text_column is None:
        is_text = X.shape[1] == 1 and pd.api.types.is_string_dtype(X.iloc[:, 0])
        return X.iloc[:, 0] if is_text else X
    if text_column not in X:
        raise ValueError(f"text_column={text_column!r}: not a column of X. It has: {', '.join(map(str, X))}.")
    return X[text_column]


def text_column(X: pd.DataFrame) -> Any:
    """Returns the only column of a frame whose values hardly repeat, of texts; None without one.

    Raises:
      ValueError: values of several columns, or of one of single words, hardly repeat.
    """
    found = [name for name in _others(X) if not row_values.may_be_names(X[name].tolist())]
    if not found:
        return None
    if len(found) > 1 or not row_values.are_texts(X[found[0]].tolist()):
        raise ValueError(
            f"X: values of column {found[0]!r} hardly repeat. Leave it out, or set text_column={found[0]!r}."
        )
    return found[0]


def draw(split: data.Split, fraction: float, seed: int) -> dict[str, data.Split]:
    """Draws a validation split: one example, or of single labels one of each class with three, at least."""
    arguments.check_fraction(False, validation_fraction=fraction)
    least = 1 if split.multi_label else int(np.sum(np.bincount(split.labels) >= MIN_TO_SPLIT))
    if not least:
        raise ValueError("y: no class has 3 examples, of which 1 is for validation. Give validation_data.")
    return data.draw(split, {"validation": max(fraction, least / len(split))}, seed=seed)


def probabilities(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the probabilities among the outputs of a run; raises ValueError if there are none."""
    if "probabilities" not in outputs:
        raise ValueError("calibration='none': the run has no probabilities. Call decision_function.")
    return outputs["probabilities"]


def read_files(folder: str) -> dict[str, bytes]:
    """Returns name -> content of the files of a run, without those that only a resumption needs."""
    found = (os.path.join(parent, name) for parent, _, names in tf.io.gfile.walk(folder) for name in names)
    paths = {path.removeprefix(os.path.join(folder, "")): path for path in found}
    others = (
        "checkpoints/last/",
        "checkpoints/nearest-",
        "encoder-",
        "events.",
        "features-",
        "lock",
        "starts/",
    )
    return {name: files.read_bytes(path) for name, path in paths.items() if not name.startswith(others)}


def write_files(folder: str, contents: Mapping[str, bytes]) -> None:
    """Writes files by name to a folder."""
    for name, content in contents.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

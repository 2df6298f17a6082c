"""The inputs and labels in a row of a table."""

import json
import os
import re
import reprlib
from typing import Any, NamedTuple

import numpy as np

from rank4class.data.readers import files
from rank4class.data.readers.columns import Columns, Row, check_string

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
FLAGS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


class Example(NamedTuple):
    """The contents of a row."""

    where: str
    features: dict[str, Any]
    labels: list[str]
    several: bool  # whether the row may have several labels


def example(where: str, row: Row, columns: Columns, folder: str) -> Example:
    """Returns the example in a row; paths of images are relative to the folder."""
    features: dict[str, Any] = {}
    if columns.text is not None:
        features["text"] = columns.string(where, row, columns.text)
        if columns.pair is not None:
            # JSON has null.
            is_null = row.get(columns.pair, "") is None
            features["text_pair"] = "" if is_null else columns.string(where, row, columns.pair)
        if not features["text"].strip():
            raise ValueError(f"{where}: {columns.text!r} is empty.")
    if columns.image is not None:
        path = os.path.join(folder, columns.string(where, row, columns.image))
        if not os.path.isfile(path):
            raise ValueError(f"{where}: {columns.image}: {path}: no such file. Correct the path.")
        files.check_image(path)
        features["file"] = path
    if columns.has_vectors:
        features["embedding"] = _vector(where, row, columns)
    return Example(where, features, *labels_of(where, row, columns))


def _vector(where: str, row: Row, columns: Columns) -> np.ndarray:
    names = [columns.vector] if columns.vector else columns.features
    for name in names:
        if name not in row:
            columns.string(where, row, name)  # raises
    values = row[columns.vector] if columns.vector else [row[name] for name in columns.features]
    try:
        vector = np.array(json.loads(values) if isinstance(values, str) else values, np.float32)
    except (ValueError, TypeError) as error:
        if columns.features:
            culprit = next(name for name in names if not _is_number(row[name]))
            raise ValueError(
                f"{where}: {culprit} {reprlib.repr(row[culprit])} is not a number. Correct it."
            ) from error
        raise ValueError(
            f"{where}: {columns.vector} {reprlib.repr(values)} is not a list of numbers. Correct it."
        ) from error
    if vector.ndim != 1 or not len(vector):
        raise ValueError(f"{where}: {columns.vector} is not a list of numbers. Correct it.")
    check_finite(where, np.isfinite(vector).all())
    return vector


def kind_of(value: Any) -> str:
    """Returns "number" for a cell that is one or the text of one, "vector" for a list, otherwise ""."""
    return "vector" if isinstance(value, list) else "number" if _is_number(value) else ""


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError):
        return False
    return True


def check_finite(where: str, is_finite: bool | np.bool_) -> None:
    """Raises ValueError for a vector with a number that is not finite in float32."""
    if not is_finite:
        raise ValueError(f"{where}: a number is missing, or not finite. Correct it.")


def check_width(where: str, width: int, expected: int | None) -> None:
    """Raises ValueError for a vector of another number of values, -1 if it is missing."""
    if width < 0:
        raise ValueError(f"{where}: the vector is missing. Add it.")
    if width != expected:
        raise ValueError(f"{where}: {width} values, but {expected} in the first vector. Correct it.")


def labels_of(where: str, row: Row, columns: Columns) -> tuple[list[str], bool]:
    """Returns the labels of a row, [] without a column of them, and whether it may have several."""
    if not columns.is_labeled:
        return [], False
    if columns.labels:
        return [name for name in columns.labels if _flag(where, row, name, columns)], True
    column, separator = str(columns.label), columns.separator
    value = row.get(column, "")
    if isinstance(value, list):
        names = [label(where, column, each) for each in value]
    elif separator is not None and (value is None or isinstance(value, str)):
        text = columns.string(where, row, column) if value is not None else ""
        names = [label(where, column, each) for each in text.split(separator)] if text.strip() else []
    elif column not in row:
        columns.string(where, row, column)  # raises
    else:
        return [label(where, column, value)], separator is not None
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{where}: {column} {repeated!r} is repeated. Remove one.")
    return names, True


def label(where: str, column: str, value: Any) -> str:
    """Returns the name of a class in a cell, a string or a whole number."""
    if type(value) is int or (isinstance(value, float) and value.is_integer()):  # excludes true and false
        return str(int(value))
    if isinstance(value, float):
        raise ValueError(
            f"{where}: {column} {value!r} is a decimal number, not a class. Write strings or whole numbers."
        )
    name = "" if value is None else check_string(where, column, value).strip()
    if not name:
        raise ValueError(f"{where}: {column!r} is empty.")
    if CONTROL.search(name):  # a file of classes could not name it
        raise ValueError(f"{where}: {column} {name!r} has a control character.")
    return name


def _flag(where: str, row: Row, column: str, columns: Columns) -> bool:
    if column not in row:
        columns.string(where, row, column)  # raises
    flag = FLAGS.get(str(row[column]).strip().lower())
    if flag is None:
        raise ValueError(f"{where}: {column} {reprlib.repr(row[column])} is neither 0 nor 1. Correct it.")
    return flag

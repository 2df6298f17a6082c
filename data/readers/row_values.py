"""The inputs and labels in a row of a table."""

import json
import os
import re
import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rank4class.data.readers import files
from rank4class.data.readers.columns import Columns, Row, check_string

DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:.*)?")  # and maybe a time
DECIMAL = re.compile(r"[-+]?\d*\.\d*[1-9]\d*")
WORDS_OF_TEXT = 3  # on average, at least, of a column that is a text though its name does not say so
FLAGS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


class Example(NamedTuple):
    """The contents of a row."""

    where: str
    features: dict[str, Any]
    labels: list[str]
    several: bool  # whether the row may have several labels


def example(where: str, row: Row, columns: Columns, folder: str) -> Example:
    """Returns the example in a row; paths of images are relative to the folder.

    A labeled text may not be empty or white space.
    """
    features: dict[str, Any] = {}
    if columns.text_column is not None:
        features["text"] = columns.string(where, row, columns.text_column)
        if columns.text_pair_column is not None:
            # JSON has null.
            is_null = row.get(columns.text_pair_column, "") is None
            features["text_pair"] = "" if is_null else columns.string(where, row, columns.text_pair_column)
        if columns.is_labeled and not features["text"].strip():
            raise ValueError(f"{where}: {columns.text_column!r} is empty.")
    if columns.image_column is not None:
        path = os.path.join(folder, columns.string(where, row, columns.image_column))
        if not os.path.isfile(path):
            raise ValueError(f"{where}: {columns.image_column}: {path}: no such file. Correct the path.")
        files.check_image(path)
        features["file"] = path
    if columns.has_vectors:
        features["embedding"] = _vector(where, row, columns)
    elif columns.feature_columns:
        cells = (columns.cell(where, row, name) for name in columns.feature_columns)
        features["cells"] = np.array([cell_text(cell) for cell in cells], object)
    return Example(where, features, *labels_of(where, row, columns))


def _vector(where: str, row: Row, columns: Columns) -> np.ndarray:
    names = (columns.vector_column,) if columns.vector_column else columns.feature_columns
    cells = [columns.cell(where, row, name) for name in names]
    values = cells[0] if columns.vector_column else cells
    try:
        vector = np.array(json.loads(values) if isinstance(values, str) else values, np.float32)
    except (ValueError, TypeError):
        vector = np.zeros((), np.float32)
    if vector.ndim != 1 or not len(vector):
        wrong = next(((n, c) for n, c in zip(names, cells, strict=True) if not _is_number(c)), None)
        name, cell = wrong or (names[0], cells[0])
        kind = "list of numbers" if columns.vector_column else "number"
        raise ValueError(f"{where}: {name} {reprlib.repr(cell)} is not a {kind}. Correct it.")
    check_finite(where, np.isfinite(vector).all())
    return vector


def cell_text(cell: Any) -> str:
    """Returns a cell as a string, empty if it is missing.

    >>> cell_text(1.0), cell_text(None), cell_text(float("nan")), cell_text("a")
    ('1.0', '', '', 'a')
    """
    try:
        is_missing = cell is None or bool(cell != cell)  # NaN and pandas' NaT differ from themselves
    except TypeError:  # as pandas' NA may
        is_missing = True
    return "" if is_missing else str(cell)


def may_be_names(cells: Sequence[Any]) -> bool:
    """Returns whether the cells of a column are dates, or names that repeat."""
    if any(isinstance(cell, list | dict) for cell in cells):
        return False
    present = [text for cell in cells if (text := cell_text(cell).strip())]
    return all(map(DATE.fullmatch, present)) or 2 * len(set(present)) <= len(present)


def are_texts(cells: Sequence[Any]) -> bool:
    """Returns whether cells are strings of three words or more on average."""
    return all(isinstance(cell, str) for cell in cells) and mean_words(cells) >= WORDS_OF_TEXT


def mean_words(cells: Sequence[Any]) -> float:
    return sum(len(str(cell).split()) for cell in cells) / max(1, len(cells))


def kind_of(value: Any) -> str:
    """Returns "number" for a cell that is one or the text of one, "vector" for a list, otherwise ""."""
    is_vector = isinstance(value, list) and all(map(_is_number, value))
    return "vector" if is_vector else "number" if _is_number(value) else ""


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


def labels_of(where: str, row: Row, columns: Columns) -> tuple[list[str], bool]:
    """Returns the labels of a row, [] without a column of them, and whether it may have several."""
    column = columns.label_column
    separator = columns.label_separator
    if column is None:
        names = []
        for name in columns.label_columns:
            cell = columns.cell(where, row, name)
            flag = FLAGS.get(str(cell).strip().lower())
            if flag is None:
                raise ValueError(f"{where}: {name} {reprlib.repr(cell)} is neither 0 nor 1. Correct it.")
            names += [name] if flag else []
        return names, columns.is_labeled
    value = columns.cell(where, row, column)
    if separator is not None and not isinstance(value, list | int):
        text = "" if value is None else check_string(where, column, value)
        value = text.split(separator) if text.strip() else []
    if not isinstance(value, list):
        return [label(where, column, value)], separator is not None
    names = [label(where, column, each) for each in value]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{where}: {column} {repeated!r} is repeated. Remove one.")
    return names, True


def label(where: str, column: str, value: Any) -> str:
    """Returns the name of a class in a cell, a string or a whole number."""
    if type(value) is int or (isinstance(value, float) and value.is_integer()):  # excludes true and false
        return str(int(value))
    is_decimal = isinstance(value, float)
    text = str(value) if is_decimal else value
    name = "" if text is None else check_string(where, column, text).strip()
    if is_decimal or DECIMAL.fullmatch(name):
        raise ValueError(
            f"{where}: {column} {name} is a decimal number, not a class. Write names or whole numbers."
        )
    if not name:
        raise ValueError(f"{where}: {column!r} is empty.")
    return name

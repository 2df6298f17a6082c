"""Columns of numbers, dates and names to the vectors of an encoder, in the graph."""

import collections
import datetime
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class.data.readers.row_values import DATE

Features = dict[str, tf.Tensor]
MOST_LEVELS = 100  # of a column of names
LEAST_COUNT = 2  # training examples of a level
MOSTLY = 0.9  # share of the cells of a column of numbers that are numbers
_NUMBER = r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*"
_DATE = rf"\s*{DATE.pattern}\s*"


class CellEncoder:
    """The vectors of rows of cells, fitted to training rows.

    A call on features with `cells` `[B, c]`, strings, returns `embedding`, float32 `[B, d]`:

    - of a column of numbers the number; a missing one is the median of the training rows, and a second
      value of 1 tells it if some of them miss it too;
    - of a column of ISO dates (`2024-05-31`, `2024-05-31 17:30`) the days since 1970, month, day, weekday (0
      is Monday) and hour, and with a missing one the medians;
    - of a column of names a 1 at one of its most frequent ones, and zeros for others and missing ones.

    A cell that is not a number, or a date, is missing in such a column. A column is of numbers if nine in ten
    of its training cells are that are not empty, with a warning for the others, and of dates if all are.

    Args:
      columns: for each column its "kind", and what is fitted: "values", the medians, and "is_missing", or
        "levels".
      scales: mean and factor of each value, float `[2, d]`: it less the mean times the factor is returned;
        None leaves them.

    >>> cells = np.array([["1.5", "red"], ["", "blue"], ["2.5", "red"]], object)
    >>> CellEncoder.fit(cells)({"cells": tf.constant([["3", "red"], ["", "pink"]])})["embedding"].numpy()
    array([[3., 0., 1.],
           [2., 1., 0.]], dtype=float32)
    """

    def __init__(self, columns: Sequence[dict[str, Any]], scales: Any = None):
        self._columns = columns
        self._scales = scales
        self.settings = {"columns": list(columns), **({} if scales is None else {"scales": scales})}

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> "CellEncoder":
        """Returns the encoder of some `settings`."""
        return cls(**settings)

    @classmethod
    def fit(cls, cells: np.ndarray) -> "CellEncoder":
        """Returns the encoder that is fitted to rows of cells, strings `[N, c]`."""
        return cls([_fitted(cells[:, i].tolist()) for i in range(cells.shape[1])])

    @classmethod
    def fit_scaled(cls, cells: np.ndarray) -> "CellEncoder":
        """Returns the encoder whose vectors of the training rows have mean 0 and a mean square of 1."""
        encoder = cls.fit(cells)
        vectors = encoder.rows(cells).astype(np.float64)
        varies = np.ptp(vectors, axis=0) > 0.0
        factors = varies / np.where(varies, vectors.std(axis=0), 1.0) / np.sqrt(max(1, varies.sum()))
        return cls(encoder.settings["columns"], [vectors.mean(axis=0).tolist(), factors.tolist()])

    def rows(self, cells: np.ndarray) -> np.ndarray:
        """Returns the vectors of rows of cells, float32 `[N, d]`."""
        return self({"cells": tf.constant(cells)})["embedding"].numpy()

    def __call__(self, features: Features) -> Features:
        cells = tf.unstack(features["cells"], len(self._columns), axis=1)
        parts = [
            _PARTS[column["kind"]](each, column) for each, column in zip(cells, self._columns, strict=True)
        ]
        vectors = tf.concat(parts, axis=1)
        if self._scales is not None:
            vectors = (vectors - self._scales[0]) * self._scales[1]
        return {"embedding": vectors}


def _fitted(cells: list[str]) -> dict[str, Any]:
    """Returns the description of a column."""
    present = [cell for cell in cells if cell.strip()]
    is_missing = len(present) < len(cells)
    numbers = [float(cell) for cell in present if re.fullmatch(_NUMBER, cell)]
    if numbers and len(numbers) >= MOSTLY * len(present):
        if wrong := [cell for cell in present if not re.fullmatch(_NUMBER, cell)]:
            note = "%d cells of a column of numbers are none, such as %r: they count as missing"
            logging.warning(note, len(wrong), wrong[0])
        is_missing |= bool(wrong)
        return {"kind": "number", "values": [float(np.median(numbers))], "is_missing": is_missing}
    if present and all(map(_is_date, present)):
        parts = _date(tf.constant(present)).numpy()
        return {"kind": "date", "values": np.median(parts, axis=0).tolist(), "is_missing": is_missing}
    counts = collections.Counter(present).most_common(MOST_LEVELS)
    return {"kind": "names", "levels": sorted(name for name, count in counts if count >= LEAST_COUNT)}


def _is_date(cell: str) -> bool:
    try:
        datetime.date.fromisoformat(cell.strip()[:10])
    except ValueError:
        return False
    return re.fullmatch(_DATE, cell) is not None


def _numbers(cells: tf.Tensor, column: dict[str, Any]) -> tf.Tensor:
    is_present = tf.strings.regex_full_match(cells, _NUMBER)
    values = tf.strings.to_number(tf.where(is_present, tf.strings.strip(cells), "0"))
    return _filled(values[:, None], is_present & tf.math.is_finite(values), column)


def _dates(cells: tf.Tensor, column: dict[str, Any]) -> tf.Tensor:
    is_present = tf.strings.regex_full_match(cells, _DATE)
    return _filled(_date(tf.where(is_present, cells, "1970-01-01")), is_present, column)


def _filled(values: tf.Tensor, is_present: tf.Tensor, column: dict[str, Any]) -> tf.Tensor:
    """Returns values `[B, v]` with those of the column where they are missing, and whether they are."""
    filled = tf.where(is_present[:, None], values, tf.constant([column["values"]], tf.float32))
    if not column["is_missing"]:
        return filled
    return tf.concat([filled, tf.cast(~is_present[:, None], tf.float32)], axis=1)


def _date(cells: tf.Tensor) -> tf.Tensor:
    """Returns days since 1970, month, day, weekday and hour of dates, float32 `[B, 5]`."""
    cells = tf.strings.strip(cells)

    def part(start: int, length: int) -> tf.Tensor:
        text = tf.strings.substr(tf.strings.join([cells, " 00:00"]), start, length)
        return tf.strings.to_number(text, tf.int32)

    year, month, day, hour = part(0, 4), part(5, 2), part(8, 2), part(11, 2)
    # Years from March on have their leap day at the end (Richards, 2013, "Calendars", section 15.11).
    shifted = year - tf.cast(month < 3, tf.int32)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400 + of_year - 719_468
    return tf.cast(tf.stack([days, month, day, (days + 3) % 7, hour], axis=1), tf.float32)


def _names(cells: tf.Tensor, column: dict[str, Any]) -> tf.Tensor:
    levels = tf.constant(column["levels"], tf.string)
    return tf.cast(cells[:, None] == levels, tf.float32)


_PARTS = {"number": _numbers, "date": _dates, "names": _names}

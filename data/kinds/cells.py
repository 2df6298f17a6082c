"""Rows of a table with columns of numbers, dates and names."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class.data.kind import KINDS
from rank4class.data.kinds.arrays import Arrays, Kind, Specs, digests
from rank4class.data.preprocessing.cells import CellEncoder
from rank4class.data.readers import tables
from rank4class.data.readers.row_values import cell_text


@KINDS.register("cells")
class Cells(Kind):
    """Rows of cells, as strings; an empty one is missing."""

    preprocessor = CellEncoder
    preprocesses_once = True
    usage: Mapping[str, str] = {"cells": '[["a cell of each column", ...]]'}
    duplicates = "Rows whose cells are all equal are duplicates."

    def contents(self, *splits: Arrays) -> np.ndarray:
        return digests("\0".join(row).encode() for features in splits for row in features["cells"].tolist())

    def preprocess(self, features: Arrays, image_size: int, tokenizer: Callable) -> Callable:
        return CellEncoder.fit(features["cells"])

    def _read(self, path, specs, bad_rows, columns, ids):
        columns = columns.without_labels()._replace(is_mixed=True, has_header=not columns.by_position)
        for example in tables.Reader(columns, bad_rows).examples(path):
            yield example.where, example.features

    def features_of(self, value: Any, specs: Specs, ids: Mapping[str, int], where: str) -> dict[str, Any]:
        return {"cells": cells_of(value, specs["cells"], where)}


def cells_of(value: Any, spec: tf.TensorSpec, where: str) -> np.ndarray:
    """Returns a row of cells as strings, object `[c]`; ValueError for another value."""
    width = spec.shape[1]
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray) or len(value) != width:
        raise ValueError(f"{where}={value!r}: the model takes rows of {width} cells. Give lists of them.")
    return np.array([cell_text(cell) for cell in value], object)

"""Instances that are known by their ids, such as users."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from rank4class.data.kind import KINDS
from rank4class.data.kinds.arrays import Kind, Specs
from rank4class.data.readers import tables


@KINDS.register("id")
class Ids(Kind):
    """Ids; the inputs to predict are their names in the training data."""

    has_ids = has_rows = True
    usage: Mapping[str, str] = {"id": "[0]"}

    def _read(self, path, specs, bad_rows, columns, ids):
        columns = columns.without_labels()._replace(text_column=columns.text_column or "text")
        for example in tables.Reader(columns, bad_rows).examples(path):
            name = example.features["text"].strip()
            with bad_rows.row():
                yield name, self.features_of(name, specs, ids, example.where)

    def features_of(self, value: Any, specs: Specs, ids: Mapping[str, int], where: str) -> dict[str, Any]:
        if str(value) not in ids:
            first = ", ".join(itertools.islice(ids, 3))
            raise ValueError(
                f"{where}={value!r}: not in the training data, whose first ids are {first}. Remove it."
            )
        return {"id": np.int32(ids[str(value)])}

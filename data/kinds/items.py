"""Lists of items, such as the documents of a query, which are ranked in place of classes."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class.data.datasets import letor
from rank4class.data.kind import KINDS
from rank4class.data.kinds.arrays import Arrays, Kind
from rank4class.data.readers import list_records


@KINDS.register("items")
class Items(Kind):
    """Lists of any length of the features of items; `excluded` marks their padding."""

    ranks_items = True

    def specs(self, features: Arrays) -> dict[str, tf.TensorSpec]:
        spec = super().specs(features)["items"]
        return {"items": tf.TensorSpec([None, None, spec.shape[2]], spec.dtype)}

    def _read(self, path, specs, bad_rows, columns, ids):
        width = specs["items"].shape[2]
        in_records = list_records.is_records(path)
        if in_records and not columns.feature_columns:
            raise ValueError(f"{path}: the model was trained on SVMlight rows. Give such rows.")
        if in_records:
            queries = letor.read_records([path], columns.feature_columns, None)
        else:
            queries = letor.read_queries(path)
        last = queries.values.shape[1]
        if last > width or (in_records and last < width):
            raise ValueError(
                f"{path}: features up to {last}, but the model takes {width}. Give the features of its "
                "training."
            )
        for reason in queries.skipped:
            with bad_rows.row():
                raise ValueError(reason)
        for origin, (first, end) in zip(queries.origins, itertools.pairwise(queries.bounds), strict=True):
            items = np.zeros([end - first, width], np.float32)
            items[:, : queries.values.shape[1]] = queries.values[first:end].toarray()
            yield str(origin), {"items": items}

    def stack(self, inputs: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
        sizes = np.array([len(features["items"]) for features in inputs])
        items = np.zeros([len(inputs), sizes.max(), inputs[0]["items"].shape[1]], np.float32)
        for i, features in enumerate(inputs):
            items[i, : sizes[i]] = features["items"]
        return {"items": items, "excluded": np.arange(sizes.max()) >= sizes[:, None]}

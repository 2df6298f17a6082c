"""Texts, and pairs of texts."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rank4class.data.kind import KINDS
from rank4class.data.kinds.arrays import Arrays, Kind, Specs, digests
from rank4class.data.kinds.cells import cells_of
from rank4class.data.preprocessing.tokenizers import TOKENIZERS
from rank4class.data.readers import tables
from rank4class.data.readers.columns import normalize_text


@KINDS.register("text")
class Texts(Kind):
    """Texts, each with a second one if there is the feature `text_pair`, and with `cells` beside it."""

    tokenizes = has_rows = True
    usage: Mapping[str, str] = {
        "text": '["a text"]',
        "text_pair": '["its second text"]',
        "cells": '[["a cell of each column beside the text", ...]]',
    }
    duplicates = "Texts that differ only in case and white space are duplicates."

    def contents(self, *splits: Arrays) -> np.ndarray:
        columns = ([values.T if values.ndim > 1 else [values] for values in f.values()] for f in splits)
        texts = itertools.chain(*(zip(*itertools.chain(*each), strict=True) for each in columns))
        return digests("\n".join(map(normalize_text, row)).encode() for row in texts)

    def preprocess(self, features: Arrays, image_size: int, tokenizer: Callable) -> Callable:
        return tokenizer()

    def restore(self, name: str, settings: dict[str, Any]) -> Any:
        return TOKENIZERS[name].from_settings(settings)

    def _read(self, path, specs, bad_rows, columns, ids):
        if "text_pair" in specs and columns.text_pair_column is None:
            raise ValueError("text_pair_column=None: the model takes pairs of texts. Name the second column.")
        if "cells" in specs and not tables.is_table(path):
            raise ValueError(f"{path}: no columns, which the model takes beside the texts. Give a table.")
        columns = columns.without_labels()._replace(
            text_column=columns.text_column or "text", is_mixed="cells" in specs
        )
        for example in tables.Reader(columns, bad_rows).examples(path):
            yield example.where, example.features

    def features_of(self, value: Any, specs: Specs, ids: Mapping[str, int], where: str) -> dict[str, Any]:
        is_pair = isinstance(value, Iterable) and not isinstance(value, str | bytes)
        given = list(value) if is_pair else [value]
        values = dict(zip(sorted(specs, key=lambda name: name == "cells"), given, strict=False))
        is_whole = len(values) == len(given) == len(specs)
        if not is_whole or not all(isinstance(values[name], str) for name in specs if name != "cells"):
            last = ", and a list of cells last" if "cells" in specs else ""
            raise ValueError(f"{where}={value!r}: the model takes {' and '.join(specs)}. Give strings{last}.")
        # NumPy's strings have a dtype of their length.
        return {n: cells_of(v, specs[n], where) if n == "cells" else str(v) for n, v in values.items()}

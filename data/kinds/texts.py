"""Texts, and pairs of texts."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rank4class.data.kind import KINDS
from rank4class.data.kinds.arrays import Arrays, Kind, Specs, digests
from rank4class.data.preprocessing.tokenizers import TOKENIZERS
from rank4class.data.readers import tables
from rank4class.data.readers.columns import normalize_text


@KINDS.register("text")
class Texts(Kind):
    """Texts, each with a second one if there is the feature `text_pair`."""

    tokenizes = has_rows = True
    usage: Mapping[str, str] = {"text": '["a text"]', "text_pair": '["its second text"]'}
    duplicates = "Texts that differ only in case and white space are duplicates."

    def contents(self, *splits: Arrays) -> np.ndarray:
        texts = itertools.chain(*(zip(*features.values(), strict=True) for features in splits))
        return digests("\n".join(map(normalize_text, row)).encode() for row in texts)

    def preprocess(self, features: Arrays, image_size: int, tokenizer: Callable) -> Callable:
        return tokenizer()

    def restore(self, name: str, settings: dict[str, Any]) -> Any:
        return TOKENIZERS[name].from_settings(settings)

    def _read(self, path, specs, bad_rows, columns, ids):
        if "text_pair" in specs and columns.text_pair_column is None:
            raise ValueError("text_pair_column=None: the model takes pairs of texts. Name the second column.")
        columns = columns.without_labels()._replace(text_column=columns.text_column or "text")
        for example in tables.Reader(columns, bad_rows).examples(path):
            yield example.where, example.features

    def features_of(self, value: Any, specs: Specs, ids: Mapping[str, int], where: str) -> dict[str, Any]:
        is_pair = isinstance(value, Iterable) and not isinstance(value, str | bytes)
        texts = list(value) if is_pair else [value]
        if len(texts) != len(specs) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{where}={value!r}: the model takes {' and '.join(specs)}. Give strings.")
        return dict(zip(specs, map(str, texts), strict=True))  # NumPy's strings have a dtype of their length

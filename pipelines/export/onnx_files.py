"""Predictions of files by an ONNX model, without TensorFlow."""

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from rank4class.data.readers import tables, text_rows
from rank4class.data.readers.columns import Columns
from rank4class.data.readers.rows import BadRows
from rank4class.pipelines.export import prediction_files
from rank4class.pipelines.export.onnx_model import OnnxModel
from rank4class.pipelines.export.outputs import Prediction

WINDOW = 1024  # texts that are sorted by length at a time


def predict_file(
    model: OnnxModel,
    path: str | os.PathLike,
    output: str | os.PathLike | None = None,
    *,
    k: int | None = None,
    max_set_size: int | None = None,
    text_column: str | None = None,
    on_invalid_row: str = "fail",
    wide: bool = False,
    keep: Sequence[str] | None = None,
    informative: int | None = None,
    **others: Any,
) -> tuple[int, list[str]]:
    """Predicts the texts of a file, in constant memory; see `Run.predict_file` for arguments and errors.

    The prediction sets are those of the model's coverage, if it has one. The others are arguments of
    `Run.predict_file` that need the run; a ValueError refuses them.
    """
    for name, value in others.items():
        if value not in (None, False):
            raise ValueError(f"{name}={value}: an ONNX model cannot do that. Leave it out, or give the run.")
    path = os.fspath(path)
    coverage = None if wide or informative is not None else model.coverage
    options = k, coverage, max_set_size, wide, keep, informative
    written = prediction_files.FileOutput(path, output, model.class_names, False, model.several, *options)
    columns = Columns.of_options(model.columns)
    if text_column is not None:
        text_rows.check_has_columns(path, text_column=text_column)
        columns = columns._replace(text_column=text_column)
    columns = columns._replace(text_column=columns.text_column or "text")
    tables.check_inputs(path, columns.without_labels())
    bad_rows = BadRows(on_invalid_row, "on_invalid_row")

    def predictions() -> Iterator[Prediction]:
        examples = tables.Reader(columns.without_labels(), bad_rows).examples(path)
        empty = 0
        while window := list(itertools.islice(examples, WINDOW)):
            texts = [example.features["text"] for example in window]
            empty += sum(not text.strip() for text in texts)
            for example, answer in zip(window, model.answers(texts, written.predicted_k), strict=True):
                yield Prediction.of(example.where, *answer)
        prediction_files.warn(empty, model.num_cut, model.limit)

    return written.write(predictions(), columns, bad_rows), bad_rows.messages

"""Predictions of files by an ONNX model, without TensorFlow."""

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from rank4class import arguments
from rank4class.data.readers import arrays, tables, text_rows
from rank4class.data.readers.columns import Columns
from rank4class.data.readers.rows import BadRows
from rank4class.pipelines.export import prediction_files
from rank4class.pipelines.export.onnx_model import OnnxModel, TextFeatures
from rank4class.pipelines.export.outputs import Prediction

WINDOW = 1024  # inputs at a time, of which texts are sorted by length


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
    """Predicts the inputs of a file, in constant memory; see `Run.predict_file` for arguments and errors.

    The prediction sets are those of the model's coverage, if it has one. The others are arguments of
    `Run.predict_file` that need the run; a ValueError refuses them.
    """
    for name, value in others.items():
        if value not in (None, False):
            raise ValueError(f"{name}={value}: an ONNX model cannot do that. Leave it out, or give the run.")
    if k is not None:
        arguments.check_integer(1, len(model.class_names), top_k=k)
    path = os.fspath(path)
    coverage = None if wide or informative is not None else model.coverage
    written = prediction_files.FileOutput(
        path,
        output,
        model.class_names,
        False,
        model.several,
        k,
        coverage,
        max_set_size,
        wide,
        keep,
        informative,
    )
    columns = Columns.of_options(model.columns)
    of_texts = model.features if isinstance(model.features, TextFeatures) else None
    if text_column is not None:
        text_rows.check_has_columns(path, text_column=text_column)
        columns = columns._replace(text_column=text_column)
    if of_texts is not None:
        columns = columns._replace(text_column=columns.text_column or "text")
    tables.check_inputs(path, columns.without_labels())
    bad_rows = BadRows(on_invalid_row, "on_invalid_row")

    def predictions() -> Iterator[Prediction]:
        rows = _rows(path, columns._replace(has_header=not (of_texts or columns.by_position)), bad_rows)
        empty = 0
        while window := list(itertools.islice(rows, WINDOW)):
            names, inputs = zip(*window, strict=True)
            empty += sum(not text.strip() for text in inputs) if of_texts else 0
            for name, answer in zip(names, model.answers(inputs, written.predicted_k), strict=True):
                yield Prediction.of(name, *answer)
        if of_texts is not None:
            prediction_files.warn(empty, of_texts.num_cut, of_texts.limit)

    return written.write(predictions(), columns, bad_rows), bad_rows.messages


def _rows(path: str, columns: Columns, bad_rows: BadRows) -> Iterator[tuple[str, Any]]:
    """Yields the name and the value of each input of a file: a text, or an array."""
    if arrays.is_arrays(path):
        yield from ((f"{path}[{i}]", row) for i, row in enumerate(arrays.load(path, "x")))
    else:
        for example in tables.Reader(columns.without_labels(), bad_rows).examples(path):
            [value] = example.features.values()
            yield example.where, value

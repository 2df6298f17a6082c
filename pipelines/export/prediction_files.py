"""Files of predictions: TSV, CSV, JSON lines or Parquet, written whole or not at all."""

import csv
import functools
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rank4class.pipelines.export.prediction import Prediction
from rank4class.pipelines.storage import files
from rank4class.progress import Progress

_CELLS = 10_000_000  # of a row group in Parquet
_ROWS = 10_000  # largest number of its rows

Convert = Callable[[Prediction], dict[str, Any]]
Rows = Iterator[dict[str, Any]]


def write(
    path: str | os.PathLike | None,
    predictions: Iterable[Prediction],
    k: int,
    columns: Sequence[str] | None = None,
) -> int:
    r"""Writes predictions to a file, all of them or none, or prints them; returns their number.

    A TSV file has the columns `input`, and `class_1`, `score_1`, `probability_1`, ... of the `k` best
    classes. It has no quotes: a backslash in a cell is `\\`, a tab `\t`, a line end `\n`, another control
    character as in Python, and a quote at the start `\"`, so that all readers of tabs return the same cells.
    A CSV file has the same columns, with quotes as RFC 4180 has them.
    The other formats have `input` and the lists `classes`, `scores` and `probabilities`, of lists of items
    with all items.

    Without calibration there are no probabilities. With a count prior or thresholds `set_size` is the number
    of decided classes, and `in_set_1`, ..., or the list `in_set`, has which of the `k` best these are.

    Args:
      path: ends in .tsv, .csv, .jsonl or .parquet, in any case; on disk or in object storage. None prints
        TSV.
      predictions: one after another.
      k: number of classes per prediction.
      columns: names of all classes. Each gets a column with its probability, or without calibration its
        score, in place of those above. None writes the `k` best.
    """
    ending = ".tsv" if path is None else check_output(path)
    to_row: Convert = _record if ending in (".jsonl", ".parquet") else functools.partial(_row, k=k)
    if columns is not None:
        to_row = functools.partial(_wide_record, columns=columns)
    if path is not None or not sys.stdout.isatty():
        predictions = Progress("", "input", file=sys.stderr).over(predictions)
    count = 0

    def rows() -> Rows:
        nonlocal count
        for prediction in predictions:
            count += 1
            yield to_row(prediction)

    if path is None:
        _tsv(sys.stdout, rows())
    else:
        with files.writing(path) as file:
            _WRITERS[ending](file, rows())
    return count


def check_output(path: str | os.PathLike, inputs: str | os.PathLike | None = None) -> str:
    """Returns the ending of a file of predictions, in lower case.

    Raises:
      ValueError: it is that of another format, or the path is a folder, an input, or among the inputs.
      FileNotFoundError: the file's folder does not exist.
    """
    ending = os.path.splitext(path)[1].lower()
    if ending not in _WRITERS:
        raise ValueError(f"output={path}: unknown format. Choose a file that ends in {', '.join(_WRITERS)}.")
    if inputs is not None and os.path.realpath(inputs) == os.path.realpath(path):
        raise ValueError(f"output={path}: is the input. Choose another file.")
    if inputs is not None and os.path.realpath(path).startswith(os.path.join(os.path.realpath(inputs), "")):
        raise ValueError(f"output={path}: in the folder of the inputs. Choose another folder.")
    if os.path.isdir(path):
        raise ValueError(f"output={path}: a folder. Choose a file.")
    folder = os.path.dirname(path) or "."
    if files.is_local(path) and not os.path.isdir(folder):
        raise FileNotFoundError(f"output={path}: no folder {folder}. Make it, or choose another file.")
    return ending


def _row(prediction: Prediction, k: int) -> dict[str, Any]:
    """Returns the columns of the `k` best classes; None where fewer are left to rank."""
    row: dict[str, Any] = {"input": prediction.name}
    if prediction.set_size is not None:
        row["set_size"] = prediction.set_size
    for i in range(k):
        is_ranked = i < len(prediction.classes)
        row[f"class_{i + 1}"] = prediction.classes[i] if is_ranked else None
        row[f"score_{i + 1}"] = float(prediction.scores[i]) if is_ranked else None
        if prediction.probabilities is not None:
            row[f"probability_{i + 1}"] = float(prediction.probabilities[i]) if is_ranked else None
        if prediction.in_set is not None:
            row[f"in_set_{i + 1}"] = int(prediction.in_set[i]) if is_ranked else None
    return row


def _wide_record(prediction: Prediction, columns: Sequence[str]) -> dict[str, Any]:
    """Returns a column for each class; None for excluded ones."""
    values = prediction.scores if prediction.probabilities is None else prediction.probabilities
    of_class = dict(zip(prediction.classes, values.tolist(), strict=True))
    return {"input": prediction.name, **{name: of_class.get(name) for name in columns}}


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _escaped(text: str) -> str:
    escaped = files.printable(text.replace("\\", r"\\"))
    return f"\\{escaped}" if escaped.startswith('"') else escaped


def _record(prediction: Prediction) -> dict[str, Any]:
    record = {"input": prediction.name, "classes": prediction.classes, "scores": prediction.scores.tolist()}
    if prediction.probabilities is not None:
        record["probabilities"] = prediction.probabilities.tolist()
    if prediction.in_set is not None:
        record |= {"set_size": prediction.set_size, "in_set": prediction.in_set.tolist()}
    return record


def _tsv(file: Any, rows: Rows) -> None:
    _table(lambda cells: file.write("\t".join(map(_escaped, cells)) + "\n"), rows)


def _csv(file: Any, rows: Rows) -> None:
    _table(csv.writer(file).writerow, rows)


def _table(write_cells: Callable[[list[str]], object], rows: Rows) -> None:
    for i, row in enumerate(rows):
        if i == 0:
            write_cells(list(row))
        write_cells(list(map(_cell, row.values())))


def _jsonl(file: Any, rows: Rows) -> None:
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _parquet(file: Any, rows: Rows) -> None:
    import pyarrow
    import pyarrow.parquet

    # Types are stated, since the lists of the first rows may be empty.
    def type_of(name: str, value: Any) -> pyarrow.DataType:
        if isinstance(value, list):
            types = {"classes": pyarrow.string(), "in_set": pyarrow.bool_()}
            return pyarrow.list_(types.get(name, pyarrow.float64()))
        return {str: pyarrow.string(), int: pyarrow.int64()}.get(type(value), pyarrow.float64())

    first = next(rows)
    schema = pyarrow.schema([(name, type_of(name, value)) for name, value in first.items()])
    group_size = min(_ROWS, max(1, _CELLS // len(first)))
    rows = itertools.chain([first], rows)
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        while group := list(itertools.islice(rows, group_size)):
            writer.write_table(pyarrow.Table.from_pylist(group, schema))


_WRITERS = {".tsv": _tsv, ".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}

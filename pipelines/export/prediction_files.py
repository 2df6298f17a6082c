"""Files of predictions: TSV, CSV, JSON lines or Parquet, written whole or not at all."""

import csv
import dataclasses
import functools
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging

from rank4class import arguments
from rank4class.data.readers import arrays, tables
from rank4class.data.readers.columns import Columns
from rank4class.data.readers.rows import BadRows
from rank4class.pipelines.export.outputs import LISTS, Prediction
from rank4class.pipelines.storage import files
from rank4class.progress import Progress

_CELLS = 10_000_000  # of a row group in Parquet
_ROWS = 10_000  # largest number of its rows
_SEPARATOR = ";"  # of the classes of a prediction set in a cell

Convert = Callable[[dict[str, Any]], dict[str, Any]]
Rows = Iterator[dict[str, Any]]


def write(
    path: str | os.PathLike | None,
    predictions: Iterable[Prediction],
    k: int | None,
    columns: Sequence[str] | None = None,
    max_set_size: int | None = None,
) -> int:
    r"""Writes predictions to a file, all of them or none, or prints them; returns their number.

    A TSV file has the columns `input`, and `class_1`, `score_1`, `probability_1`, ... of the `k` best
    classes. It has no quotes: a backslash in a cell is `\\`, a tab `\t`, a line end `\n`, another control
    character as in Python, and a quote at the start `\"`, so that all readers of tabs return the same cells.
    A CSV file has the same columns, with quotes as RFC 4180 has them.
    The other formats have `input` and the lists `classes`, `scores` and `probabilities`, of lists of items
    with all items.

    Without calibration there are no probabilities. With a coverage, a count prior or thresholds `set_size` is
    the number of decided classes, and `in_set_1`, ..., or the list `in_set`, has which of the `k` best these
    are. Without `k` the lists are those of the prediction set; TSV and CSV have them too, joined by ";".

    Args:
      path: ends in .tsv, .csv, .jsonl or .parquet, in any case; on disk or in object storage. None prints
        TSV.
      predictions: one after another.
      k: number of classes per prediction; None for prediction sets.
      columns: names of all classes. Each gets a column with its probability, or without calibration its
        score, in place of those above. None writes the `k` best.
      max_set_size: adds `abstain`, whether a prediction set is larger or empty; None does not.
    """
    ending = ".tsv" if path is None else check_output(path)
    to_row: Convert
    if columns is not None:
        to_row = functools.partial(_wide, columns=columns)
    elif ending not in _TABLES:
        to_row = dict
    else:
        to_row = _joined if k is None else functools.partial(_row, k=k)
    if path is not None or not sys.stdout.isatty():
        predictions = Progress("", "input", file=sys.stderr).over(predictions)
    count = 0

    def rows() -> Rows:
        nonlocal count
        for prediction in predictions:
            count += 1
            yield to_row(_record(prediction, max_set_size))

    if path is None:
        _tsv(sys.stdout, rows())
    else:
        with files.writing(path) as file:
            _WRITERS[ending](file, rows())
    return count


@dataclasses.dataclass(frozen=True)
class FileOutput:
    """The predictions of a file as they are written, by the arguments of `Run.predict_file`.

    Raises:
      ValueError: arguments that do not fit one another, or the model.
    """

    inputs: str | os.PathLike
    path: str | os.PathLike | None
    class_names: Sequence[str]
    has_items: bool
    several: bool  # whether an input may have several classes
    k: int | None
    coverage: float | None
    max_set_size: int | None
    wide: bool
    keep: Sequence[str] | None
    informative: int | None

    def __post_init__(self) -> None:
        if self.max_set_size is not None:
            arguments.check_integer(1, max_set_size=self.max_set_size)
            if self.coverage is None:
                raise ValueError(
                    f"max_set_size={self.max_set_size}: needs prediction sets. Set coverage too."
                )
        if self.path is not None:
            check_output(self.path, self.inputs)
        takes_no_sets = self.coverage is not None or self.has_items
        if self.wide and (takes_no_sets or self.k is not None or "input" in self.class_names):
            raise ValueError(
                "wide=True: takes no top_k, no coverage, no lists of items and no class of the name 'input'. "
                "Leave it out."
            )
        if self.informative is not None and takes_no_sets:
            raise ValueError(
                f"informative={self.informative}: takes no coverage and no lists of items. Leave it out."
            )
        if self.coverage is not None and self.k is None:
            check_separable(self.path, self.class_names)

    @property
    def written_k(self) -> int | None:
        """Number of classes to write of an input; None for those of its prediction set."""
        return len(self.class_names) if self.wide else default_k(self.k, self.coverage, self.class_names)

    @property
    def predicted_k(self) -> int | None:
        """Number of classes to predict of an input; None for those of its prediction set."""
        return self.written_k if self.informative is None else len(self.class_names)

    def write(self, predictions: Iterator[Prediction], columns: Columns, bad_rows: BadRows) -> int:
        """Writes predictions of the inputs with some columns; returns their number.

        ValueError, with the first of the bad rows: there is none.
        """
        path = os.fspath(self.inputs)
        to_label = self.informative is not None
        if self.has_items and self.k:
            predictions = (each.first(self.k) for each in predictions)
        predictions = not_empty(predictions, path, bad_rows)
        columns = columns._replace(has_header=not columns.by_position)
        predictions = with_kept(predictions, path, columns, self.keep, to_label)
        if self.informative is not None:
            from rank4class.pipelines.export import labeling  # slow to import

            options = self.class_names, self.several, self.informative, self.written_k
            predictions = labeling.choose(predictions, *options)
        class_columns = self.class_names if self.wide else None
        return write(self.path, predictions, self.written_k, class_columns, self.max_set_size)


def default_k(k: int | None, coverage: float | None, class_names: Sequence[str]) -> int | None:
    """Returns the number of classes to predict: 5 unless set; None for those of a prediction set."""
    return k if k is not None or coverage is not None else min(5, len(class_names))


def warn(empty: int, cut: int, limit: int | None) -> None:
    """Logs how many texts are empty or white space, and how many have more tokens than the limit."""
    if empty:
        logging.warning("%s texts are empty or white space, and are predicted like others", f"{empty:,}")
    if cut:
        logging.warning("%s texts have more than %d tokens, and are cut", f"{cut:,}", limit)


def check_output(path: str | os.PathLike, inputs: str | os.PathLike | None = None) -> str:
    """Returns the ending of a file of predictions, in lower case; raises ValueError or FileNotFoundError."""
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


def not_empty(predictions: Iterator[Prediction], path: str, bad_rows: BadRows) -> Iterator[Prediction]:
    """Returns the predictions; raises ValueError if there is none."""
    first = next(predictions, None)
    if first is None:
        skipped = f" The first: {bad_rows.messages[0]}" if bad_rows.messages else " Add some."
        raise ValueError(f"{path}: no input that can be used.{skipped}")
    return itertools.chain([first], predictions)


def with_kept(
    predictions: Iterable[Prediction],
    path: str,
    columns: Columns,
    keep: Sequence[str] | None,
    for_labels: bool = False,
) -> Iterator[Prediction]:
    """Returns predictions with columns of their inputs, which are read once more; see `Run.predict_file`.

    Args:
      predictions: of the rows of a file, in its order.
      path: of the file.
      columns: of the inputs.
      keep: names of columns; "*" for all; None for "id", if the file is a table with it.
      for_labels: whether None keeps all, and a column of labels that the file lacks is there, empty.

    Raises:
      ValueError: a column that the file lacks, or that the predictions have, or the file has no columns.
    """
    if tables.is_table(path) and not arrays.is_arrays(path):
        names = list(tables.head(path, not columns.has_header)[0])
    elif path.lower().endswith((".txt", ".txt.gz")):
        names = [str(columns.text_column)]
    elif keep is None:
        names = []
    else:
        raise ValueError(f"keep={','.join(keep)}: {path} has no columns. Leave it out.")
    rows = tables.Reader(columns.without_labels(), BadRows("skip", None)).whole_rows(path)
    if keep is None:
        keep = [name for name in names if (name != "input" if for_labels else name.casefold() == "id")]
    elif "*" in keep:
        keep = names
    for name in keep:
        if name not in names or name == "input":
            raise ValueError(f"keep={name}: not a column of {path} besides 'input'. Choose among {names}.")

    empty = {}
    if for_labels:
        of_labels = [*columns.label_columns, *([columns.label_column] if columns.label_column else [])]
        empty = {name: "" for name in of_labels if name not in keep}
    if not keep:
        return (prediction._replace(kept=empty) for prediction in predictions)

    def kept() -> Iterator[Prediction]:
        for prediction in predictions:
            row = next(row for where, row in rows if where == prediction.name)
            yield prediction._replace(kept={**{name: row.get(name) for name in keep}, **empty})

    return kept()


def check_separable(path: str | os.PathLike | None, class_names: Iterable[str]) -> None:
    """Raises ValueError if a file of prediction sets joins names that have the separator."""
    ambiguous = next((name for name in class_names if _SEPARATOR in name), None)
    if ambiguous is not None and (path is None or check_output(path) in _TABLES):
        raise ValueError(
            f"output={path}: joins the classes of a set by {_SEPARATOR!r}, which class {ambiguous!r} has. "
            "Choose a file that ends in .jsonl or .parquet."
        )


def _record(prediction: Prediction, max_set_size: int | None) -> dict[str, Any]:
    """Returns the input and the columns of a prediction, with `abstain` unless `max_set_size` is None."""
    record: dict[str, Any] = {"input": prediction.name, **prediction.kept}
    for name, values in prediction.columns.items():
        record[name] = values.tolist() if isinstance(values, np.ndarray) else values
        if name == "set_size" and max_set_size is not None:
            record["abstain"] = not 1 <= values <= max_set_size
    return record


def _joined(record: dict[str, Any]) -> dict[str, Any]:
    """Returns the columns of a prediction set."""
    lists = {name: record.pop(name) for name in LISTS if name in record}
    return record | {name: _SEPARATOR.join(map(_cell, each)) for name, each in lists.items()}


def _row(record: dict[str, Any], k: int) -> dict[str, Any]:
    """Returns the columns of the `k` best classes; None where fewer are left to rank."""
    lists = {column: record.pop(name) for name, column in LISTS.items() if name in record}
    for i in range(k):
        record |= {f"{name}_{i + 1}": each[i] if i < len(each) else None for name, each in lists.items()}
    return record


def _wide(record: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """Returns a column for each class; None for excluded ones."""
    lists = {name: record.pop(name) for name in LISTS if name in record}
    of_class = dict(zip(lists["classes"], lists.get("probabilities", lists["scores"]), strict=True))
    return record | {name: of_class.get(name) for name in columns}


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _escaped(text: str) -> str:
    escaped = files.printable(text.replace("\\", r"\\"))
    return f"\\{escaped}" if escaped.startswith('"') else escaped


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
        scalars: dict[type, Any] = {str: pyarrow.string(), int: pyarrow.int64(), bool: pyarrow.bool_()}
        return scalars.get(type(value), pyarrow.float64())

    first = next(rows)
    schema = pyarrow.schema([(name, type_of(name, value)) for name, value in first.items()])
    group_size = min(_ROWS, max(1, _CELLS // len(first)))
    rows = itertools.chain([first], rows)
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        while group := list(itertools.islice(rows, group_size)):
            writer.write_table(pyarrow.Table.from_pylist(group, schema))


_TABLES = (".tsv", ".csv")
_WRITERS = {".tsv": _tsv, ".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}

"""Files of predictions: TSV, CSV, JSON lines or Parquet, written whole or not at all."""

import contextlib
import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rank4class.pipelines.export.prediction import Prediction
from rank4class.pipelines.progress import Progress
from rank4class.pipelines.storage import files

_ROWS = 10_000  # of a row group in Parquet

Write = Callable[[Prediction], object]


def write(path: str | os.PathLike | None, predictions: Iterable[Prediction], k: int) -> int:
    r"""Writes predictions to a file, all of them or none, or prints them; returns their number.

    A TSV file has the columns `input`, and `class_1`, `score_1`, `probability_1`, ... of the `k` best
    classes. It has no quotes: a backslash in a cell is `\\`, a tab `\t`, a line end `\n`, another control
    character as in Python, and a quote at the start `\"`, so that all readers of tabs return the same cells.
    A CSV file has the same columns, with quotes as RFC 4180 has them.
    The other formats have `input` and the lists `classes`, `scores` and `probabilities`, of lists of items
    with all items.

    Without calibration there are no probabilities. With a count prior there is `set_size`: the first so many
    classes are the most probable set.

    Args:
      path: ends in .tsv, .csv, .jsonl or .parquet, in any case; on disk or in object storage. None prints
        TSV.
      predictions: one after another.
      k: number of classes per prediction.

    Raises:
      FileNotFoundError, ValueError: see `check_output`.
      OSError: the file cannot be written.
    """
    if path is not None or not sys.stdout.isatty():
        predictions = Progress("", "input", file=sys.stderr).over(predictions)
    if path is None:
        with _tsv(sys.stdout, k) as write_row:
            return sum(1 for _ in map(write_row, predictions))
    writer = _WRITERS[check_output(path)]
    with files.writing(path) as file, writer(file, k) as write_row:
        return sum(1 for _ in map(write_row, predictions))


def check_output(path: str | os.PathLike) -> str:
    """Returns the ending of a file of predictions, in lower case.

    Raises:
      ValueError: it is that of another format, or the path is a folder.
      FileNotFoundError: the file's folder does not exist.
    """
    ending = os.path.splitext(path)[1].lower()
    if ending not in _WRITERS:
        raise ValueError(f"output={path}: unknown format. Choose a file that ends in {', '.join(_WRITERS)}.")
    if os.path.isdir(path):
        raise ValueError(f"output={path}: a folder. Choose a file.")
    folder = os.path.dirname(path) or "."
    if files.is_local(path) and not os.path.isdir(folder):
        raise FileNotFoundError(f"output={path}: no folder {folder}. Make it, or choose another file.")
    return ending


def _header(prediction: Prediction, k: int) -> list[str]:
    columns = ["class", "score"] if prediction.probabilities is None else ["class", "score", "probability"]
    set_size = [] if prediction.set_size is None else ["set_size"]
    return ["input", *set_size, *(f"{column}_{i}" for i in range(1, k + 1) for column in columns)]


def _cells(prediction: Prediction, k: int) -> list[str]:
    classes, scores = prediction.classes[:k], prediction.scores[:k]  # of lists of items, all are predicted
    values = [classes, [f"{score:.6g}" for score in scores]]
    if prediction.probabilities is not None:
        values.append([f"{probability:.6g}" for probability in prediction.probabilities])
    cells = [cell for group in zip(*values, strict=True) for cell in group]
    missing = k * len(values) - len(cells)  # where few classes are left to rank
    set_size = [] if prediction.set_size is None else [str(prediction.set_size)]
    return [prediction.name, *set_size, *cells, *[""] * missing]


def _escaped(text: str) -> str:
    escaped = files.printable(text.replace("\\", r"\\"))
    return f"\\{escaped}" if escaped.startswith('"') else escaped


def _record(prediction: Prediction) -> dict[str, Any]:
    record = {"input": prediction.name, "classes": prediction.classes, "scores": prediction.scores.tolist()}
    if prediction.probabilities is not None:
        record["probabilities"] = prediction.probabilities.tolist()
    if prediction.set_size is not None:
        record["set_size"] = prediction.set_size
    return record


def _tsv(file: Any, k: int) -> contextlib.AbstractContextManager[Write]:
    return _table(lambda cells: file.write("\t".join(map(_escaped, cells)) + "\n"), k)


def _csv(file: Any, k: int) -> contextlib.AbstractContextManager[Write]:
    return _table(csv.writer(file).writerow, k)


@contextlib.contextmanager
def _table(write_cells: Callable[[list[str]], object], k: int) -> Iterator[Write]:
    rows = 0

    def write(prediction: Prediction) -> None:
        nonlocal rows
        if not rows:
            write_cells(_header(prediction, k))
        rows += 1
        write_cells(_cells(prediction, k))

    yield write


@contextlib.contextmanager
def _jsonl(file: Any, k: int) -> Iterator[Write]:
    del k
    yield lambda prediction: file.write(json.dumps(_record(prediction), ensure_ascii=False) + "\n")


class _Sink(io.RawIOBase):
    """TensorFlow's file with all that PyArrow expects of one."""

    def __init__(self, file: Any):
        self._file, self._written = file, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, content: Any) -> int:
        self._file.write(bytes(content))
        self._written += len(content)
        return len(content)


@contextlib.contextmanager
def _parquet(file: Any, k: int) -> Iterator[Write]:
    del k
    import pyarrow
    import pyarrow.parquet

    records: list[dict[str, Any]] = []
    writer = None
    # Types are stated, since the lists of the first records may be empty.
    texts, numbers = pyarrow.list_(pyarrow.string()), pyarrow.list_(pyarrow.float64())
    types = {"input": pyarrow.string(), "classes": texts, "scores": numbers, "probabilities": numbers}
    types["set_size"] = pyarrow.int64()

    def flush() -> None:
        nonlocal writer
        schema = pyarrow.schema([(name, types[name]) for name in records[0]])
        writer = writer or pyarrow.parquet.ParquetWriter(sink, schema)
        writer.write_table(pyarrow.Table.from_pylist(records, schema))
        records.clear()

    def write(prediction: Prediction) -> None:
        records.append(_record(prediction))
        if len(records) == _ROWS:
            flush()

    sink = _Sink(file)
    try:
        yield write
        if records:
            flush()
    finally:  # or its finalizer would write to the closed file
        if writer is not None:
            writer.close()


_WRITERS = {".tsv": _tsv, ".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}

"""Tables of examples: text files, Parquet, Arrow, arrays and SVMlight rows, read block by block."""

import array
import collections
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from absl import logging

from rank4class import strict_json
from rank4class.data import lazy_arrays
from rank4class.data.labels import Labels, listed
from rank4class.data.lazy_arrays import Collector, Origins
from rank4class.data.readers import arrays, arrow_files, files, row_values, text_rows
from rank4class.data.readers.columns import Columns, Row
from rank4class.data.readers.row_values import Example
from rank4class.data.readers.rows import BadRows

BLOCK = 4096  # rows
LABEL = "y"  # of arrays
FORMATS = (*text_rows.FORMATS, *arrow_files.ENDINGS, ".npz", *arrays.SVMLIGHT)


class Block(NamedTuple):
    """Consecutive valid rows of a file."""

    numbers: Sequence[int]  # of the rows in the file
    features: dict[str, Any]
    labels: Sequence[Sequence[str]]
    several: bool


class Table(NamedTuple):
    """The valid rows of a table."""

    features: dict[str, Any]
    labels: Labels
    origins: Origins


class Reader:
    """Reads tables with the same columns, and vectors of one width, by default that of the first."""

    def __init__(self, columns: Columns, bad_rows: BadRows, width: int | None = None):
        self._columns = columns
        self._bad_rows = bad_rows
        self._width = width
        self._known_labels: dict[str | int, list[str]] = {}  # by cell

    def table(self, files: Sequence[str]) -> Table:
        """Returns the rows of the files of a table."""
        before = len(self._bad_rows.messages)
        features: dict[str, Collector] = collections.defaultdict(Collector)
        labels = Labels()
        file_of = array.array("i")
        numbers = array.array("q")
        for i, file in enumerate(files):
            for block in self.blocks(file) if os.path.basename(file) != arrays.PAIR[1] else ():
                for name, values in block.features.items() if block.labels else ():
                    features[name].append(values)
                for names in block.labels:
                    labels.append(names)
                labels.several |= block.several
                numbers.extend(block.numbers)
                file_of.extend([i] * len(block.numbers))
        check_any(files[0], len(labels), self._bad_rows.messages[before:])
        names = [origin(file, "{}") for file in files]
        origins = Origins(names, np.frombuffer(file_of, np.int32), np.frombuffer(numbers, np.int64))
        return Table({name: each.array() for name, each in features.items()}, labels, origins)

    def examples(self, path: str) -> Iterator[Example]:
        """Yields the examples of a table with columns, row by row."""
        for file in files_of(path) or [path]:
            yield from self._examples(file, self._rows(file))

    def whole_rows(self, path: str) -> Iterator[tuple[str, Row]]:
        """Yields the name of each row of a table with columns, and the row with all its columns."""
        for file in files_of(path) or [path]:
            yield from self._rows(file, whole=True)

    def _rows(self, file: str, whole: bool = False) -> Iterator[tuple[str, Row]]:
        if not arrow_files.is_arrow(file):
            return text_rows.read(file, self._columns, self._bad_rows)
        cells = itertools.chain.from_iterable(map(arrow_files.rows, self._batches(file, whole)))
        return ((origin(file, i), row) for i, row in enumerate(cells))

    def _batches(self, path: str, whole: bool = False) -> Iterator[dict[str, Any]]:
        columns = self._columns
        names = [name for name, _ in arrow_files.column_kinds(path)]
        columns.check(path, names)
        return arrow_files.batches(path, names if whole else list(columns.by_column()), columns.vector_column)

    def _examples(self, path: str, rows: Iterator[tuple[str, Row]]) -> Iterator[Example]:
        folder = os.path.dirname(path)
        for where, row in rows:
            with self._bad_rows.row():
                example = row_values.example(where, row, self._columns, folder)
                if self._columns.has_vectors:
                    width = len(example.features["embedding"])
                    self._width = width if self._width is None else self._width
                    if width != self._width:
                        raise ValueError(
                            f"{where}: {width} values, but {self._width} in the first vector. Correct it."
                        )
                    if isinstance(cell := row.get(str(self._columns.label_column)), str | int):
                        self._known_labels[cell] = example.labels
                yield example

    def blocks(self, path: str) -> Iterator[Block]:
        """Yields the examples of a file, some rows at a time."""
        if arrays.is_arrays(path):
            yield self._array_block(path)
            return
        if arrow_files.is_arrow(path):
            start = 0
            for cells in self._batches(path):
                names = [f"{path}[{start + i}]" for i in range(len(next(iter(cells.values()))))]
                rows = zip(names, arrow_files.rows(cells), strict=True)
                yield self._known_block(start, cells) or _block(list(self._examples(path, rows)))
                start += len(names)
            return
        examples = self.examples(path)
        while block := list(itertools.islice(examples, BLOCK)):
            yield _block(block)

    def _known_block(self, start: int, cells: dict[str, Any]) -> Block | None:
        """Returns a batch of valid vectors with labels of earlier rows, not row by row; otherwise None."""
        vectors = cells.get(str(self._columns.vector_column))
        if not isinstance(vectors, np.ndarray) or vectors.shape[1] != self._width:
            return None
        with np.errstate(over="ignore"):  # overflow gives infinity
            vectors = vectors.astype(np.float32, copy=False)
        try:
            labels = [self._known_labels[cell] for cell in cells[str(self._columns.label_column)]]
        except (KeyError, TypeError):  # TypeError: a list
            return None
        if not np.isfinite(vectors).all():
            return None
        numbers = range(start, start + len(labels))
        return Block(numbers, {"embedding": vectors}, labels, self._columns.label_separator is not None)

    def _array_block(self, path: str) -> Block:
        vectors, cells = arrays.read(path, self._columns.is_labeled, self._width)
        self._width = vectors.shape[1]
        is_finite = _finite_rows(vectors)
        columns = Columns(label_column=self._columns.label_column and LABEL)
        numbers = []
        labels = []
        any_several = False
        for i, cell in enumerate(cells or itertools.repeat(None, len(is_finite))):
            with self._bad_rows.row():
                row_values.check_finite(f"{path}[{i}]", is_finite[i])
                names, several = row_values.labels_of(f"{path}[{i}]", {LABEL: cell}, columns)
                numbers.append(i)
                labels.append(names)
                any_several |= several
        if len(numbers) < len(is_finite):
            vectors = vectors[np.array(numbers, int)]
        return Block(numbers, {"embedding": vectors}, labels, any_several)


def check_inputs(path: str, columns: Columns) -> None:
    """Raises the errors of a file or folder of inputs that its existence and its columns show."""
    if path == text_rows.STANDARD_INPUT:
        return
    check_exists(path)
    if all(map(str.isdecimal, columns.by_column())):  # positions, or names of a header
        return
    if arrow_files.is_arrow(path):
        columns.check(path, [name for name, _ in arrow_files.column_kinds(path)])
    elif is_table(path) and not arrays.is_arrays(path):
        next(Reader(columns, BadRows("skip", None)).whole_rows(path), None)


def check_exists(path: str) -> None:
    """Raises FileNotFoundError if there is no file or folder."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: no such file or folder. Check the path.")


def files_of(path: str) -> list[str]:
    """Returns the files of a table: a file, the parts in a folder, or its `arrays.PAIR`; [] without one."""
    if not os.path.isdir(path):
        return [path]
    state = os.path.join(path, "state.json")
    if os.path.isfile(state):  # a dataset of Hugging Face
        parts = strict_json.read_object(state)["_data_files"]
        return [os.path.join(path, part["filename"]) for part in parts]
    names = sorted(name for name in os.listdir(path) if not name.startswith((".", "_")))
    if set(arrays.PAIR) <= set(names):
        return [os.path.join(path, name) for name in arrays.PAIR]
    return [os.path.join(path, name) for name in names if name.lower().endswith(arrow_files.ENDINGS)]


def is_table(path: str) -> bool:
    """Returns whether a path is that of a table by its ending, or a folder of the parts of one."""
    return files.uncompressed([*files_of(path), ""][0]).endswith(FORMATS)


def head(path: str, by_position: bool = False) -> list[dict[str, Any]]:
    """Returns the first rows of a table with columns, by their names or positions; ValueError for none."""
    if arrow_files.is_arrow(path):
        columns = [name for name, _ in arrow_files.column_kinds(path)]
        cells = next(arrow_files.batches(path, columns, None), {})
        found = list(itertools.islice(arrow_files.rows(cells), text_rows.HEAD))
    else:
        if not files.uncompressed(path).endswith(text_rows.FORMATS):
            raise text_rows.unknown_format(path, *FORMATS)
        found = text_rows.head(path, by_position)
    check_any(path, len(found), ())
    return found


def choose_inputs(columns: Columns, path: str) -> Columns:
    """Returns columns with those of the inputs, for a path of a table; see `table` for the default."""
    inputs = {
        field: column
        for column, field in columns._replace(text_pair_column=None).by_column().items()
        if column != columns.label_column and column not in columns.label_columns
    }
    if len(inputs) > 1 and set(inputs) != {"data.text_column", "data.feature_columns"}:
        fields = ", ".join(f"{field}={column}" for field, column in inputs.items())
        raise ValueError(f"{fields}: columns of different kinds of inputs. Choose one kind.")
    if arrays.is_arrays(path):
        if inputs or columns.label_columns or columns.label_separator is not None:
            other = "data.label_columns" if columns.label_columns else "data.label_separator"
            raise ValueError(f"{next(iter(inputs), other)}: {path} has no columns. Leave it out.")
        return columns
    if inputs:
        return columns
    if arrow_files.is_arrow(path):
        kinds = dict(arrow_files.column_kinds(path))
    else:
        cells: dict[str, Any] = {}
        for row in head(path, columns.by_position):
            cells |= {name: cell for name, cell in row.items() if cells.get(name) in (None, "")}
        kinds = {name: row_values.kind_of(cell) for name, cell in cells.items()}
    if "text" in kinds:
        logging.info("%s: the inputs are the texts of column 'text'", path)
        return columns._replace(text_column="text")
    by_kind: dict[str, list[str]] = {"vector": [], "number": [], "": []}
    for name, kind in kinds.items():
        if name not in (columns.label_column, *columns.label_columns, ""):  # "": the index of a pandas frame
            by_kind[kind].append(name)
    if len(by_kind["vector"]) == 1:
        logging.info("%s: the inputs are the vectors of column %r", path, by_kind["vector"][0])
        return columns._replace(vector_column=by_kind["vector"][0])
    rows = head(path, columns.by_position)
    left_out = [name for name in by_kind[""] if not row_values.may_be_names([row.get(name) for row in rows])]
    names = [name for name in kinds if name in by_kind["number"] + by_kind[""]]
    names = [name for name in names if name not in left_out and name.casefold() != "id"]
    if names:
        logging.info("%s: the inputs are the columns %s", path, listed(names))
        if left_out:
            logging.warning(
                "%s: cells of %s hardly repeat: these columns are left out", path, listed(left_out)
            )
        return columns._replace(feature_columns=tuple(names))
    present = listed([repr(name[:40]) for name in kinds])
    raise ValueError(
        f"{path}: no column 'text', of vectors, of numbers or of repeated names besides the label. The "
        f"columns are {present}. Choose the inputs with data.text_column or data.image_column."
        f"{text_rows.separator_hint(list(kinds))}"
    )


def are_mixed(path: str, columns: Columns) -> bool:
    """Returns whether feature columns of a table begin with another cell than a number, or miss one.

    It reads the first rows. Another cell in a column of numbers is a mistake.
    """
    rows = head(path, columns.by_position) if columns.feature_columns else []
    cells = [[row_values.cell_text(row.get(name)) for row in rows] for name in columns.feature_columns]
    return any("" in column or row_values.kind_of(column[0]) != "number" for column in cells)


def _block(examples: list[Example]) -> Block:
    names = examples[0].features if examples else ()
    cells = {name: [each.features[name] for each in examples] for name in names}
    return Block(
        [int(re.split(r"[:\[]", each.where.rstrip("]"))[-1]) for each in examples],
        {name: np.array(column, None if name == "embedding" else object) for name, column in cells.items()},
        [each.labels for each in examples],
        any(each.several for each in examples),
    )


def origin(path: str, number: int | str) -> str:
    """Returns the name of a row of a file in messages, by its line or its index."""
    has_indices = arrays.is_arrays(path) or arrow_files.is_arrow(path)
    return f"{path}[{number}]" if has_indices else f"{path}:{number}"


def _finite_rows(vectors: Any) -> np.ndarray:
    """Returns whether all values of each vector are finite."""
    if isinstance(vectors, scipy.sparse.csr_array):
        wrong = (~np.isfinite(vectors.data), vectors.indices, vectors.indptr)
        return scipy.sparse.csr_array(wrong, vectors.shape).sum(axis=1) == 0
    return np.concatenate([np.isfinite(block).all(axis=1) for block in lazy_arrays.blocks(vectors)] or [[]])


def check_any(path: str, count: int, messages: Sequence[str]) -> None:
    """Raises ValueError, with the first of the messages, if a file has no example."""
    if not count:
        first = f"All rows are invalid, the first: {messages[0]}" if messages else "Add rows to its header."
        raise ValueError(f"{path}: no example. {first}")

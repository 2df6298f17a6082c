"""Texts, and labels if any, from the rows of files: TSV, CSV, JSON lines, or a text per line."""

import itertools
import os
import re
import reprlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rank4class import strict_json
from rank4class.data.readers import rows

FORMATS = (".tsv", ".csv", ".jsonl")
STANDARD_INPUT = "-"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
BYTE_ORDER_MARK = "\ufeff"
# Usual names of columns: a row with one of each is a header line.
TEXT_NAMES = (
    "text", "texts", "sentence", "sentence1", "sentence_1", "document", "content", "body", "title",
    "question", "query", "review", "comment", "message", "utterance", "input", "premise",
)  # fmt: skip
LABEL_NAMES = ("label", "labels", "label_id", "class", "category", "target", "tag", "intent", "sentiment")


Row = Mapping[str, Any]  # by column


class Columns(NamedTuple):
    """The columns to read, by name or position; None for one that is not read. See `text_file`."""

    text: str
    pair: str | None = None
    label: str | None = None

    def by_field(self) -> dict[str, str]:
        """Returns the columns that are read, by the field that selects each."""
        section = "" if self.label is None else "data."  # predictions have other flags
        fields = ("text_column", "text_pair_column", "label_column")
        columns = zip(fields, self, strict=True)
        return {f"{section}{field}": column for field, column in columns if column is not None}


class Example(NamedTuple):
    """The contents of a row; pair and label are empty without a column of them."""

    where: str
    text: str
    pair: str
    label: str


def read(path: str, columns: Columns, bad_rows: rows.BadRows) -> Iterator[Example]:
    """Yields the examples of a file, one after another.

    Its path ends in one of `FORMATS`, in any case. Without a label column it may be a `.txt` with a text per
    line, or `STANDARD_INPUT`, read likewise.

    Raises:
      FileNotFoundError: no file.
      ValueError: a file of another format, or without a column; an invalid row.
    """
    for where, row in _rows(path, columns, bad_rows):
        with bad_rows.row():
            yield _example(where, row, columns)


def _rows(path: str, columns: Columns, bad_rows: rows.BadRows) -> Iterator[tuple[str, Row]]:
    """Yields (`path:number`, row) for every row of a file."""
    extension = os.path.splitext(path)[1].lower()
    if not has_columns(path):
        if columns.label is not None:
            raise ValueError(
                f"{path}: a .txt file has texts without labels. Give a file with a column of each, as "
                f"{', '.join(FORMATS)}."
            )
        is_file = path != STANDARD_INPUT
        lines = rows.lines(path, bad_rows) if is_file else rows.lines("stdin", bad_rows, sys.stdin.buffer)
        yield from ((where, {columns.text: line}) for where, line in lines)
    elif extension == ".tsv":
        yield from _table(path, rows.tsv_records(path, bad_rows), columns, bad_rows)
    elif extension == ".csv":
        yield from _table(path, rows.csv_records(path, bad_rows), columns, bad_rows)
    elif extension == ".jsonl":
        for where, line in rows.lines(path, bad_rows):
            with bad_rows.row():
                yield where, strict_json.parse_object(where, line)
    else:
        others = f", .txt, or {STANDARD_INPUT} for standard input" if columns.label is None else ""
        raise ValueError(f"{path}: unknown format. Give a file that ends in {', '.join(FORMATS)}{others}.")


def has_columns(path: str) -> bool:
    """Whether the rows of a file have columns, rather than a text per line.

    >>> has_columns("a.tsv"), has_columns("a.TXT"), has_columns(STANDARD_INPUT)
    (True, False, False)
    """
    return path != STANDARD_INPUT and not path.lower().endswith(".txt")


def _table(
    path: str, records: Iterator[tuple[str, list[str]]], columns: Columns, bad_rows: rows.BadRows
) -> Iterator[tuple[str, Row]]:
    """Yields the rows of a table, whose first one is a header unless columns are selected by position."""
    required = list(columns.by_field().values())
    invalid = len(bad_rows.messages)
    where, header = next(records, (path, []))
    names: list[str] = header
    check_header = _check_repeated_header
    by_position = all(column.isdecimal() for column in required)
    if not by_position and len(bad_rows.messages) > invalid:  # `header` is the row after it
        raise ValueError(bad_rows.messages[invalid])
    if by_position:
        names, check_header = [str(i) for i in range(1, len(names) + 1)], _check_usual_header
        records = itertools.chain([(where, header)], records)
    for column in required:
        if names.count(column) != 1:
            count = "several columns" if column in names else "no column"
            remedy = _separator(header) or _column_remedy(column, names, columns)
            raise ValueError(f"{path}: {count} {_alternatives(column, names)}{remedy}")
    for where, fields in records:
        with bad_rows.row():
            if len(fields) != len(names):
                count = rows.counted(len(fields), "column")
                raise ValueError(f"{where}: {count}, but {len(names)} in the first line.")
            row = dict(zip(names, fields, strict=True))
            check_header(where, row, columns)
            yield where, row


def _alternatives(column: str, names: Sequence[str]) -> str:
    """Returns the missing column and the existing ones for a message."""
    folded = normalize_text(column).replace(" ", "")
    similar = [name for name in names if normalize_text(name).replace(" ", "") == folded and name != column]
    hint = f" Did you mean {similar[0]!r}?" if similar else ""
    return f"{column!r}.{hint} The columns are {rows.listed([repr(name[:40]) for name in names])}."


def _separator(fields: Sequence[str]) -> str:
    mark = next((mark for mark in ";\t," if len(fields) == 1 and mark in fields[0]), None)
    return f" They seem to be separated by {mark!r}." if mark else ""


def _column_remedy(column: str, names: Collection[str], columns: Columns) -> str:
    """Returns the remedy for a repeated or missing column, with the fields that select the missing ones."""
    if column in names:
        return " Rename all but one."
    missing = [field for field, selected in columns.by_field().items() if selected not in names]
    return f" Choose among them with {' and '.join(missing)}."


def _check_repeated_header(where: str, row: Row, columns: Columns) -> None:
    """Raises ValueError for a row with the names of the columns, as in concatenated files.

    A text alone may be the name of its column.
    """
    names = sorted(map(_bare, row))
    if _bare(row[columns.label or columns.text]) not in names:  # nearly every row
        return
    required = [column for column in (columns.text, columns.label) if column is not None]
    in_place = len(required) == 2 and all(_bare(row[column]) == _bare(column) for column in required)
    if in_place or (len(names) > 1 and sorted(map(_bare, row.values())) == names):
        raise ValueError(f"{where}: the row repeats the header line. Remove it.")


def _check_usual_header(where: str, row: Row, columns: Columns) -> None:
    """Raises ValueError for a row with usual names of columns if columns are selected by position.

    A text alone may be such a name, except in the first row.
    """
    if _bare(row[columns.text]) not in TEXT_NAMES:
        return
    if where.endswith(":1") if columns.label is None else _bare(row[columns.label]) in LABEL_NAMES:
        names = {field: row[column].lstrip(BYTE_ORDER_MARK) for field, column in columns.by_field().items()}
        field, column = next(iter(columns.by_field().items()))
        remedy = " and ".join(f"{field}={name!r}" for field, name in names.items())
        raise ValueError(
            f"{where}: the row is a header line, but {field}={column} is a position in a file without one. "
            f"Set {remedy}, or remove the row."
        )


def _bare(cell: str) -> str:
    """Returns a cell in the form in which names of columns are compared."""
    return normalize_text(cell.strip(f'{BYTE_ORDER_MARK}"'))


def _example(where: str, row: Row, columns: Columns) -> Example:
    text = _string(where, row, columns.text, columns)
    pair = ""
    if columns.pair is not None and row.get(columns.pair, "") is not None:  # JSON has null
        pair = _string(where, row, columns.pair, columns)
    if not text.strip():
        raise ValueError(f"{where}: {columns.text!r} is empty.")
    label = "" if columns.label is None else _label(where, row, columns.label, columns)
    return Example(where, text, pair, label)


def _label(where: str, row: Row, column: str, columns: Columns) -> str:
    if type(row.get(column)) is int:  # excludes true and false
        return str(row[column])
    label = _string(where, row, column, columns).strip()
    if not label:
        raise ValueError(f"{where}: {column!r} is empty.")
    if CONTROL.search(label):  # a file of classes could not name it
        raise ValueError(f"{where}: {column} {label!r} has a control character.")
    return label


def _string(where: str, row: Row, column: str, columns: Columns) -> str:
    if column not in row:
        remedy = _column_remedy(column, row, columns)
        raise ValueError(f"{where}: no {_alternatives(column, list(row))}{remedy}")
    if not isinstance(row[column], str):
        raise ValueError(f"{where}: {column} {reprlib.repr(row[column])} is not a string. Put it in quotes.")
    try:
        row[column].encode()
    except UnicodeEncodeError as error:  # JSON may have half a surrogate pair
        raise ValueError(
            f"{where}: {column} {reprlib.repr(row[column])} is not UTF-8. Correct it."
        ) from error
    if "\0" in row[column]:
        raise ValueError(f"{where}: {column} has a NUL character. Remove it.")
    return row[column]


def normalize_text(text: str) -> str:
    """Returns a text in the form in which texts are compared, without differences in case and white space.

    >>> normalize_text(" A  Text ")
    'a text'
    """
    return " ".join(text.casefold().split())

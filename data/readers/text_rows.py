"""Texts, and labels if any, from the rows of files: TSV, CSV, JSON lines, or a text per line."""

import functools
import itertools
import os
import re
import reprlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rank4class import strict_json
from rank4class.data.readers import rows

STANDARD_INPUT = "-"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
BYTE_ORDER_MARK = "\ufeff"
# Usual names of columns: a row with one of each is a header line.
TEXT_NAMES = (
    "text", "texts", "sentence", "sentence1", "sentence_1", "document", "content", "body", "title",
    "question", "query", "review", "comment", "message", "utterance", "input", "premise",
)  # fmt: skip
LABEL_NAMES = ("label", "labels", "label_id", "class", "category", "target", "tag", "intent", "sentiment")


class Columns(NamedTuple):
    """The columns to read, by name or position; None for one that is not read. See `text_file`."""

    text: str
    pair: str | None = None
    label: str | None = None


FIELDS = Columns("text_column", "text_pair_column", "label_column")  # which select them

# The rows of a file as (`path:number`, record), and a function from them to dicts by column.
Records = tuple[Iterator[tuple[str, Any]], Callable[[str, Any], Mapping[str, Any]]]
CheckHeader = Callable[[str, Mapping[str, str], Columns], None]


class Example(NamedTuple):
    """The contents of a row; pair and label are empty without a column of them."""

    where: str
    text: str
    pair: str
    label: str


def read(path: str, columns: Columns, bad_rows: rows.BadRows) -> Iterator[Example]:
    """Yields the examples of a file, one after another.

    Args:
      path: of a file of `FORMATS`, in any case; without a label column also of a `.txt` with a text per line,
        or `STANDARD_INPUT`, read likewise.
      columns: the columns to read.
      bad_rows: the policy for invalid rows.

    Raises:
      FileNotFoundError: no file.
      ValueError: a file of another format, or without a column; an invalid row.
    """
    extension = os.path.splitext(path)[1].lower()
    if path == STANDARD_INPUT and columns.label is None:
        lines = rows.lines_of(sys.stdin.buffer, "stdin", bad_rows)
        records, parse = _texts_per_line(lines, columns)
    elif extension == ".txt" and columns.label is None:
        records, parse = _texts_per_line(rows.lines(path, bad_rows), columns)
    elif extension == ".txt":
        raise ValueError(
            f"{path}: a .txt file has texts without labels. Give a file with a column of each, as "
            f"{', '.join(FORMATS)}."
        )
    elif extension in FORMATS:
        records, parse = FORMATS[extension](path, columns, bad_rows)
    else:
        others = f", .txt, or {STANDARD_INPUT} for standard input" if columns.label is None else ""
        raise ValueError(f"{path}: unknown format. Give a file that ends in {', '.join(FORMATS)}{others}.")
    for where, record in records:
        example = None
        with bad_rows.row():
            example = _example(where, parse(where, record), columns)
        if example is not None:
            yield example


def _read_tsv(path: str, columns: Columns, bad_rows: rows.BadRows) -> Records:
    return _table(path, rows.tsv_records(path, bad_rows), columns, bad_rows)


def _read_csv(path: str, columns: Columns, bad_rows: rows.BadRows) -> Records:
    return _table(path, rows.csv_records(path, bad_rows), columns, bad_rows)


def _read_jsonl(path: str, columns: Columns, bad_rows: rows.BadRows) -> Records:
    del columns  # every object has its keys
    return rows.lines(path, bad_rows), strict_json.parse_object


def _texts_per_line(lines: Iterator[tuple[str, str]], columns: Columns) -> Records:
    return lines, lambda where, line: {columns.text: line}


def has_columns(path: str) -> bool:
    """Whether the rows of a file have columns, rather than a text per line.

    >>> has_columns("a.tsv"), has_columns("a.TXT"), has_columns(STANDARD_INPUT)
    (True, False, False)
    """
    return path != STANDARD_INPUT and not path.lower().endswith(".txt")


FORMATS = {".tsv": _read_tsv, ".csv": _read_csv, ".jsonl": _read_jsonl}


def _table(
    path: str, records: Iterator[tuple[str, list[str]]], columns: Columns, bad_rows: rows.BadRows
) -> Records:
    """Returns the records without a header, and a function from them to dicts by column."""
    required = [column for column in columns if column is not None]
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
    return records, functools.partial(_fields, names, columns, check_header)


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
    section = "" if columns.label is None else "data."  # predictions have other flags
    missing = [
        f"{section}{field}"
        for field, selected in zip(FIELDS, columns, strict=True)
        if selected is not None and selected not in names
    ]
    return f" Choose among them with {' and '.join(missing)}."


def _fields(
    names: Sequence[str], columns: Columns, check_header: CheckHeader, where: str, fields: Sequence[str]
) -> dict[str, str]:
    if len(fields) != len(names):
        count = rows.counted(len(fields), "column")
        raise ValueError(f"{where}: {count}, but {len(names)} in the first line.")
    row = dict(zip(names, fields, strict=True))
    check_header(where, row, columns)
    return row


def _check_repeated_header(where: str, row: Mapping[str, str], columns: Columns) -> None:
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


def _check_usual_header(where: str, row: Mapping[str, str], columns: Columns) -> None:
    """Raises ValueError for a row with usual names of columns if columns are selected by position."""
    if columns.label is None:
        if where.endswith(":1") and _bare(row[columns.text]) in TEXT_NAMES:
            raise ValueError(
                f"{where}: the row is a header line, but text_column={columns.text} is a position in a file "
                "without one. Set it to the name of the column, or remove the row."
            )
        return
    text, label = row[columns.text], row[columns.label]
    if _bare(text) in TEXT_NAMES and _bare(label) in LABEL_NAMES:
        text, label = text.lstrip(BYTE_ORDER_MARK), label.lstrip(BYTE_ORDER_MARK)
        raise ValueError(
            f"{where}: the row is a header line, but data.text_column={columns.text} is a position in a file "
            f"without one. Set data.text_column={text!r} and data.label_column={label!r}, or remove the row."
        )


def _bare(cell: str) -> str:
    """Returns a cell in the form in which names of columns are compared."""
    return normalize_text(cell.strip(f'{BYTE_ORDER_MARK}"'))


def _example(where: str, row: Mapping[str, Any], columns: Columns) -> Example:
    text = _string(where, row, columns.text, columns)
    pair = ""
    if columns.pair is not None and row.get(columns.pair, "") is not None:  # JSON has null
        pair = _string(where, row, columns.pair, columns)
    if not text.strip():
        raise ValueError(f"{where}: {columns.text!r} is empty.")
    label = "" if columns.label is None else _label(where, row, columns.label, columns)
    return Example(where, text, pair, label)


def _label(where: str, row: Mapping[str, Any], column: str, columns: Columns) -> str:
    if type(row.get(column)) is int:  # excludes true and false
        return str(row[column])
    label = _string(where, row, column, columns).strip()
    if not label:
        raise ValueError(f"{where}: {column!r} is empty.")
    if CONTROL.search(label):  # a file of classes could not name it
        raise ValueError(f"{where}: {column} {label!r} has a control character.")
    return label


def _string(where: str, row: Mapping[str, Any], column: str, columns: Columns) -> str:
    if column not in row:
        remedy = _column_remedy(column, row, columns)
        raise ValueError(f"{where}: no {_alternatives(column, list(row))}{remedy}")
    if not isinstance(row[column], str):
        raise ValueError(f"{where}: {column} {reprlib.repr(row[column])} is not a string. Put it in quotes.")
    try:
        row[column].encode()
    except UnicodeEncodeError as error:
        is_byte = "\udc80" <= row[column][error.start] <= "\udcff"  # of a CSV; JSON has other surrogates
        remedy = f" {rows.UTF8_REMEDY}" if is_byte else " Correct it."
        raise ValueError(f"{where}: {column} {reprlib.repr(row[column])} is not UTF-8.{remedy}") from error
    if "\0" in row[column]:
        raise ValueError(f"{where}: {column} has a NUL character. Remove it.")
    return row[column]


def normalize_text(text: str) -> str:
    """Returns a text in the form in which texts are compared, without differences in case and white space.

    >>> normalize_text(" A  Text ")
    'a text'
    """
    return " ".join(text.casefold().split())

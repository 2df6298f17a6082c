"""Rows of text files by column: TSV, CSV, JSON lines, or a text per line."""

import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rank4class import strict_json
from rank4class.data.readers import files, rows
from rank4class.data.readers.columns import Columns, Row, normalize_text

FORMATS = (".tsv", ".csv", ".jsonl")
STANDARD_INPUT = "-"
HEAD = 1000  # rows by which columns are recognized
# Usual names of columns: a row with one of each is a header line.
TEXT_NAMES = (
    "text", "texts", "sentence", "sentence1", "sentence_1", "document", "content", "body", "title",
    "question", "query", "review", "comment", "message", "utterance", "input", "premise",
)  # fmt: skip
LABEL_NAMES = (
    "label", "labels", "label_id", "class", "category", "target", "tag", "intent", "sentiment",
    "classes", "categories", "tags", "topic", "topics", "intents", "emotion", "emotions", "genre", "genres",
)  # fmt: skip


def read(path: str, columns: Columns, bad_rows: rows.BadRows) -> Iterator[tuple[str, Row]]:
    """Yields (`path:number`, row) for every row of a file.

    Its path ends in one of `FORMATS`, in any case, and may end in `.gz` after it. Without a column of labels
    it may be a `.txt` with a text per line, or `STANDARD_INPUT`, read likewise.
    """
    extension = os.path.splitext(files.uncompressed(path))[1]
    if not has_columns(path):
        if columns.is_labeled:
            raise ValueError(
                f"{path}: a .txt file has texts without labels. Give a file with a column of each, as "
                f"{', '.join(FORMATS)}."
            )
        is_file = path != STANDARD_INPUT
        lines = rows.lines(path, bad_rows) if is_file else rows.lines("stdin", bad_rows, sys.stdin.buffer)
        yield from ((where, {str(columns.text_column): line}) for where, line in lines)
    elif extension == ".tsv":
        yield from _table(path, rows.tsv_records(path, bad_rows), columns, bad_rows)
    elif extension == ".csv":
        yield from _table(path, rows.csv_records(path, bad_rows), columns, bad_rows)
    elif extension == ".jsonl":
        for where, line in rows.lines(path, bad_rows):
            with bad_rows.row():
                yield where, strict_json.parse_object(where, line)
    else:
        others = () if columns.is_labeled else (".txt", f"or {STANDARD_INPUT} for standard input")
        raise unknown_format(path, *FORMATS, *others)


def unknown_format(path: str, *formats: str) -> ValueError:
    """Returns the error for a file that ends in none of the formats."""
    if path.lower().endswith((".xlsx", ".xls", ".ods")):
        return ValueError(f"{path}: a spreadsheet. Export it as CSV.")
    return ValueError(f"{path}: unknown format. Give a file that ends in {', '.join(formats)}.")


def has_columns(path: str) -> bool:
    """Whether the rows of a file have columns, rather than a text per line."""
    return path != STANDARD_INPUT and not files.uncompressed(path).endswith(".txt")


def check_has_columns(path: str, **selected: str) -> None:
    """Raises ValueError for a column, by the argument that selects it, of a file without columns."""
    for name, column in selected.items():
        if not has_columns(path):
            raise ValueError(f"{name}={column}: {path} has no columns. Leave it out, or give a .tsv or .csv.")


def _table(
    path: str, records: Iterator[tuple[str, list[str]]], columns: Columns, bad_rows: rows.BadRows
) -> Iterator[tuple[str, Row]]:
    """Yields the rows of a table, whose first one is a header unless all columns are positions."""
    invalid = len(bad_rows.messages)
    where, header = next(records, (path, []))
    names: list[str] = header
    by_position = not columns.has_header and all(column.isdecimal() for column in columns.by_column())
    if not by_position and len(bad_rows.messages) > invalid:  # `header` is the row after it
        raise ValueError(bad_rows.messages[invalid])
    if by_position:
        names = [str(i) for i in range(1, len(names) + 1)]
        records = itertools.chain([(where, header)], records)
    columns.check(path, names, separator_hint(header))
    for where, fields in records:
        with bad_rows.row():
            if len(fields) != len(names):
                count = rows.counted(len(fields), "column")
                raise ValueError(f"{where}: {count}, but {len(names)} in the first line.")
            row = dict(zip(names, fields, strict=True))
            if by_position and where.endswith(":1"):
                _check_header(where, row, columns)
            yield where, row


def head(path: str, by_position: bool) -> list[dict[str, Any]]:
    """Returns the valid ones of the first `HEAD` rows, by column, or by its position if asked."""
    found = []
    ignored = rows.BadRows("skip", None)
    is_json, is_csv = (files.uncompressed(path).endswith(ending) for ending in (".jsonl", ".csv"))
    read: Any = rows.lines if is_json else rows.csv_records if is_csv else rows.tsv_records
    records = read(path, ignored)
    _, names = (path, []) if is_json else next(records, (path, []))
    if by_position and not is_json:
        records = itertools.chain([(path, names)], records)
        names = [str(i) for i in range(1, len(names) + 1)]
    for where, row in itertools.islice(records, HEAD):
        with ignored.row():
            found.append(
                strict_json.parse_object(where, row) if is_json else dict(zip(names, row, strict=False))
            )
    return found


def separator_hint(fields: Sequence[str]) -> str:
    mark = next((mark for mark in ";\t," if len(fields) == 1 and mark in fields[0]), None)
    return f" They seem to be separated by {mark!r}." if mark else ""


def _check_header(where: str, row: Row, columns: Columns) -> None:
    """Raises ValueError for a first row with usual names of columns if columns are selected by position."""
    text, label = (normalize_text(row.get(str(c), "")) for c in (columns.text_column, columns.label_column))
    if text in TEXT_NAMES and (columns.label_column is None or label in LABEL_NAMES):
        column, field = next(iter(columns.by_column().items()))
        raise ValueError(
            f"{where}: the row is a header line, but {field}={column} is a position in a file without one. "
            "Select the columns by name, or remove the row."
        )

"""Rows of text files, each with the file and line that it comes from, and the policy for invalid rows."""

import codecs
import contextlib
import csv
import os
import re
import sys
from collections.abc import Iterable, Iterator

from rank4class import arguments
from rank4class.data.readers import files

POLICIES = ("fail", "skip")
_UTF8_REMEDY = "Save the file as UTF-8, for example with iconv -f latin1 -t utf8."
_NUL_REMEDY = "Remove it, or save the file as UTF-8 if it is in UTF-16."


class BadRows:
    """The policy for rows that cannot be used, set by a field or flag (or None).

    "fail" raises the error of a row; "skip" skips the row and appends the error to `messages`.
    """

    def __init__(self, policy: str, field: str | None = "data.on_invalid_row"):
        arguments.check_choice(POLICIES, **{str(field): policy})
        self._policy = policy
        self._field = field
        self.messages: list[str] = []

    @contextlib.contextmanager
    def row(self) -> Iterator[None]:
        """Returns a context for the reading of one row, in which a ValueError marks the row as invalid."""
        try:
            yield
        except ValueError as error:
            if self._policy == "fail":
                hint = f" To skip it, set {self._field}=skip." if self._field else ""
                raise ValueError(f"{error}{hint}") from error
            self.messages.append(str(error))


def lines(
    path: str, bad_rows: BadRows | None = None, file: Iterable[bytes] | None = None
) -> Iterator[tuple[str, str]]:
    """Yields (`path:number`, line) for every line of a UTF-8 file, without empty lines at its end.

    Without a policy, invalid lines raise. `path` is only the name in messages if an open file is given.
    """
    if file is None:
        check_text(path)
    bad_rows = bad_rows or BadRows("fail", None)
    number = 0
    empty: list[tuple[str, str]] = []  # lines that may be the last ones
    with contextlib.nullcontext(file) if file else files.opened(path) as source:
        for number, line in enumerate(source, 1):
            where = f"{path}:{number}"
            with bad_rows.row():
                text = _decode(line, where)
                if text:
                    yield from empty
                    empty.clear()
                    yield where, text
                else:
                    empty.append((where, text))
    if not number:
        raise ValueError(f"{path}: the file is empty. Give a file with rows.")


def _decode(line: bytes, where: str) -> str:
    try:
        # utf-8-sig: some editors write a byte order mark before the first line.
        text = line.decode("utf-8-sig" if where.endswith(":1") else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: the line is not UTF-8: {error.reason}. {_UTF8_REMEDY}") from error
    if "\0" in text:
        raise ValueError(f"{where}: the line has a NUL character. {_NUL_REMEDY}")
    return text


def tsv_records(path: str, bad_rows: BadRows) -> Iterator[tuple[str, list[str]]]:
    """Yields (`path:number`, fields) for every row of a TSV.

    A quote is a character, unless the file has a sign of quotes as in CSV: a row whose fields are all in
    quotes; a field in quotes with doubled quotes inside; or a row with too few columns that ends in a quote
    that is not closed, or follows such a row. Such a file is read as `csv_records` does.
    """
    check_text(path)
    if has_csv_quotes(path):
        yield from csv_records(path, bad_rows, "\t")
    else:
        yield from ((where, line.split("\t")) for where, line in lines(path, bad_rows))


def has_csv_quotes(path: str) -> bool:
    """Whether a TSV has a sign of quotes as in CSV; see `tsv_records`."""
    num_columns = 0
    after_unclosed = False
    with files.opened(path) as file:
        for line in file:
            fields = line.removeprefix(codecs.BOM_UTF8).rstrip(b"\r\n").split(b"\t")
            is_unclosed = fields[-1].startswith(b'"') and fields[-1].count(b'"') % 2 == 1
            texts = [field for field in fields if field]
            if not texts:
                continue
            if (
                (len(fields) < num_columns and (after_unclosed or is_unclosed))
                or (len(texts) > 1 and all(re.fullmatch(rb'"[^"]+"', text) for text in texts))
                or (b'""' in line and any(map(_has_doubled_quotes, fields)))
            ):
                return True
            num_columns = num_columns or len(fields)
            after_unclosed = is_unclosed
    return False


def _has_doubled_quotes(field: bytes) -> bool:
    """Whether a field begins with a quote and doubles the others, except one at its end.

    Doubled quotes only at the ends are no sign: programs have texts such as the last one here.

    >>> texts = (b'"a ""b"" c"', b'"a ""b""', b'"a" "" "b"', b'"a"', b'\"""a\"""')
    >>> [_has_doubled_quotes(text) for text in texts]
    [True, True, False, False, False]
    """
    return b'""' in field.strip(b'"') and re.fullmatch(rb'"(?:[^"]|"")*"?', field) is not None


def csv_records(path: str, bad_rows: BadRows, delimiter: str = ",") -> Iterator[tuple[str, list[str]]]:
    """Yields (`path:number`, fields) for every record of a CSV file, with the number of its first line.

    A record that is not CSV raises whatever the policy: the start of the next one is unknown.
    """
    check_text(path)
    options = {"encoding": "utf-8-sig", "errors": "surrogateescape", "newline": ""}
    with files.opened(path, "rt", **options) as file:
        csv.field_size_limit(sys.maxsize)  # a global limit; cells may have any length
        reader = csv.reader(file, strict=True, delimiter=delimiter)
        while True:
            where = f"{path}:{reader.line_num + 1}"
            try:
                fields = next(reader, None)
            except csv.Error as error:
                form = "CSV" if delimiter == "," else "CSV with tabs, as other rows are"
                problem = str(error).replace("\t", "\\t")
                raise ValueError(
                    f"{where}: the record up to line {reader.line_num} is not {form}: {problem}. Correct it."
                ) from error
            if fields is None:
                break
            if fields:
                with bad_rows.row():
                    text = "".join(fields)
                    if "\0" in text:  # Python 3.10's reader raises for it
                        raise ValueError(f"{where}: the row has a NUL character. {_NUL_REMEDY}")
                    try:
                        text.encode()
                    except UnicodeEncodeError as error:
                        raise ValueError(f"{where}: the row is not UTF-8. {_UTF8_REMEDY}") from error
                    yield where, fields
    if not reader.line_num:
        raise ValueError(f"{path}: the file is empty. Give a file with rows.")


def check_text(path: str) -> None:
    """Raises FileNotFoundError if there is no file, ValueError for one in UTF-16."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: no such file. Check the path.")
    with files.opened(path) as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise ValueError(f"{path}: the file is in UTF-16. Save it as UTF-8.")


def counted(number: int, noun: str) -> str:
    """Returns a number and a noun for a message.

    >>> counted(1, "column"), counted(2000, "column")
    ('1 column', '2,000 columns')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

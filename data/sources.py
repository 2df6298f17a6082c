"""Where datasets come from: lines of text files, other files, TensorFlow Datasets; and rows that are bad."""

import codecs
import collections
import contextlib
import csv
import hashlib
import json
import os
import sys
import zipfile

from absl import logging

POLICIES = ("fail", "skip")


class BadRows:
    """What becomes of a row that cannot be used.

    Args:
      policy: "fail" raises its error; "skip" leaves the row out and keeps the message in `messages`.

    Raises:
      ValueError: unknown policy.

    >>> bad = BadRows("skip")
    >>> with bad.row():
    ...     raise ValueError("file.tsv:3 has 2 columns")
    >>> bad.messages
    ['file.tsv:3 has 2 columns']
    """

    def __init__(self, policy):
        if policy not in POLICIES:
            raise ValueError(f"data.on_invalid_row {policy!r} is not one of {', '.join(POLICIES)}")
        self._policy = policy
        self.messages = []

    @contextlib.contextmanager
    def row(self):
        """Around the reading of one row: a ValueError in there says that it is bad."""
        try:
            yield
        except ValueError as error:
            if self._policy == "fail":
                raise ValueError(f"{error} (data.on_invalid_row=skip would leave it out)") from error
            self.messages.append(str(error))


def lines(path, bad_rows=None):
    """Yields (`path:number`, line) for every line of a UTF-8 file, which may not be empty.

    Args:
      path: of the file.
      bad_rows: a `BadRows` for lines that are not UTF-8 or have a NUL character; without it they raise.

    Raises:
      FileNotFoundError: no file.
      ValueError: an empty file, one in UTF-16, or a line that is not UTF-8 or has a NUL character.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no file {path}")
    with open(path, "rb") as file:
        yield from lines_of(file, path, bad_rows)


def lines_of(file, name, bad_rows=None):
    """Yields (`name:number`, line) for every line of an open file of bytes; see `lines`."""
    bad_rows = bad_rows or BadRows("fail")
    number, line = 0, b""
    for number, line in enumerate(file, 1):
        if number == 1:
            refuse_utf16(line, name)
        where, text = f"{name}:{number}", None
        with bad_rows.row():
            text = _decoded(line, where)
        if text is not None:
            yield where, text
    if not number:
        raise ValueError(f"{name} is empty")
    if not line.endswith(b"\n"):
        logging.warning("%s:%d has no end of line: was the file cut short?", name, number)


def warn_if_cut_short(path):
    """Logs where a file does not end in an end of line."""
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            logging.warning("%s has no end of line at its end: was the file cut short?", path)


def csv_records(path, bad_rows):
    """Yields (`path:number`, fields) for every record of a CSV file; the number is of its first line.

    Double quotes are around a field that holds a comma, a quote or a line end; blank lines are passed over.
    A byte that is not UTF-8 becomes half a surrogate pair, which is refused in the field that has it.

    Args:
      path: of the file.
      bad_rows: a `BadRows` for records with a NUL character.

    Raises:
      ValueError: an empty file, one in UTF-16, or a record that is not CSV: the next record has no known
        start then.
    """
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        refuse_utf16(file.buffer.peek(2), path)
        csv.field_size_limit(sys.maxsize)  # of the whole process: a cell is as long as it is
        # Python 3.10's reader takes a NUL for a broken file, later ones for a character.
        reader = csv.reader((line.replace("\0", _NUL) for line in file), strict=True)
        fields = ()
        while fields is not None:
            where = f"{path}:{reader.line_num + 1}"
            fields = _csv_record(where, reader)
            if any(_NUL in field for field in fields or ()):
                with bad_rows.row():
                    raise ValueError(f"{where}: the row has a NUL character. {_NUL_REMEDY}")
            elif fields:
                yield where, fields
    if not reader.line_num:
        raise ValueError(f"{path} is empty")


_NUL_REMEDY = "Remove it, or save the file as UTF-8 if it is in UTF-16."
_NUL = "\udc00"  # which no byte becomes by surrogateescape


def _csv_record(where, reader):
    """Returns the next record's fields, none of a blank line, and None at the end."""
    try:
        return next(reader, None)
    except csv.Error as error:
        raise ValueError(
            f"{where} is not CSV, as far as line {reader.line_num}: {error}: mend it there"
        ) from error


def parse_json(text):
    """Returns the value of a JSON text.

    Raises:
      json.JSONDecodeError: it is not JSON.
      ValueError: it is not accepted, though it may be JSON. The message follows the name of the file.

    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    ValueError: has the key 'a' twice
    """
    try:
        return json.loads(text, object_pairs_hook=_once_each, parse_int=_integer)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def _integer(digits):
    try:
        return int(digits)
    except ValueError as error:  # Python's limit
        raise ValueError("has an integer of too many digits") from error


def json_object(where, text):
    """Parses a JSON object; errors call it `where`.

    Raises:
      ValueError: it is no JSON object, or has a key twice.

    >>> json_object("file.jsonl:3", '{"label": 1, "label": 2}')
    Traceback (most recent call last):
    ...
    ValueError: file.jsonl:3 has the key 'label' twice
    """
    try:
        parsed = parse_json(text)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise ValueError(f"{where} is not JSON: {error.msg} at {line}column {error.colno}") from error
    except ValueError as error:
        raise ValueError(f"{where} {error}") from error
    if not isinstance(parsed, dict):
        raise ValueError(f"{where} is not a JSON object")
    return parsed


def _once_each(pairs):
    fields = dict(pairs)
    if len(fields) < len(pairs):
        [(repeated, _)] = collections.Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"has the key {repeated[:80]!r} twice")
    return fields


def refuse_utf16(start, name):
    """Raises ValueError of a file that starts with a byte order mark of UTF-16."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{name} is UTF-16: save it as UTF-8")


def listed(names):
    """Returns at most ten names for a message.

    >>> listed("abcdefghijklm")
    'a, b, c, d, e, f, g, h, i, j and 3 more'
    """
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def _decoded(line, where):
    try:
        # utf-8-sig: some editors put a byte order mark before the first line.
        text = line.decode("utf-8-sig" if where.endswith(":1") else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8: {error.reason}") from error
    if "\0" in text:
        raise ValueError(f"{where}: the line has a NUL character. {_NUL_REMEDY}")
    return text


def check_inflated_size(path, member, most_bytes):
    """Raises ValueError for a member of a zip file that would take too much memory to read.

    Args:
      path: of the zip file.
      member: a `zipfile.ZipInfo`. Its size may be wrong: read at most as many bytes.
      most_bytes: how many bytes it may have.
    """
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # the others inflate at once
        raise NotImplementedError("that compression method is not supported")
    if member.file_size > most_bytes:
        raise ValueError(
            f"{path}: {member.filename} has {member.file_size / 1e9:,.1f} GB when it is unpacked, more than "
            f"{most_bytes / 1e9:g} GB. Download it again."
        )


def sha256(path):
    """Returns the SHA-256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def tfds_builder(name, title, data_dir=None):
    """Returns TensorFlow Datasets' builder of that name, its files prepared.

    Args:
      name: as TensorFlow Datasets calls the dataset.
      title: what an error calls it.
      data_dir: folder of what TensorFlow Datasets has prepared; None takes its own.

    Raises:
      OSError: the files are not there and cannot be downloaded; the message names the folder.
    """
    import tensorflow_datasets as tfds  # slow to import, and not needed for a folder
    from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

    builder = tfds.builder(name, data_dir=data_dir, try_gcs=False)
    try:
        config = tfds.download.DownloadConfig(try_download_gcs=False)  # the publisher, not Google's copy
        builder.download_and_prepare(download_config=config)
    except (OSError, NonMatchingChecksumError) as error:  # the publisher may have changed them
        raise OSError(
            f"{title} could not be downloaded to {builder.data_dir} (data.tfds_dir) and prepared there; set "
            f"data.path to a folder of its files ({error})"
        ) from error
    return builder

"""A user's own texts and labels: TSV, CSV or JSON lines."""

import functools
import itertools
import os
import re
import reprlib
from typing import NamedTuple

import numpy as np
from absl import logging

from rank4class.data import class_tables, sources
from rank4class.data.dataset import Dataset, Split, draw_together
from rank4class.data.registry import DATASETS

FILES = {
    "train": ("train",),
    "validation": ("validation", "dev", "val", "valid"),
    "test": ("test",),
}
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
MARK = "\ufeff"  # the byte order mark
# Usual names of columns: a cell of each in one row says that the row is a header line.
TEXT_NAMES = (
    "text", "texts", "sentence", "sentence1", "sentence_1", "document", "content", "body", "title",
    "question", "query", "review", "comment", "message", "utterance", "input", "premise",
)  # fmt: skip
LABEL_NAMES = ("label", "labels", "label_id", "class", "category", "target", "tag", "intent", "sentiment")


class Columns(NamedTuple):
    """What to read of a row; see `text_file`."""

    text: str
    pair: str | None
    label: str


class Example(NamedTuple):
    """What is read of a row; the pair is empty where there is no column of it."""

    where: str
    text: str
    pair: str
    label: str


@DATASETS.register("text_file")
def text_file(
    path=None,
    text_column="text",
    text_pair_column=None,
    label_column="label",
    classes=None,
    validation_fraction=0.1,
    test_fraction=0.1,
    split_seed=0,
    on_invalid_row="fail",
):
    """Texts, or pairs of texts, each with one label, from a file of your own.

    The name says the format: `.tsv` (tabs, no quotes), `.csv` (commas, double quotes around a field that
    holds a comma, a quote or a line end; blank lines are passed over) or `.jsonl` (a JSON object a
    line). All are UTF-8. What is not CSV stops the reading, as no one knows where the next row begins.

    Splits that are not given are drawn from the training file, each class by the same share. Equal texts
    (and pairs) stay together: the first is drawn, by its label, and the others follow it. Texts are
    equal that differ in case and white space alone.

    Args:
      path: a file, from which validation and test are drawn; or a folder with `train`, and with any of
        `validation` (or `dev`, `val`, `valid`) and `test`, each a file of one of the formats. Another
        file of a format there is a bad row, but for `classes` and hidden ones.
      text_column: a column's name in the first line, or the key in each JSON object. A number written
        in digits is the place of a column, from 1, of a TSV or CSV without a header line. A line with the
        usual names of columns, such as text and label, is refused there; a first line that only seems to be
        a header is logged.
      text_pair_column: of a second text, which may be empty; None has none.
      label_column: of the class, a string, or an integer in JSON; spaces around it do not count.
      classes: file of the names of all classes, a name a line, in the order of their ids. Without it
        they are those of the training file, sorted.
      validation_fraction, test_fraction: how much of the different texts to draw, in (0, 1).
      split_seed: int.
      on_invalid_row: "fail" or "skip", see `sources.BadRows`. A row is bad that has other columns than the
        first line, is no JSON object, lacks a key or has one twice, is not UTF-8, has a NUL character, has
        no text or no label, a label with a control character or one that is none of the classes; a row that
        repeats the header line; and in a given test or validation file one whose text (and pair) a file
        before it has.

    Returns:
      A `Dataset` with the features `text`, and `text_pair` with a `text_pair_column`, strings `[N]`.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: a row is bad, the message names file and line; a file has another format, is empty or
        lacks a column; there are fewer than two classes, or one of `classes` has no training example;
        the splits cannot be drawn.
    """
    if not path:
        raise ValueError("text_file reads your own file: set data.path to it, or to a folder of its splits")
    columns = Columns(text_column, text_pair_column, label_column)
    if len(set(columns)) < len(columns):
        raise ValueError(f"text, pair and label cannot be in the same column: {columns}")
    bad_rows = sources.BadRows(on_invalid_row)
    paths = _paths(path)
    _check_others(path, paths, classes, bad_rows)
    examples = {split: _read(file, columns, bad_rows) for split, file in paths.items()}
    names = _class_names(classes, examples["train"], paths["train"])
    examples = _usable(examples, names, paths, classes or paths["train"], bad_rows)
    parts = {split: _split(rows, names, columns) for split, rows in examples.items()}
    shares = {"validation": validation_fraction, "test": test_fraction}
    missing = {split: share for split, share in shares.items() if split not in parts}
    if missing:
        parts |= _draw(parts["train"], missing, split_seed)
    files = [*paths.values(), *([classes] if classes else [])]
    hashes = {file: sources.sha256(file) for file in files}
    return Dataset(names, parts, tuple(bad_rows.messages), hashes)


def _paths(path):
    """Returns split -> file, of the splits that are given."""
    if os.path.isfile(path):
        return {"train": path}
    if not os.path.isdir(path):
        raise FileNotFoundError(f"no file or folder {path}")
    paths = {}
    for split, names in FILES.items():
        files = [f"{name}{extension}" for name in names for extension in FORMATS]
        found = [os.path.join(path, file) for file in files if os.path.isfile(os.path.join(path, file))]
        if len(found) > 1:
            raise ValueError(f"{' and '.join(found)} are each a {split} split: keep one of them")
        if found:
            paths[split] = found[0]
        elif split == "train":
            raise FileNotFoundError(f"no {' or '.join(files)} in {path}")
    return paths


def _check_others(path, paths, classes, bad_rows):
    """Another file of a format, or of a split, in the folder is a bad row: its name is mistaken."""
    if os.path.isfile(path):
        return
    known = {os.path.realpath(file) for file in [*paths.values(), *([classes] if classes else [])]}
    split_names = set().union(*FILES.values())
    splits = (f"{first} ({', '.join(others)})" if others else first for first, *others in FILES.values())
    form = f"{', '.join(splits)} with {', '.join(FORMATS)}"
    for name in sorted(os.listdir(path)):
        file = os.path.join(path, name)
        looks_like_one = any(extension in name.lower() for extension in FORMATS) or (
            name.lower().partition(".")[0] in split_names and os.path.isfile(file)
        )
        if looks_like_one and not name.startswith(".") and os.path.realpath(file) not in known:
            with bad_rows.row():
                raise ValueError(f"{file} is none of {form}")


def _read(path, columns, bad_rows):
    """Returns the `Example`s of a file."""
    extension = os.path.splitext(path)[1]
    if extension == ".txt":
        raise ValueError(
            f"{path}: a .txt file has texts without labels. Give a file with a column of each, as "
            f"{', '.join(FORMATS)}."
        )
    if extension not in FORMATS:
        raise ValueError(f"{path} does not end in {', '.join(FORMATS)}, which say the format of a file")
    before = len(bad_rows.messages)
    rows, parse = FORMATS[extension](path, columns, bad_rows)
    examples = []
    for where, row in rows:
        with bad_rows.row():
            examples.append(_example(where, parse(where, row), columns))
    if not examples:
        bad = bad_rows.messages[before:]
        raise ValueError(
            f"{path} has no example, only {f'bad rows, the first: {bad[0]}' if bad else 'a header'}"
        )
    if extension != ".jsonl":
        _check_first_line(path, examples)
    return examples


def _check_first_line(path, examples):
    where, label = examples[0].where, examples[0].label
    # A header may be there several times, once for each of the files that were joined.
    others = (example for example in examples if example.text != examples[0].text)
    if where != f"{path}:1" or any(example.label == label for example in others):
        return
    if normalize_text(label) in LABEL_NAMES:
        raise ValueError(
            f"{where}: this line seems to be a header, as no other example has the class {label!r}. Set "
            "data.text_column and data.label_column to the names in it; if it is an example, move it down."
        )
    logging.warning("%s is the only example of the class %r: is it a line of names?", where, label)


def _tsv(path, columns, bad_rows):
    """Returns the rows of a file as (`path:number`, what stands there), and how to read one to a dict."""
    rows = ((where, line.split("\t")) for where, line in sources.lines(path, bad_rows))
    return _table(path, rows, columns)


def _csv(path, columns, bad_rows):
    return _table(path, sources.csv_records(path, bad_rows), columns)


def _jsonl(path, columns, bad_rows):
    del columns  # every object says what it has
    return sources.lines(path, bad_rows), sources.json_object


FORMATS = {".tsv": _tsv, ".csv": _csv, ".jsonl": _jsonl}


def _table(path, rows, columns):
    """Returns the rows that hold fields, and how to read one to a dict by column."""
    wanted = [column for column in columns if column is not None]
    first = next(rows, (path, []))
    names, check_header = first[1], _check_repeated_header
    if all(column.isdecimal() for column in wanted):
        names, check_header = [str(i) for i in range(1, len(names) + 1)], _check_usual_header
        rows = itertools.chain([first], rows)
    for column in wanted:
        if names.count(column) != 1:
            count = "several columns" if column in names else "no column"
            raise ValueError(f"{path} has {count} {_not_found(column, names)}{_separator(first[1])}")
    return rows, functools.partial(_fields, names, columns, check_header)


def _not_found(column, names):
    """Returns what to say of a column that is wanted, and of those that are there."""
    alike = [
        name
        for name in names
        if normalize_text(name).replace(" ", "") == normalize_text(column).replace(" ", "")
    ]
    meant = [name for name in alike if name != column]
    hint = f", did you mean {meant[0]!r}" if meant else ""
    return f"{column!r}{hint}; it has: {sources.listed([repr(name[:40]) for name in names])}"


def _separator(fields):
    mark = next((mark for mark in ";\t," if len(fields) == 1 and mark in fields[0]), None)
    return f"; it seems to be separated by {mark!r}" if mark else ""


def _fields(names, columns, check_header, where, fields):
    if len(fields) != len(names):
        raise ValueError(f"{where} has {len(fields)} columns, not {len(names)} as the first line")
    row = dict(zip(names, fields, strict=True))
    check_header(where, row, columns)
    return row


def _check_repeated_header(where, row, columns):
    """Raises ValueError for a row with the names of the columns, as joined files have it."""
    names = sorted(map(_bare, row))
    if _bare(row[columns.label]) not in names:  # nearly every row
        return
    in_place = all(_bare(row[column]) == _bare(column) for column in (columns.text, columns.label))
    if in_place or sorted(map(_bare, row.values())) == names:
        raise ValueError(f"{where}: this row repeats the header line. Remove it.")


def _check_usual_header(where, row, columns):
    """Raises ValueError for a row with usual names of columns, where columns are given by place."""
    text, label = row[columns.text], row[columns.label]
    if _bare(text) in TEXT_NAMES and _bare(label) in LABEL_NAMES:
        text, label = text.lstrip(MARK), label.lstrip(MARK)
        raise ValueError(
            f"{where}: this row is a header line, but data.text_column={columns.text} is a place in a file "
            f"without one. Set data.text_column={text!r} and data.label_column={label!r}, or remove the row."
        )


def _bare(cell):
    """Returns a cell as names of columns are compared, without the byte order mark of a joined file."""
    return normalize_text(cell.strip(f'{MARK}"'))


def _example(where, row, columns):
    text = _string(where, row, columns.text)
    pair = "" if columns.pair is None else _string(where, row, columns.pair)
    if type(row.get(columns.label)) is int:  # which true and false are not
        row = {**row, columns.label: str(row[columns.label])}
    label = _string(where, row, columns.label).strip()
    for column, value in ((columns.text, text.strip()), (columns.label, label)):
        if not value:
            raise ValueError(f"{where} has an empty {column!r}")
    if CONTROL.search(label):  # no file of classes could name it
        raise ValueError(f"{where} has the {columns.label} {label!r}, which has a control character")
    return Example(where, text, pair, label)


def _string(where, row, column):
    if column not in row:
        raise ValueError(f"{where} has no {_not_found(column, list(row))}")
    if not isinstance(row[column], str):
        raise ValueError(f"{where} has the {column} {reprlib.repr(row[column])}, which is not a string")
    try:
        row[column].encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where} has the {column} {reprlib.repr(row[column])}, which is not UTF-8"
        ) from error
    if "\0" in row[column]:
        raise ValueError(f"{where}: the {column} has a NUL character. Remove it.")
    return row[column]


def _class_names(path, examples, train_path):
    """Returns the names of the classes by id; each has an example for the training."""
    present = {example.label for example in examples}
    places = class_tables.class_names(path) if path else dict.fromkeys(sorted(present))
    for name, where in places.items():
        if name not in present:
            raise ValueError(f"{where} names {name!r}, of which {train_path} has no example")
    if len(places) < 2:
        raise ValueError(f"{path or train_path} has the class {', '.join(places)} alone: there must be two")
    return tuple(places)


def normalize_text(text):
    """Returns what texts are compared by: neither case nor white space makes another text.

    >>> normalize_text(" A  Text ")
    'a text'
    """
    return " ".join(text.casefold().split())


def _usable(examples, names, paths, names_path, bad_rows):
    """Leaves out what has another class, and what a split before it has too."""
    usable, seen, known = {}, {}, set(names)
    for split, rows in examples.items():
        usable[split] = []
        before = len(bad_rows.messages)
        for example in rows:
            with bad_rows.row():
                if example.label not in known:
                    raise ValueError(
                        f"{example.where} has the class {example.label!r}, which {names_path} does not have"
                    )
                content = normalize_text(example.text), normalize_text(example.pair)
                first = seen.setdefault(content, (split, example.where))
                if first[0] != split:
                    raise ValueError(
                        f"{example.where} has the text of {first[1]}: an example belongs to one split"
                    )
                usable[split].append(example)
        if not usable[split]:
            raise ValueError(
                f"the {split} split has no example: {paths[split]} has only bad rows, the first: "
                f"{bad_rows.messages[before]}"
            )
    return usable


def _split(examples, names, columns):
    where, texts, pairs, labels = (
        np.array([getattr(example, field) for example in examples], object) for field in Example._fields
    )
    features = {"text": texts} if columns.pair is None else {"text": texts, "text_pair": pairs}
    ids = {name: i for i, name in enumerate(names)}
    return Split(features, np.array([ids[label] for label in labels], np.int32), where)


def _draw(split, shares, seed):
    places = {}
    contents = zip(*(map(normalize_text, values) for values in split.features.values()), strict=True)
    first = np.array([places.setdefault(content, i) for i, content in enumerate(contents)])
    return draw_together(split, first, shares, seed=seed)

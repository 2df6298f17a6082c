"""Texts and labels from a user's files: TSV, CSV or JSON lines."""

import collections
import itertools
import os
from collections.abc import Sequence

import numpy as np
from absl import logging

from rank4class.data.dataset import Dataset, Split, check_fractions
from rank4class.data.readers import files, rows, user_splits
from rank4class.data.readers.text_rows import FORMATS, Columns, Example, read
from rank4class.data.registry import DATASETS, LABELED


@DATASETS.register("text_file")
def text_file(
    path: str | None = None,
    text_column: str = "text",
    text_pair_column: str | None = None,
    label_column: str = "label",
    classes: str | None = None,
    validation_fraction: float = 0.1,
    test_fraction: float = 0.1,
    split_seed: int = 0,
    on_invalid_row: str = "fail",
) -> Dataset:
    """Texts or pairs of texts with one label each, from a user's file.

    Files are UTF-8, and end in `.tsv` (see `rows.tsv_records`), `.csv` or `.jsonl` (one JSON object per
    line), in any case. Missing splits are drawn from the training file, the same fraction of each class.
    Equal texts (and pairs) are in one split. Comparisons ignore case and white space.

    Args:
      path: required; a file, from which validation and test are drawn; or a folder with `train`, and
        optionally `validation` (or `dev`, `val`, `valid`) and `test`, each a file of one of the formats.
        Other files of a format are invalid rows, unless they are hidden or `classes`.
      text_column: name in the first line, or key of each JSON object. A number in digits is the position of a
        column, from 1, in a TSV or CSV without a header line.
      text_pair_column: column of a second text, which may be empty; None reads no pair.
      label_column: column of the class, a string, or an integer in JSON; spaces around it are removed.
      classes: file with the names of all classes, one per line, in the order of their ids. None sorts the
        classes of the training file.
      validation_fraction, test_fraction: fraction of the different texts to draw, in (0, 1).
      split_seed: seed of the splits, at least 0.
      on_invalid_row: "fail" or "skip", see `rows.BadRows`. A row is invalid if it has other columns than the
        first line, is not a JSON object, lacks or repeats a key, is not UTF-8, has a NUL character, no text,
        no or an unknown label, a control character in it, the header line, or the text (and pair) of an
        earlier split.

    Returns:
      A `Dataset` with the features `text`, and `text_pair` with a `text_pair_column`, strings `[N]`.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: an argument out of range; an invalid row, named by file and line; a file of another format,
        without rows or without a column; fewer than two classes; splits that cannot be drawn.
    """
    fractions = check_fractions(validation_fraction, test_fraction)
    bad_rows = rows.BadRows(on_invalid_row)
    columns = Columns(text_column, text_pair_column, label_column)
    if len(set(columns)) < len(columns):
        raise ValueError(
            f"data.text_column={text_column}, text_pair_column={text_pair_column}, "
            f"label_column={label_column}: the same column twice. Choose different columns."
        )
    paths = _split_paths(path)
    sources = [*paths.values(), *([classes] if classes else [])]
    _check_other_files(path, sources, bad_rows)
    examples = {split: _read(file, columns, bad_rows) for split, file in paths.items()}
    present = {example.label for example in examples["train"]}
    names = user_splits.class_names(classes, present, paths["train"])
    if not classes:
        _warn_of_joined(names, paths["train"])
    known = f"in {classes or paths['train']}"
    splits = {
        split: _split(paths[split], each, names, columns, known, bad_rows) for split, each in examples.items()
    }
    splits = user_splits.complete(splits, fractions, split_seed, bad_rows)
    return Dataset(names, splits, tuple(bad_rows.messages), {file: files.sha256(file) for file in sources})


@LABELED.register("text_file")
def labeled_texts(
    path: str,
    class_names: Sequence[str],
    bad_rows: rows.BadRows,
    text_column: str = "text",
    text_pair_column: str | None = None,
    label_column: str = "label",
) -> Split:
    """Returns all rows of a file as one split; a row of another class is invalid."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"data.path={path}: no such file. Set it to a file of texts and labels.")
    columns = Columns(text_column, text_pair_column, label_column)
    examples = _read(path, columns, bad_rows)
    return _split(path, examples, class_names, columns, "one of the model's", bad_rows)


def _split_paths(path):
    """Returns split -> file, of the splits in the folder."""
    if not path:
        raise ValueError(f"data.path={path}: required. Set it to your file, or to a folder of its splits.")
    if os.path.isfile(path):
        return {"train": path}
    if not os.path.isdir(path):
        raise FileNotFoundError(f"data.path={path}: no such file or folder. Check the path.")
    names = (os.path.splitext(name) for name in sorted(os.listdir(path)))
    paths = user_splits.find(
        path, ((stem, stem + ending) for stem, ending in names if ending.lower() in FORMATS)
    )
    if "train" not in paths:
        candidates = " or ".join(f"train{extension}" for extension in FORMATS)
        raise FileNotFoundError(f"data.path={path}: no {candidates}. Add one.")
    return paths


def _check_other_files(path, sources, bad_rows):
    """Treats other files in the folder that look like splits as invalid rows: their names may be mistakes."""
    known = set(map(os.path.realpath, sources))
    split_names = set().union(*user_splits.NAMES.values())
    for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
        file = os.path.join(path, name)
        looks_like_split = any(extension in name.lower() for extension in FORMATS) or (
            name.lower().partition(".")[0] in split_names and os.path.isfile(file)
        )
        if looks_like_split and not name.startswith(".") and os.path.realpath(file) not in known:
            with bad_rows.row():
                raise ValueError(
                    f"{file}: none of {user_splits.EXPECTED} with {', '.join(FORMATS)}. Rename or move it."
                )


def _read(path, columns, bad_rows):
    """Returns the `Example`s of a file."""
    before = len(bad_rows.messages)
    with bad_rows.whole_file():
        examples = list(read(path, columns, bad_rows))
        _check_any(path, examples, bad_rows.messages[before:])
    return examples


def _check_any(path, examples, messages):
    if not examples:
        first = f"All rows are invalid, the first: {messages[0]}" if messages else "Add rows to its header."
        raise ValueError(f"{path}: no example. {first}")


def _split(
    path: str,
    examples: Sequence[Example],
    class_names: Sequence[str],
    columns: Columns,
    known: str,
    bad_rows: rows.BadRows,
) -> Split:
    """Returns the examples of known classes; `known` names these in messages."""
    ids = {name: i for i, name in enumerate(class_names)}
    before = len(bad_rows.messages)
    valid = []
    with bad_rows.whole_file():
        for example in examples:
            with bad_rows.row():
                if example.label not in ids:
                    raise ValueError(f"{example.where}: class {example.label!r} is not {known}.")
                valid.append(example)
        _check_any(path, valid, bad_rows.messages[before:])
    where, texts, pairs, labels = (np.array(values, object) for values in zip(*valid, strict=True))
    features = {"text": texts} if columns.pair is None else {"text": texts, "text_pair": pairs}
    return Split(features, np.array([ids[label] for label in labels], np.int32), where)


def _warn_of_joined(labels, path):
    """Logs a warning for labels that seem to be several, joined: most parts occur in more than one label."""
    for separator in ";,|":
        parts = {label: {part.strip() for part in label.split(separator)} for label in labels}
        joined = sorted(label for label in labels if separator in label)
        counts = collections.Counter(itertools.chain.from_iterable(parts.values()))
        known = set().union(*(parts[label] for label in joined))
        if 2 * sum(counts[part] > 1 for part in known) > len(known):
            logging.warning(
                "%s: %s of %s labels contain %r, such as %r, and each is a separate class. For several "
                "labels per text, write the files of dataset 'goemotions' and set data.multi_label=True.",
                path,
                f"{len(joined):,}",
                f"{len(labels):,}",
                separator,
                joined[0],
            )

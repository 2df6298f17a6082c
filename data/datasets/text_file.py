"""Texts and labels from a user's files: TSV, CSV or JSON lines."""

import collections
import itertools
import os
from collections.abc import Sequence

import numpy as np
from absl import logging

from rank4class import arguments
from rank4class.data.dataset import Dataset, Split, draw_together
from rank4class.data.readers import class_tables, files, rows
from rank4class.data.readers.text_rows import FORMATS, Columns, Example, normalize_text, read
from rank4class.data.registry import DATASETS, LABELED

FILES = {"train": ("train",), "validation": ("validation", "dev", "val", "valid"), "test": ("test",)}


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

    The extension, in any case, sets the format: `.tsv` (tabs; quotes are characters, or those of CSV, see
    `rows.tsv_records`), `.csv` (commas, double quotes around a field with a comma, a quote or a line end;
    blank lines are ignored) or `.jsonl` (one JSON object per line). All are UTF-8. A record that is not CSV
    always raises, as the start of the next row is unknown.

    Missing splits are drawn from the training file, the same fraction of each class. Equal texts (and
    pairs) are in one split, drawn by the label of the first. Comparisons ignore case and white space.

    Args:
      path: required; a file, from which validation and test are drawn; or a folder with `train`, and
        optionally `validation` (or `dev`, `val`, `valid`) and `test`, each a file of one of the formats.
        Other files of a format are invalid rows, unless they are hidden or `classes`.
      text_column: name in the first line, or key of each JSON object. A number in digits is the position of a
        column, from 1, in a TSV or CSV without a header line. With positions, a row of usual names of
        columns, such as text and label, is invalid.
      text_pair_column: column of a second text, which may be empty; None reads no pair.
      label_column: column of the class, a string, or an integer in JSON; spaces around it are removed.
      classes: file with the names of all classes, one per line, in the order of their ids. None sorts the
        classes of the training file.
      validation_fraction, test_fraction: fraction of the different texts to draw, in (0, 1).
      split_seed: seed of the splits, at least 0.
      on_invalid_row: "fail" or "skip", see `rows.BadRows`. A row is invalid if it has other columns than the
        first line, is not a JSON object, lacks or repeats a key, is not UTF-8, has a NUL character, has no
        text or label, has a control character in its label or an unknown label, or repeats the header line;
        in a test or validation file also if an earlier file has its text (and pair).

    Returns:
      A `Dataset` with the features `text`, and `text_pair` with a `text_pair_column`, strings `[N]`.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: an argument out of range; an invalid row, named by file and line; a file of another format,
        without rows or without a column; fewer than two classes; a class without a training example; splits
        that cannot be drawn.
    """
    arguments.check_fraction(
        False, section="data.", validation_fraction=validation_fraction, test_fraction=test_fraction
    )
    bad_rows = rows.BadRows(on_invalid_row)
    columns = Columns(text_column, text_pair_column, label_column)
    if len(set(columns)) < len(columns):
        raise ValueError(
            f"data.text_column={text_column}, text_pair_column={text_pair_column}, "
            f"label_column={label_column}: the same column twice. Choose different columns."
        )
    paths = _split_paths(path)
    _check_other_files(path, paths, classes, bad_rows)
    examples = {split: _read(file, columns, bad_rows) for split, file in paths.items()}
    names = _class_names(classes, examples["train"], paths["train"])
    examples = _valid_examples(examples, names, paths, classes or paths["train"], bad_rows)
    splits = {split: _split(each, names, columns) for split, each in examples.items()}
    fractions = {"validation": validation_fraction, "test": test_fraction}
    fractions = {split: fraction for split, fraction in fractions.items() if split not in splits}
    if fractions:
        splits |= _draw(splits["train"], fractions, split_seed)
    sources = [*paths.values(), *([classes] if classes else [])]
    hashes = {file: files.sha256(file) for file in sources}
    return Dataset(names, splits, tuple(bad_rows.messages), hashes)


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
    examples, known = [], set(class_names)
    with bad_rows.whole_file():
        for example in read(path, columns, bad_rows):
            with bad_rows.row():
                if example.label not in known:
                    raise ValueError(f"{example.where}: class {example.label!r} is not one of the model's.")
                examples.append(example)
        if not examples:
            messages = bad_rows.messages
            first = f" All rows are invalid, the first: {messages[0]}" if messages else " Add one."
            raise ValueError(f"{path}: no example.{first}")
    return _split(examples, class_names, columns)


def _split_paths(path):
    """Returns split -> file, of the splits in the folder."""
    if not path:
        raise ValueError(f"data.path={path}: required. Set it to your file, or to a folder of its splits.")
    if os.path.isfile(path):
        return {"train": path}
    if not os.path.isdir(path):
        raise FileNotFoundError(f"data.path={path}: no such file or folder. Check the path.")
    paths = {}
    in_folder = [name for name in sorted(os.listdir(path)) if os.path.isfile(os.path.join(path, name))]
    for split, names in FILES.items():
        candidates = [f"{name}{extension}" for name in names for extension in FORMATS]
        present = [file for file in in_folder if _with_small_ending(file) in candidates]
        if len(present) > 1:
            raise ValueError(
                f"data.path={path}: {' and '.join(present)} are each a {split} split. Remove all but one."
            )
        if present:
            paths[split] = os.path.join(path, present[0])
        elif split == "train":
            raise FileNotFoundError(f"data.path={path}: no {' or '.join(candidates)}. Add one.")
    return paths


def _with_small_ending(file):
    stem, extension = os.path.splitext(file)
    return stem + extension.lower()


def _check_other_files(path, paths, classes, bad_rows):
    """Treats other files in the folder that look like splits as invalid rows: their names may be mistakes."""
    if os.path.isfile(path):
        return
    known = {os.path.realpath(file) for file in [*paths.values(), *([classes] if classes else [])]}
    split_names = set().union(*FILES.values())
    splits = (f"{first} ({', '.join(others)})" if others else first for first, *others in FILES.values())
    expected = f"{', '.join(splits)} with {', '.join(FORMATS)}"
    for name in sorted(os.listdir(path)):
        file = os.path.join(path, name)
        looks_like_split = any(extension in name.lower() for extension in FORMATS) or (
            name.lower().partition(".")[0] in split_names and os.path.isfile(file)
        )
        if looks_like_split and not name.startswith(".") and os.path.realpath(file) not in known:
            with bad_rows.row():
                raise ValueError(f"{file}: none of {expected}. Rename or move it.")


def _read(path, columns, bad_rows):
    """Returns the `Example`s of a file."""
    before = len(bad_rows.messages)
    with bad_rows.whole_file():
        examples = list(read(path, columns, bad_rows))
        if not examples:
            messages = bad_rows.messages[before:]
            first = (
                f" All rows are invalid, the first: {messages[0]}" if messages else " Add rows to its header."
            )
            raise ValueError(f"{path}: no example.{first}")
    return examples


def _class_names(path, examples, train_path):
    """Returns the names of the classes by id, each with a training example."""
    present = {example.label for example in examples}
    lines = class_tables.class_names(path) if path else dict.fromkeys(sorted(present))
    if not path:
        _warn_of_joined(present, train_path)
    for name, where in lines.items():
        if name not in present:
            raise ValueError(f"{where}: class {name!r} has no example in {train_path}. Remove the line.")
    if len(lines) < 2:
        raise ValueError(f"{path or train_path}: {', '.join(lines)} is the only class. Give at least two.")
    return tuple(lines)


def _warn_of_joined(labels, path):
    """Logs a warning for labels that seem to be several, joined by a separator.

    Most of their parts then occur in more than one label; in names such as "Bosnia, Herzegovina" they do not.
    """
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


def _valid_examples(examples, names, paths, names_path, bad_rows):
    """Returns the examples of known classes whose text no earlier split has."""
    valid: dict[str, list[Example]] = {}
    seen: dict[tuple[str, str], tuple[str, str]] = {}  # content -> split and row of its first example
    known = set(names)
    for split, split_examples in examples.items():
        valid[split] = []
        before = len(bad_rows.messages)
        with bad_rows.whole_file():
            for example in split_examples:
                with bad_rows.row():
                    if example.label not in known:
                        raise ValueError(f"{example.where}: class {example.label!r} is not in {names_path}.")
                    content = normalize_text(example.text), normalize_text(example.pair)
                    first_split, where = seen.setdefault(content, (split, example.where))
                    if first_split != split:
                        raise ValueError(f"{example.where}: the same text as {where} in another split.")
                    valid[split].append(example)
            if not valid[split]:
                raise ValueError(
                    f"{paths[split]}: the {split} split has no example. All rows are invalid, the first: "
                    f"{bad_rows.messages[before]}"
                )
    return valid


def _split(examples, names, columns):
    where, texts, pairs, labels = (np.array(values, object) for values in zip(*examples, strict=True))
    features = {"text": texts} if columns.pair is None else {"text": texts, "text_pair": pairs}
    ids = {name: i for i, name in enumerate(names)}
    return Split(features, np.array([ids[label] for label in labels], np.int32), where)


def _draw(split, fractions, seed):
    indices: dict[tuple[str, ...], int] = {}
    contents = zip(*(map(normalize_text, values) for values in split.features.values()), strict=True)
    first = np.array([indices.setdefault(content, i) for i, content in enumerate(contents)])
    return draw_together(split, first, fractions, seed=seed)

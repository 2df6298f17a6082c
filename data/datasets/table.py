"""Rows of any kind with labels, from a user's tables."""

import itertools
import os
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from absl import logging

from rank4class.data.dataset import Dataset, Split, check_fractions
from rank4class.data.readers import files, rows, split_files, tables, user_splits
from rank4class.data.readers.columns import Columns
from rank4class.data.registry import DATASETS, LABELED


@DATASETS.register("table")
def table(
    path: str,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    image_column: str | None = None,
    vector_column: str | None = None,
    feature_columns: tuple[str, ...] = (),
    label_column: str = "label",
    label_separator: str | None = None,
    label_columns: tuple[str, ...] = (),
    classes: str | None = None,
    validation_fraction: float | None = None,
    test_fraction: float = 0.1,
    split_seed: int = 0,
    added: str | None = None,
    on_invalid_row: str = "fail",
) -> Dataset:
    """Texts, images or vectors with one or several labels each, from a user's tables.

    A table is one of
      - a text file `.csv`, `.tsv` or `.jsonl`, as `text_file` reads it;
      - a `.parquet` file, an Arrow file (`.arrow`, `.feather`), or a folder of such parts, also a dataset of
        Hugging Face on disk, whose class names are read too;
      - an `.npz` file with vectors `x` `[N, d]` and labels `y` `[N]`, or 0 and 1 `[N, n]`; or a folder with
        `x.npy` and `y.npy`;
      - SVMlight rows `LABEL FEATURE:VALUE ...` (`.svmlight`, `.svm`, `.libsvm`), with features numbered from
        1, and labels separated by commas if there are several.

    Missing splits are drawn from the training table, of rows with one label the same fraction of each class.
    Of rows with several labels, a random one of each class stays in training, and the others are drawn. Equal
    rows are drawn together. A row without a label is an example of no class, for which metrics of ranks have
    their worst value; one without the only label that it may have is invalid.

    Args:
      path: required; a table, from which validation and test are drawn; or a folder with the tables `train`,
        and optionally `validation` (or `dev`, `val`, `valid`) and `test`, files or folders.
      text_column: the texts. Without a column of inputs, "text" if there is one, or the only one of lists of
        numbers, or all columns of numbers, dates and names that repeat except the labels, in the order of
        the file.
      text_pair_column: second texts, which may be empty.
      image_column: paths of images, relative to the folder of the table.
      vector_column: vectors, lists of one length; in a text file JSON lists.
      feature_columns: columns of numbers that make up the vectors. If a cell of the first 1,000 rows is a
        name, a date or missing, they are rows of cells, see `preprocessing.cells.CellEncoder`. Beside
        `text_column` they are cells too, whose values join the words of the texts.
      label_column: the classes: strings or whole numbers. Lists of them are several labels.
      label_separator: what separates several labels in a string, such as ";"; None takes the string as one.
      label_columns: a column for each class, 0 or 1, in the order of the ids, in place of `label_column`.
      classes: file with the names of all classes, one per line, in the order of their ids. None sorts the
        classes of the training table, integers by value.
      validation_fraction, test_fraction: fraction of the different rows to draw, in (0, 1).
        A validation fraction of 0 draws no validation split; optimizer "lbfgs" then validates by folds. None
        is 0.1, and 0 for "lbfgs" with fewer than 2,000 training examples.
      split_seed: seed of the splits, at least 0.
      added: another table with the same columns, such as examples of new classes, all of which train: the
        other splits are those without it.
      on_invalid_row: "fail" or "skip", see `text_file`. Also invalid are an empty or repeated label among
        several, a vector of another length than the first or with a number that is not finite, and an image
        without a file.

    Returns:
      A `Dataset` with the feature `text` (and `text_pair`) or `file`, strings `[N]`, or `embedding`, float32
      `[N, d]`, or `cells`, strings `[N, c]`, also beside `text`. Labels are sparse if rows may have several.
    """
    options = locals()
    fractions = check_fractions(validation_fraction, test_fraction, with_folds=True)
    columns, paths, bad_rows = split_files.check(**options)
    train_path = paths["train"][0]
    reader = tables.Reader(columns, bad_rows)
    read = {split: reader.table(each) for split, each in paths.items()}
    if columns.label_separator is not None and read["train"].labels.most() < 2:
        raise ValueError(
            f"data.label_separator={columns.label_separator!r}: separates no labels in {train_path}. Leave "
            "it out, or set it to their separator."
        )
    several = any(each.labels.several for each in read.values())
    for each in read.values():
        each.labels.several = several
    names = columns.label_columns or user_splits.class_names(classes, read["train"].labels.codes, train_path)
    if not classes and not several:
        _warn_of_joined(names, train_path)
    known = f"in {classes}" if classes else f"in {train_path}. Name all classes in a file, data.classes"
    splits = {split: to_split(paths[split][0], each, names, known, bad_rows) for split, each in read.items()}
    origins: Any = splits["train"].origins
    first_added = len(paths["train"]) - (len(tables.files_of(added)) if added else 0)
    num_added = int(np.sum(origins.files >= first_added))
    splits = user_splits.complete(splits, fractions, split_seed, num_added)
    counts = {name: int(np.sum(each.num_relevant() == 0)) for name, each in splits.items() if several}
    if any(counts.values()):
        listed = ", ".join(f"{count:,} of {name}" for name, count in counts.items())
        logging.warning("examples without a label, for which metrics of ranks are the worst: %s", listed)
    sources = [*itertools.chain(*paths.values()), *([classes] if classes else [])]
    hashes = {file: files.sha256(file) for file in sources}
    texts = [each for each in (columns.text_column, columns.text_pair_column) if each is not None]
    inputs = (*texts, *columns.feature_columns) if columns.feature_columns else ()
    return Dataset(names, splits, tuple(bad_rows.messages), hashes, inputs)


@LABELED.register("table")
@LABELED.register("text_file")
def labeled_rows(
    path: str, class_names: Sequence[str], bad_rows: rows.BadRows, width: int | None = None, **options: Any
) -> Split:
    """Returns all rows of a table as one split, vectors of a width; a row of another class is invalid."""
    columns = Columns.of_options({"label_column": "label", **options})
    paths = tables.files_of(path)
    if not os.path.exists(path) or not paths:
        raise FileNotFoundError(f"data.path={path}: no such file. Set it to a table with labels.")
    reader = tables.Reader(tables.choose_inputs(columns, paths[0]), bad_rows, width)
    return to_split(path, reader.table(paths), class_names, "one of the model's", bad_rows)


def to_split(
    path: str, table: tables.Table, class_names: Sequence[str], known: str, bad_rows: rows.BadRows
) -> Split:
    """Returns the rows of known classes; `known` names these in messages."""
    labels, is_unknown = table.labels.encode(class_names)
    split = Split(table.features, labels, table.origins)
    if not is_unknown.any():
        return split
    before = len(bad_rows.messages)
    names = set(class_names)
    for i in np.flatnonzero(is_unknown).tolist():
        with bad_rows.row():
            unknown = next(name for name in table.labels.names_of(i) if name not in names)
            raise ValueError(f"{split.origin(i)}: class {unknown!r} is not {known}.")
    tables.check_any(path, int(np.sum(~is_unknown)), bad_rows.messages[before:])
    return split.select(~is_unknown)


def _warn_of_joined(labels: Collection[str], path: str) -> None:
    """Logs a warning for a label that seems to be several, joined: each of its parts is a label too."""
    for separator in ";,|":
        joined = [label for label in labels if separator in label]
        for label in joined:
            if all(part.strip() in labels for part in label.split(separator)):
                values = path, len(joined), len(labels), separator, label, separator
                logging.warning(
                    "%s: %d of %d labels contain %r, such as %r, and each is a separate class. For several "
                    "labels per row, set data.label_separator=%r.",
                    *values,
                )
                break

"""Datasets by name."""

import os
from collections.abc import Sequence
from typing import Any

from absl import logging

from rank4class.data.dataset import Dataset, Split
from rank4class.data.readers.rows import BadRows
from rank4class.registry import DATASETS, Registry

# Functions of a path, class names, `BadRows` and options that read a labeled file or folder as one split.
LABELED = Registry("dataset of labeled files")


def get(name: str, **options: Any) -> Dataset:
    """Returns a dataset, and logs the rows or examples that it skipped.

    Its options are the arguments of the function of that name in `DATASETS`, such as `path`.

    Raises:
      ValueError: an unknown name or option, a missing one, or one out of range; or data that cannot be used,
        named by file and line: a file that is empty, damaged or of another format, an invalid row, a class
        without an example, or splits that cannot be drawn.
      FileNotFoundError: a file or folder is missing.
      OSError: TensorFlow Datasets cannot download and prepare the dataset.

    >>> from rank4class import data
    >>> len(data.get("digits").class_names)
    10
    """
    strings = {key: os.fspath(v) if isinstance(v, os.PathLike) else v for key, v in options.items()}
    dataset = DATASETS.build(name, **strings)
    warn_of_skipped(dataset.skipped)
    return dataset


def get_labeled(name: str, class_names: Sequence[str], *, path: str | os.PathLike, **options: Any) -> Split:
    """Returns all examples of a labeled file or folder, and logs those that it skipped.

    Args:
      name: one of `LABELED`.
      class_names: the names of all classes, by id; an example of another one is an invalid row.
      path: the file or folder.
      **options: of the dataset of this name; those that concern splits are ignored.

    Raises:
      ValueError: an unknown name; or data that cannot be used, named by file and line, among them a row of
        another class unless `on_invalid_row` is "skip".
      FileNotFoundError: a file or folder is missing.
    """
    bad_rows = BadRows(options.pop("on_invalid_row", "fail"))
    split = LABELED[name](os.fspath(path), class_names, bad_rows, **options)
    warn_of_skipped(bad_rows.messages)
    return split


def warn_of_skipped(messages: Sequence[str]) -> None:
    """Logs the number of skipped rows or examples, and the first three messages."""
    if messages:
        logging.warning("%d left out, the first: %s", len(messages), " ".join(messages[:3]))

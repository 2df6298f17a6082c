"""Datasets by name."""

import os
from collections.abc import Sequence
from typing import Any

from absl import logging

from rank4class.data.dataset import Dataset, Split
from rank4class.data.readers.rows import BadRows
from rank4class.registry import DATASETS, Registry

# Functions that read one labeled file or folder as a split, by the name of the dataset of its layout.
LABELED = Registry("dataset of labeled files", "LABELED.register", "data/datasets/*.py")


def get(name: str, **options: Any) -> Dataset:
    """Returns a dataset, and logs the rows or examples that it skipped.

    Its options are the arguments of the function of that name in `DATASETS`, such as `path`.

    Raises:
      OSError, ValueError: an unknown name or option, a missing one, or see the dataset's function.

    >>> from rank4class import data
    >>> len(data.get("digits").class_names)
    10
    """
    dataset = DATASETS.build(name, **_as_strings(options))
    warn_of_skipped(dataset.skipped)
    return dataset


def get_labeled(name: str, class_names: Sequence[str], **options: Any) -> Split:
    """Returns all examples of a labeled file or folder, and logs those that it skipped.

    Args:
      name: one of `LABELED`.
      class_names: the names of all classes, by id; an example of another one is an invalid row.
      **options: of the dataset of this name, `path` among them; those that concern splits are ignored.
    """
    known = LABELED.options(name)
    bad_rows = BadRows(options.pop("on_invalid_row", "fail"))
    options = {key: value for key, value in _as_strings(options).items() if key in known}
    split = LABELED.build(name, class_names=class_names, bad_rows=bad_rows, **options)
    warn_of_skipped(bad_rows.messages)
    return split


def _as_strings(options: dict[str, Any]) -> dict[str, Any]:
    return {key: os.fspath(v) if isinstance(v, os.PathLike) else v for key, v in options.items()}


def warn_of_skipped(messages: Sequence[str]) -> None:
    """Logs the number of skipped rows or examples, and the first three messages."""
    if messages:
        logging.warning("%d left out, the first: %s", len(messages), " ".join(messages[:3]))

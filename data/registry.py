"""Datasets by name."""

import os
from collections.abc import Sequence
from typing import Any

from absl import logging

from rank4class.data.dataset import Dataset
from rank4class.registry import Registry

DATASETS = Registry("dataset")


def get(name: str, **options: Any) -> Dataset:
    """Returns a dataset, and logs the rows or examples that it skipped.

    Args:
      name: one of `DATASETS`.
      **options: the arguments of that dataset's function, such as `path`.

    Raises:
      ValueError: an unknown name or option, or a required option that is missing.
      OSError, ValueError: see the dataset's function.

    >>> from rank4class import data
    >>> len(data.get("digits").class_names)
    10
    """
    options = {key: os.fspath(v) if isinstance(v, os.PathLike) else v for key, v in options.items()}
    dataset = DATASETS.build(name, **options)
    warn_of_skipped(dataset.skipped)
    return dataset


def warn_of_skipped(messages: Sequence[str]) -> None:
    """Logs the number of skipped rows or examples, and the first three messages."""
    if messages:
        logging.warning("%d left out, the first: %s", len(messages), " ".join(messages[:3]))

"""Datasets by name.

Each dataset registers itself in its own file. Importing `rank4class.data` registers all of them.
"""

import os

from absl import logging

from rank4class.registry import Registry

DATASETS = Registry("dataset")


def get(name, **options):
    """Returns a dataset, and logs the rows or examples that it skipped.

    Args:
      name: one of `DATASETS`.
      **options: the arguments of that dataset's function, such as `path`.

    Raises:
      ValueError: an unknown name or option, or a required option that is missing.
      FileNotFoundError, ValueError: see the dataset's function.

    >>> from rank4class import data
    >>> len(data.get("digits").class_names)
    10
    """
    options = {key: os.fspath(v) if isinstance(v, os.PathLike) else v for key, v in options.items()}
    dataset = DATASETS.build(name, **options)
    warn_of_skipped(dataset.skipped)
    return dataset


def warn_of_skipped(messages):
    """Logs how many rows or examples were skipped, and the reasons for the first ones."""
    if messages:
        logging.warning("%d left out, the first: %s", len(messages), "; ".join(messages[:3]))

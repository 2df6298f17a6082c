"""Datasets by name."""

import difflib
import inspect

from rank4class.data import image_datasets, text_datasets

DATASETS = {
    "digits": image_datasets.digits,
    "cifar10": image_datasets.cifar10,
    "imagenet": image_datasets.imagenet,
    "goemotions": text_datasets.goemotions,
    "mind": text_datasets.mind,
}


def get(name, **knobs):
    """Returns the dataset of that name.

    Args:
      name: one of `DATASETS`.
      **knobs: the dataset's own, such as `path`.

    Raises:
      ValueError: see `check`.
      FileNotFoundError, ValueError: as the dataset's function says.

    >>> len(get("digits").class_names)
    10
    """
    check(name, knobs)
    return DATASETS[name](**knobs)


def check(name, knobs):
    """Raises ValueError for an unknown name, or a knob that the dataset does not have."""
    if name not in DATASETS:
        close = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown dataset {name!r}{hint}; there are: {', '.join(DATASETS)}")
    known = tuple(inspect.signature(DATASETS[name]).parameters)
    for knob in knobs:
        if knob not in known:
            raise ValueError(f"dataset {name!r} has no knob {knob!r}; it has: {', '.join(known) or 'none'}")

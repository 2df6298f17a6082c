"""Datasets by name."""

import difflib
import inspect
import os

from absl import logging

from rank4class.data import (
    embedded_digits,
    goemotions,
    image_folder,
    imagenet,
    letor,
    mind,
    movielens,
    small_images,
    synthetic,
    synthetic_retrieval,
    text_file,
)

DATASETS = {
    "digits": small_images.digits,
    "mnist": small_images.mnist,
    "embedded_digits": embedded_digits.embedded_digits,
    "cifar10": small_images.cifar10,
    "imagenet": imagenet.imagenet,
    "image_folder": image_folder.image_folder,
    "goemotions": goemotions.goemotions,
    "mind": mind.mind,
    "movielens": movielens.movielens,
    "letor": letor.letor,
    "synthetic": synthetic.synthetic,
    "synthetic_retrieval": synthetic_retrieval.synthetic_retrieval,
    "text_file": text_file.text_file,
}


def get(name, **knobs):
    """Returns the dataset of that name; what was left out of it is logged.

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
    knobs = {knob: os.fspath(v) if isinstance(v, os.PathLike) else v for knob, v in knobs.items()}
    dataset = DATASETS[name](**knobs)
    warn_of_skipped(dataset.skipped)
    return dataset


def warn_of_skipped(messages):
    """Logs how many rows or examples were left out, and what is wrong with the first of them."""
    if messages:
        logging.warning("%d left out, the first: %s", len(messages), "; ".join(messages[:3]))


def knobs_of(name):
    """Returns the names of what can be set of a dataset.

    Raises:
      ValueError: an unknown name; the message lists the known ones.
    """
    if name not in DATASETS:
        close = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown dataset {name!r}{hint}; there are: {', '.join(DATASETS)}")
    return tuple(inspect.signature(DATASETS[name]).parameters)


def check(name, knobs):
    """Raises ValueError for an unknown name, or a knob that the dataset does not have."""
    known = knobs_of(name)
    for knob in knobs:
        if knob not in known:
            raise ValueError(f"dataset {name!r} has no knob {knob!r}; it has: {', '.join(known) or 'none'}")

"""Vectors of any number of classes, for tests and for scale."""

import numpy as np

from rank4class.data.dataset import Dataset, Split
from rank4class.data.registry import DATASETS

SHARES = {"train": 0.6, "validation": 0.2, "test": 0.2}


@DATASETS.register("synthetic")
def synthetic(num_classes=100, num_examples=10_000, width=32, spread=0.5, split_seed=0):
    """Vectors around the centres of their classes.

    A class's centre has `width` coordinates, normal of variance `1 / width`; an example adds the same times
    `spread`. In each split the classes have as many examples as one another, give or take one, the first
    classes first where there are fewer examples than classes.

    Args:
      num_classes: at least 2.
      num_examples: of the splits together, 60/20/20.
      width: length of the vectors, the feature `embedding` float32 `[N, width]`.
      spread: of a class; at 0 all its examples are its centre.
      split_seed: what is drawn hangs on it.

    Raises:
      ValueError: too few classes or examples, or a negative spread.

    >>> dataset = synthetic(num_classes=3, num_examples=20)
    >>> {name: np.bincount(split.labels).tolist() for name, split in dataset.splits.items()}
    {'train': [4, 4, 4], 'validation': [2, 1, 1], 'test': [2, 1, 1]}
    """
    if num_classes < 2:
        raise ValueError(f"data.num_classes {num_classes} is fewer than 2")
    if num_examples < 5:
        raise ValueError(f"data.num_examples {num_examples} is fewer than 5, and three splits need some each")
    if spread < 0.0:
        raise ValueError(f"data.spread {spread} is negative")
    rng = np.random.default_rng(split_seed)
    centres = _normal(rng, num_classes, width)
    splits = {}
    for name, share in SHARES.items():
        labels = rng.permutation(np.arange(round(share * num_examples), dtype=np.int32) % num_classes)
        vectors = centres[labels] + np.float32(spread) * _normal(rng, len(labels), width)
        splits[name] = Split({"embedding": vectors}, labels)
    return Dataset(tuple(f"class {i}" for i in range(num_classes)), splits)


def _normal(rng, count, width):
    return rng.normal(scale=width**-0.5, size=[count, width]).astype(np.float32)

"""Vectors of any number of classes, for tests and measurements of scale."""

import numpy as np

from rank4class.data.dataset import Dataset, Split
from rank4class.data.registry import DATASETS

FRACTIONS = {"train": 0.6, "validation": 0.2, "test": 0.2}


@DATASETS.register("synthetic")
def synthetic(
    num_classes: int = 100,
    num_examples: int = 10_000,
    width: int = 32,
    spread: float = 0.5,
    split_seed: int = 0,
) -> Dataset:
    r"""Vectors around the centers of their classes.

    $$x = c_y + \sigma z, \quad c_i, z \sim \mathcal N(0, I / d)$$

    In each split the numbers of examples of the classes differ by at most one. If there are fewer examples
    than classes, the first classes have one.

    Args:
      num_classes: number of classes, at least 2.
      num_examples: examples of all splits, 60/20/20, at least 5.
      width: $d$, length of the vectors, at least 1.
      spread: $\sigma$, at least 0.
      split_seed: seed of all draws, at least 0.

    Returns:
      A `Dataset` with the feature `embedding` float32 `[N, width]`.

    >>> dataset = synthetic(num_classes=3, num_examples=20)
    >>> {name: np.bincount(split.labels).tolist() for name, split in dataset.splits.items()}
    {'train': [4, 4, 4], 'validation': [2, 1, 1], 'test': [2, 1, 1]}
    """
    rng = np.random.default_rng(split_seed)
    centers = _normal(rng, num_classes, width)
    splits = {}
    for name, fraction in FRACTIONS.items():
        labels = rng.permutation(np.arange(round(fraction * num_examples), dtype=np.int32) % num_classes)
        vectors = centers[labels] + np.float32(spread) * _normal(rng, len(labels), width)
        splits[name] = Split({"embedding": vectors}, labels)
    return Dataset(tuple(f"class {i}" for i in range(num_classes)), splits)


def _normal(rng, count, width):
    return rng.normal(scale=width**-0.5, size=[count, width]).astype(np.float32)

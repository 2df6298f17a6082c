"""Instances with several relevant classes each, of any number of classes, for tests and for scale."""

import dataclasses

import numpy as np
import scipy.sparse

from rank4class.data.dataset import Dataset, draw_pairs
from rank4class.data.registry import DATASETS

AFFINITY = 2.0  # standard deviation over the classes; that of Gumbel's distribution is 1.28
POPULARITY = 1.0  # standard deviation of the logarithm
SPREAD = 0.5  # standard deviation of the logarithm of how many classes are relevant
FEWEST = 3  # relevant classes, so that there may be one for each split
CHUNK = 1 << 24  # scores at a time, some 300 MB with all that is made of them


@dataclasses.dataclass(frozen=True)
class Planted:
    """What the relevant classes are drawn from.

    Attributes:
      instances: float32 `[N, width]`.
      classes: float32 `[n, width]`.
      log_popularity: float32 `[n]`.
    """

    instances: np.ndarray
    classes: np.ndarray
    log_popularity: np.ndarray

    def affinity(self, rows):
        """Returns the dot products of some instances with all classes, float32 `[rows, n]`."""
        return self.instances[rows] @ self.classes.T


@DATASETS.register("synthetic_retrieval")
def synthetic_retrieval(
    num_classes=1000,
    num_examples=500,
    num_relevant=20,
    width=16,
    validation_fraction=0.1,
    test_fraction=0.1,
    split_seed=0,
):
    """Instances known by their ids alone, whose relevant classes follow from vectors that are not shown.

    Instances and classes have normal vectors, whose dot product is the affinity, and classes a popularity
    with a long tail (log-normal). The relevant classes of an instance are drawn one after the other
    without replacement, each with probability proportional to popularity times the exponential of the
    affinity. The splits are those of `dataset.draw_pairs`.

    40 s and 310 MB for 850,000 classes and 2,000 instances on one core.

    Args:
      num_classes: `n`, at least 10.
      num_examples: instances, of all splits together; most are in each.
      num_relevant: about how many classes are relevant to an instance, on average (log-normal, at least 3,
        at most half of all).
      width: coordinates of the vectors that are not shown.
      validation_fraction, test_fraction: how many of the pairs to draw, in (0, 1).
      split_seed: what is drawn hangs on it.

    Returns:
      A `Dataset` with the feature `id`, int32 `[N]`, and sparse labels float32 `[N, n]`.

    Raises:
      ValueError: too few classes or relevant ones, or too many of these; a share is too small or too large.

    >>> splits = synthetic_retrieval(num_classes=50, num_examples=20, num_relevant=5).splits
    >>> {name: split.labels.shape for name, split in splits.items()}
    {'train': (20, 50), 'validation': (8, 50), 'test': (7, 50)}
    """
    if num_classes < 10:
        raise ValueError(f"data.num_classes {num_classes} is fewer than 10")
    if not FEWEST <= num_relevant <= num_classes // 2:
        raise ValueError(
            f"data.num_relevant {num_relevant} is not from {FEWEST} to {num_classes // 2}, half the classes"
        )
    rng = np.random.default_rng([split_seed, 1])  # the pairs are drawn from the seed alone
    planted = plant(rng, num_classes, num_examples, width)
    relevant = _draw_relevant(rng, planted, num_relevant)
    shares = {"validation": validation_fraction, "test": test_fraction}
    splits = draw_pairs(relevant, shares, seed=split_seed)
    return Dataset(tuple(f"class {i}" for i in range(num_classes)), splits)


def plant(rng, num_classes, num_examples, width):
    """Returns the `Planted` vectors and popularity of so many classes and instances."""
    scale = (AFFINITY / width**0.5) ** 0.5  # of each coordinate: a dot product sums `width` of them squared
    instances, classes = (
        rng.normal(scale=scale, size=[count, width]).astype(np.float32)
        for count in (num_examples, num_classes)
    )
    return Planted(instances, classes, rng.normal(scale=POPULARITY, size=num_classes).astype(np.float32))


def _draw_relevant(rng, planted, num_relevant):
    """Returns a CSR array, float32 `[N, n]`, of 1 for each class that is relevant to an instance."""
    size, n = len(planted.instances), len(planted.classes)
    drawn = num_relevant * np.exp(rng.normal(-(SPREAD**2) / 2, SPREAD, size=size))
    counts = np.clip(np.round(drawn), FEWEST, n // 2).astype(int)
    step = max(1, CHUNK // n)
    own = [
        _first_to_come(rng, planted, slice(i, i + step), counts[i : i + step]) for i in range(0, size, step)
    ]
    indices = np.concatenate(own)
    ends = np.append(0, np.cumsum(counts))
    return scipy.sparse.csr_array((np.ones(len(indices), np.float32), indices, ends), shape=(size, n))


def _first_to_come(rng, planted, rows, counts):
    """Returns the relevant classes of some instances, sorted, one instance after the other.

    Of clocks that ring after exponential times of these rates, those that ring first are a draw without
    replacement in proportion to the rates: Gumbel's top K, on another scale.
    """
    rates = planted.affinity(rows)
    rates += planted.log_popularity
    np.exp(rates, out=rates)
    times = rng.standard_exponential(rates.shape, np.float32)
    times /= rates
    most = counts.max()
    first = np.argpartition(times, most, axis=1)[:, :most]
    order = np.argsort(np.take_along_axis(times, first, axis=1), axis=1)
    first = np.take_along_axis(first, order, axis=1)
    return np.concatenate([np.sort(row[:count]) for row, count in zip(first, counts, strict=True)])

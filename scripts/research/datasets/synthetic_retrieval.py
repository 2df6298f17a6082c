"""Instances with several relevant classes each, for tests and measurements of scale."""

import numpy as np
import scipy.sparse

from rank4class.data.dataset import Dataset, check_fractions, draw_pairs
from rank4class.data.registry import DATASETS

AFFINITY = 2.0  # standard deviation over the classes; the Gumbel distribution's is 1.28
POPULARITY = 1.0  # standard deviation of its logarithm
SPREAD = 0.5  # standard deviation of the logarithm of the number of relevant classes
MIN_RELEVANT = 3  # relevant classes per instance, one for each split
CHUNK = 1 << 24  # scores per step, which take some 300 MB


@DATASETS.register("synthetic_retrieval")
def synthetic_retrieval(
    num_classes: int = 1000,
    num_examples: int = 500,
    num_relevant: int = 20,
    width: int = 16,
    validation_fraction: float = 0.1,
    test_fraction: float = 0.1,
    split_seed: int = 0,
) -> Dataset:
    """Instances with an id as their only feature, whose relevant classes follow from hidden factors.

    Instances and classes have normal vectors, whose dot product is the affinity. The relevant classes of an
    instance are drawn without replacement, each with probability proportional to its log-normal popularity
    times the exponential of the affinity. `dataset.draw_pairs` splits them.

    Args:
      num_classes: `n`, at least 10.
      num_examples: instances of all splits together, at least 1; most are in each split.
      num_relevant: approximate mean number of relevant classes per instance, from 3 to half of all.
      width: length of the hidden vectors, at least 1.
      validation_fraction, test_fraction: fraction of the pairs to draw, in (0, 1).
      split_seed: seed of all draws, at least 0.

    Returns:
      A `Dataset` with the feature `id`, int32 `[N]`, and sparse labels float32 `[N, n]`.

    >>> splits = synthetic_retrieval(num_classes=50, num_examples=20, num_relevant=5).splits
    >>> {name: split.labels.shape for name, split in splits.items()}
    {'train': (20, 50), 'validation': (8, 50), 'test': (7, 50)}
    """
    fractions = check_fractions(validation_fraction, test_fraction)
    rng = np.random.default_rng([split_seed, 1])  # draw_pairs uses the seed itself
    factors = draw_factors(rng, num_classes, num_examples, width)
    relevant = _draw_relevant(rng, factors, num_relevant)
    splits = draw_pairs(relevant, fractions, seed=split_seed)
    return Dataset(tuple(f"class {i}" for i in range(num_classes)), splits)


def draw_factors(
    rng: np.random.Generator, num_classes: int, num_examples: int, width: int
) -> tuple[np.ndarray, ...]:
    """Returns the vectors of instances and of classes, and the logarithms of the classes' popularity."""
    scale = (AFFINITY / width**0.5) ** 0.5  # of a coordinate: the dot product sums `width` products
    instances, classes = (
        rng.normal(scale=scale, size=[count, width]).astype(np.float32)
        for count in (num_examples, num_classes)
    )
    return instances, classes, rng.normal(scale=POPULARITY, size=num_classes).astype(np.float32)


def _draw_relevant(rng, factors, num_relevant):
    """Returns a CSR array, float32 `[N, n]`, of 1 for each relevant class of an instance."""
    size, n = (len(each) for each in factors[:2])
    counts = num_relevant * np.exp(rng.normal(-(SPREAD**2) / 2, SPREAD, size=size))
    counts = np.clip(np.round(counts), MIN_RELEVANT, n // 2).astype(int)
    step = max(1, CHUNK // n)
    indices = np.concatenate(
        [_draw_classes(rng, factors, slice(i, i + step), counts[i : i + step]) for i in range(0, size, step)]
    )
    ends = np.append(0, np.cumsum(counts))
    return scipy.sparse.csr_array((np.ones(len(indices), np.float32), indices, ends), shape=(size, n))


def _draw_classes(rng, factors, rows, counts):
    """Returns the sorted relevant classes of some instances, concatenated.

    The smallest of exponential times are a draw in proportion to their rates (the Gumbel top-k trick).
    """
    instances, classes, log_popularity = factors
    rates = instances[rows] @ classes.T
    rates += log_popularity
    np.exp(rates, out=rates)
    times = rng.standard_exponential(rates.shape, np.float32)
    times /= rates
    most = counts.max()
    first = np.argpartition(times, most, axis=1)[:, :most]
    order = np.argsort(np.take_along_axis(times, first, axis=1), axis=1)
    first = np.take_along_axis(first, order, axis=1)
    return np.concatenate([np.sort(row[:count]) for row, count in zip(first, counts, strict=True)])

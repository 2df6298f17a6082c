"""Confidence intervals (95%) and tests over examples.

SciPy's `bootstrap` and `permutation_test` draw every example of every resample. The functions here draw
counts of equal values, which takes less time and memory.
"""

from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse
import scipy.stats

RESAMPLES = 2000  # of a bootstrap
PERMUTATIONS = 10_000  # of a permutation test
LEVEL = 0.05  # significance level of a test
MAX_UNITS = 20_000  # examples, or groups of them, that a bootstrap of sums draws
MAX_VALUES = 1_000  # distinct values that a bootstrap of an order draws
_Z = scipy.stats.norm.ppf(0.975)
ROUNDING = 1e-6  # of values in [0, 1] that are computed in float32
_BLOCK = 1 << 22  # numbers in memory at a time


def wilson(means: np.ndarray, counts: np.ndarray, quantile: float = _Z) -> np.ndarray:
    """Returns Wilson's interval for means of values in [0, 1], float64 `[..., 2]`; NaN for NaN.

    For values other than 0 and 1, which SciPy's `binomtest` refuses, it is conservative.

    Reference: Wilson (1927), "Probable inference, the law of succession, and statistical inference", eq. 5.
    """
    pull = quantile**2 / np.maximum(counts, 1)
    center = (means + pull / 2) / (1 + pull)
    half = np.sqrt(pull * (means * (1 - means) + pull / 4)) / (1 + pull)
    return np.clip(np.stack([center - half, center + half], axis=-1), 0.0, 1.0)


def mean_interval(
    values: np.ndarray, counts: np.ndarray, means: np.ndarray, *, bounded: bool
) -> list[float] | None:
    """Returns the interval of a metric's mean, `[low, high]`; None for infinite or equal unbounded values.

    Values that are all 0 or 1 have Wilson's interval. So have equal values in [0, 1], of which a bootstrap
    would claim certainty. Other values have that of the means `[R]` of the `resamples`. The values are `[V]`,
    with the number of examples of each. A metric in [0, 1] is `bounded`.
    """
    size = counts.sum()
    are_equal = np.unique(values).size == 1
    if bounded and (are_equal or np.isin(values, [0.0, 1.0]).all()):
        return wilson(counts @ values / size, size).tolist()
    if are_equal or np.isinf(values).any():
        return None
    return np.percentile(means, [2.5, 97.5]).tolist()


def resamples(counts: np.ndarray) -> Iterator[np.ndarray]:
    """Yields counts of distinct values in the resamples of a bootstrap, int `[R, V]`, `RESAMPLES` in all."""
    rng = np.random.default_rng(0)
    size = counts.sum()
    for rows in _blocks(RESAMPLES, len(counts)):
        yield rng.multinomial(size, counts / size, size=rows)


def resampled_sums(values: np.ndarray | scipy.sparse.csr_array) -> Iterator[np.ndarray]:
    """Yields the sums of the columns of values `[N, K]` in the resamples of a bootstrap, as blocks `[R, K]`.

    Of more than `MAX_UNITS` examples, it draws groups of examples: example `i` is in group `i % MAX_UNITS`.
    """
    if (examples := values.shape[0]) > MAX_UNITS:
        ids = np.arange(examples)
        values = scipy.sparse.csr_array((np.ones(examples), (ids % MAX_UNITS, ids))) @ values
    rng, (size, columns) = np.random.default_rng(0), values.shape
    for rows in _blocks(RESAMPLES, max(size, columns)):
        draws = [np.bincount(rng.integers(size, size=size), minlength=size) for _ in range(rows)]
        yield np.stack(draws) @ values


def by_value(
    statistic: Callable[[np.ndarray, np.ndarray], np.ndarray], values: np.ndarray, marks: np.ndarray
) -> tuple[float, list[float] | None]:
    """Returns a statistic of the order of examples, and its bootstrap interval; None for equal resamples.

    `statistic(counts, sums)` takes of each distinct value `[N]`, in ascending order, the number of examples
    and the sum of their marks `[N]`, both `[R, V]`, and returns `[R]`; NaN for a resample without a result.
    Of more than `MAX_VALUES` values, the bootstrap counts neighbors as equal.
    """
    _, groups = np.unique(values, return_inverse=True)
    estimate = statistic(np.bincount(groups)[None], np.bincount(groups, marks)[None])
    groups = groups // (1 + groups.max() // MAX_VALUES)
    (groups, marks), counts = np.unique([groups, marks], axis=1, return_counts=True)
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    results = [
        statistic(np.add.reduceat(draws, starts, axis=1), np.add.reduceat(draws * marks, starts, axis=1))
        for draws in resamples(counts)
    ]
    low, high = np.nanpercentile(np.concatenate(results), [2.5, 97.5])
    return float(estimate[0]), [float(low), float(high)] if low < high else None


def difference_interval(differences: np.ndarray, *, bounded: bool) -> tuple[float, float]:
    """Returns the interval of the mean of paired differences `[N]`, `(low, high)`; see `mean_interval`.

    Differences of -1, 0 and 1 have Bonett and Price's interval, whose width is never 0, others that of the
    paired bootstrap. It is NaN for one example, an infinite difference, or equal ones without a bound.

    Reference: Bonett & Price (2012), "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data".
    """
    size = len(differences)
    if size < 2 or not np.isfinite(differences).all():
        return float("nan"), float("nan")
    if bounded and np.isin(differences, [-1.0, 0.0, 1.0]).all():
        lower, higher = ((np.sum(differences == sign) + 1) / (size + 2) for sign in (-1.0, 1.0))
        center = higher - lower
        half = _Z * np.sqrt((lower + higher - center**2) / (size + 2))
        return float(max(center - half, -1.0)), float(min(center + half, 1.0))
    if np.ptp(differences) == 0.0:
        return float("nan"), float("nan")
    distinct, counts = np.unique(differences, return_counts=True)
    means = [draws @ distinct / size for draws in resamples(counts)]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    # Differences that cancel out may leave 1e-16, which would not be 0.
    return round(float(low), 9), round(float(high), 9)


def sign_test(differences: np.ndarray, *, permutations: int = PERMUTATIONS) -> float:
    """Returns the two-sided p-value of random signs of paired differences `[N]`; NaN if one is not finite.

    It is the permutation test of the mean: in each permutation the two runs change places on a random half of
    the examples. For differences of one size it is McNemar's exact test.
    """
    if not np.isfinite(differences).all():
        return float("nan")
    sizes, counts = np.unique(np.abs(differences[differences != 0.0]), return_counts=True)
    if not len(sizes):
        return 1.0
    if len(sizes) == 1:
        positive = int(np.sum(differences > 0.0))
        return float(scipy.stats.binomtest(positive, int(counts[0])).pvalue)
    rng = np.random.default_rng(0)
    observed = abs(differences.sum()) * (1.0 - 1e-9)  # sums of other orders differ in the last bits
    extreme = 0
    for rows in _blocks(permutations, len(sizes)):
        sums = (2 * rng.binomial(counts, 0.5, size=[rows, len(sizes)]) - counts) @ sizes
        extreme += int(np.sum(np.abs(sums) >= observed))
    return (1 + extreme) / (1 + permutations)


def _blocks(rows: int, columns: int) -> Iterator[int]:
    """Yields numbers of rows that sum to `rows`, of at most `_BLOCK` numbers each."""
    most = max(1, _BLOCK // columns)
    for start in range(0, rows, most):
        yield min(most, rows - start)

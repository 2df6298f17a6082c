"""Confidence intervals and tests for the figures of evaluations, sweeps and comparisons.

All intervals are 95% intervals. SciPy's `bootstrap` and `permutation_test` draw every example of every
resample. The functions here draw counts of equal values, which takes less time and memory.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats

RESAMPLES = 2000  # of a bootstrap
PERMUTATIONS = 10_000  # of a permutation test
LEVEL = 0.05  # significance level of a test
_LEAST = 1e-100  # least p-value
MAX_UNITS = 20_000  # examples, or groups of them, that a bootstrap of sums draws
_Z = scipy.stats.norm.ppf(0.975)
ROUNDING = 1e-6  # of values in [0, 1] that are computed in float32
_BLOCK = 1 << 22  # numbers in memory at a time


def mean_and_half_width(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean of a figure over seeds and half the width of its interval (Student's t).

    Args:
      values: one figure per seed, `[S]`.

    Returns:
      Two floats. The half width of a single value is NaN.

    >>> mean, half = mean_and_half_width([1.0, 2.0, 3.0])
    >>> round(mean, 2), round(half, 2)  # 4.303 standard errors of 1 / sqrt(3)
    (2.0, 2.48)
    """
    figures = np.asarray(values, np.float64)
    if len(figures) < 2:
        return float(figures.mean()), float("nan")
    half = scipy.stats.t.ppf(0.975, len(figures) - 1) * scipy.stats.sem(figures)
    return float(figures.mean()), float(half)


def wilson(means: np.ndarray, counts: np.ndarray, quantile: float = _Z) -> np.ndarray:
    """Returns Wilson's interval for the mean of values in [0, 1].

    The interval is Wilson's as published for values that are 0 or 1. Other values of the same mean vary
    less, so their interval is conservative. Its width is never 0, even if all values are equal. SciPy's
    `binomtest` accepts only values that are 0 or 1, and one class at a time.

    Args:
      means: float array of any shape; NaN gives NaN.
      counts: number of values, array that broadcasts to the shape of `means`.
      quantile: half the width of the interval in standard errors.

    Returns:
      float64 `[..., 2]`, in [0, 1].

    >>> wilson(np.array([0.5, 1.0, np.nan]), np.array([10, 3, 0])).round(4)
    array([[0.2366, 0.7634],
           [0.4385, 1.    ],
           [   nan,    nan]])

    References:
      Wilson (1927), "Probable inference, the law of succession, and statistical inference", eq. 5.
    """
    pull = quantile**2 / np.maximum(counts, 1)
    center = (means + pull / 2) / (1 + pull)
    half = np.sqrt(pull * (means * (1 - means) + pull / 4)) / (1 + pull)
    return np.clip(np.stack([center - half, center + half], axis=-1), 0.0, 1.0)


def mean_interval(
    values: np.ndarray, counts: np.ndarray, means: np.ndarray, *, bounded: bool
) -> list[float] | None:
    """Returns the interval of the mean of a metric over the examples.

    Values that are all 0 or 1 have Wilson's interval. So have equal values in [0, 1]: every resample of
    them has the same mean, so a bootstrap would claim certainty. Other values have the bootstrap's.

    Args:
      values: distinct values of the metric, float `[V]`.
      counts: number of examples of each, int `[V]`.
      means: of the resamples, float `[R]`; see `resamples`.
      bounded: whether the metric is in [0, 1].

    Returns:
      `[low, high]`; None if there is no interval, for an infinite value or for equal values without a
      bound.

    >>> values, counts = np.array([0.0, 1.0]), np.array([359, 1])
    >>> means = np.concatenate([draws @ values / 360 for draws in resamples(counts)])
    >>> low, high = mean_interval(values, counts, means, bounded=True)
    >>> round(100 * low, 2), round(100 * high, 2)
    (0.05, 1.56)
    """
    size = counts.sum()
    if bounded and (len(values) == 1 or np.isin(values, [0.0, 1.0]).all()):
        return wilson(counts @ values / size, size).tolist()
    if len(values) == 1 or np.isinf(values).any():
        return None
    return np.percentile(means, [2.5, 97.5]).tolist()


def resamples(counts: np.ndarray, *, seed: int = 0) -> Iterator[np.ndarray]:
    """Yields the counts of distinct values in the resamples of a bootstrap, int `[R, V]`, `RESAMPLES` in all.

    Examples with equal values are interchangeable, so resampling their counts resamples the examples.
    """
    rng, size = np.random.default_rng(seed), counts.sum()
    for rows in _blocks(RESAMPLES, len(counts)):
        yield rng.multinomial(size, counts / size, size=rows)


def resampled_sums(values: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """Returns the sums of columns over the examples of each resample of a bootstrap.

    It is for statistics that are functions of several sums, of values that differ from each other. Of more
    than `MAX_UNITS` examples, it draws groups of examples: example `i` is in group `i % MAX_UNITS`.

    Args:
      values: float `[N, K]`.
      seed: seed of the resampling.

    Returns:
      float64 `[RESAMPLES, K]`.

    >>> sums = resampled_sums(np.array([[1.0, 0.0], [1.0, 4.0]]))
    >>> sums[:, 0].tolist() == [2.0] * RESAMPLES, np.unique(sums[:, 1]).tolist()
    (True, [0.0, 4.0, 8.0])
    """
    if len(values) > MAX_UNITS:
        missing = -len(values) % MAX_UNITS
        padded = np.pad(values, [(0, missing), (0, 0)])
        values = padded.reshape(-1, MAX_UNITS, values.shape[1]).sum(axis=0)
    rng, size = np.random.default_rng(seed), len(values)
    sums = [
        np.stack([np.bincount(rng.integers(size, size=size), minlength=size) for _ in range(rows)]) @ values
        for rows in _blocks(RESAMPLES, size)
    ]
    return np.concatenate(sums)


def difference_interval(differences: np.ndarray, *, bounded: bool, seed: int = 0) -> tuple[float, float]:
    """Returns the interval of the mean of paired differences over the examples.

    Differences of metrics that are right or wrong are -1, 0 or 1. Their interval is Bonett and Price's, whose
    width is never 0. Other differences have the interval of the paired bootstrap.

    Args:
      differences: float `[N]`, finite or infinite.
      bounded: whether the metric is in [0, 1].
      seed: seed of the resampling.

    Returns:
      `(low, high)`; NaN if there is none: for one example, for an infinite difference, or for equal
      differences without a bound.

    >>> low, high = difference_interval(np.array([1.0] * 5 + [0.0] * 355), bounded=True)
    >>> round(100 * low, 2), round(100 * high, 2)
    (-0.04, 2.81)

    References:
      Bonett & Price (2012), "Adjusted Wald confidence interval for a difference of binomial proportions
      based on paired data".
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
    means = [draws @ distinct / size for draws in resamples(counts, seed=seed)]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    # Differences that cancel out may leave 1e-16, which would not be 0.
    return round(float(low), 9), round(float(high), 9)


def sign_test(differences: np.ndarray, *, seed: int = 0, permutations: int = PERMUTATIONS) -> float:
    """Returns the two-sided p-value of the hypothesis that paired differences have random signs.

    It is the permutation test of the mean difference: in each permutation the two runs change places on a
    random half of the examples. For differences of one size, such as those of errors, it is McNemar's exact
    test. Otherwise permutations are drawn.

    Args:
      differences: float `[N]`.
      seed: seed of the permutations.
      permutations: their number; the least p-value is near its reciprocal.

    Returns:
      A float in (0, 1]; NaN if a difference is not finite.

    >>> round(sign_test(np.array([1.0] * 7 + [-1.0] + [0.0] * 352)), 4)  # 2 (1 + 8) / 2^8
    0.0703
    """
    if not np.isfinite(differences).all():
        return float("nan")
    sizes, counts = np.unique(np.abs(differences[differences != 0.0]), return_counts=True)
    if not len(sizes):
        return 1.0
    if len(sizes) == 1:
        positive = int(np.sum(differences > 0.0))
        return float(scipy.stats.binomtest(positive, int(counts[0])).pvalue)
    rng = np.random.default_rng(seed)
    observed = abs(differences.sum()) * (1.0 - 1e-9)  # sums of other orders differ in the last bits
    extreme = 0
    for rows in _blocks(permutations, len(sizes)):
        sums = (2 * rng.binomial(counts, 0.5, size=[rows, len(sizes)]) - counts) @ sizes
        extreme += int(np.sum(np.abs(sums) >= observed))
    return (1 + extreme) / (1 + permutations)


@dataclasses.dataclass(frozen=True)
class Estimate:
    r"""A mean over crossed seeds and examples with its standard errors.

    Banerjee's interval is `center` $\pm \sqrt{\sum_k t_k^2 v_k}$, with Student's $t_k$ of the degrees of
    freedom of each variance $v_k$. It misses the true mean of normal values in at most the stated fraction of
    cases, whatever the sizes of the variances. An interval with Satterthwaite's degrees of freedom does not
    at the small levels of many comparisons: with 3 seeds, a test at 0.0036, Holm's first level for 14
    comparisons, rejects a true hypothesis up to three times too often.

    Attributes:
      mean: the mean.
      center: center of the interval: the mean, or with the pseudo-examples of `paired_estimate`.
      variances: pairs of a variance of the mean, positive, and its degrees of freedom; none if unknown.

    References:
      Banerjee (1960), "Approximate confidence interval for linear functions of means of k populations when
      the population variances are not equal".
    """

    mean: float
    center: float
    variances: tuple[tuple[float, float], ...]

    @property
    def error(self) -> float:
        """The standard error; NaN if it is unknown."""
        return math.sqrt(sum(variance for variance, _ in self.variances)) or math.nan

    def half_width(self, level: float = LEVEL) -> float:
        """Returns half the width of the interval that misses the true mean in a fraction `level` of cases."""
        if not self.variances:
            return math.nan
        quantiles = (scipy.special.stdtrit(freedom, level / 2) for _, freedom in self.variances)
        return math.sqrt(sum(t**2 * v for t, (v, _) in zip(quantiles, self.variances, strict=True)))

    def interval(self) -> tuple[float, float]:
        """Returns the interval `(low, high)`; NaN if the error is unknown."""
        return self.center - self.half_width(), self.center + self.half_width()

    def excludes_zero(self, level: float) -> bool:
        """Returns whether the interval of a level does not hold 0."""
        return abs(self.center) > self.half_width(level)

    def p_value(self) -> float:
        """Returns the two-sided p-value of the hypothesis that the true mean is 0; NaN without an error."""
        return self._level(abs(self.center))

    def equivalence_p_value(self, margin: float) -> float:
        """Returns the p-value of the hypothesis that the true mean is `margin` or more away from 0.

        It is the larger one of two one-sided tests (TOST), of `mean <= -margin` and of `mean >= margin`.

        >>> one = Estimate(0.1, 0.1, ((0.01, 10.0),))
        >>> round(one.equivalence_p_value(0.5), 4)  # t = (0.5 - 0.1) / 0.1 = 4
        0.0013

        References:
          Schuirmann (1987), "A comparison of the two one-sided tests procedure and the power approach for
          assessing the equivalence of average bioavailability".
        """
        distance = margin - abs(self.center)
        half = self._level(abs(distance)) / 2
        return half if distance > 0.0 else 1.0 - half

    def _level(self, half_width: float) -> float:
        """Returns the level whose interval has a half width."""
        if not self.variances:
            return math.nan
        if half_width >= self.half_width(_LEAST):
            return _LEAST
        if half_width <= self.half_width(1.0):  # 0, or with some versions of SciPy a rounding error above
            return 1.0
        log_level = scipy.optimize.brentq(
            lambda log_level: self.half_width(math.exp(log_level)) - half_width, math.log(_LEAST), 0.0
        )
        return math.exp(log_level)


def crossed_variances(values: np.ndarray, test_to_train: float = 0.0) -> tuple[tuple[float, float], ...]:
    r"""Returns the variances of a mean over crossed seeds and examples, with their degrees of freedom.

    Both are drawn at random: $x_{si} = m + a_s + b_i + e_{si}$. Of the mean squares $A$ of the seeds, $B$ of
    the examples and $E$ of the rest, the variances of the mean are

    $$v_1 = \frac{\max(A, E)}{S N}, \quad v_2 = \frac{\max(B - E, 0)}{S N}$$

    with $S - 1$ and $N - 1$ degrees of freedom, as in the analysis of studies in which several readers, here
    the seeds, judge the same cases (DBM, Obuchowski-Rockette).

    Percentiles of a bootstrap of two levels, which draws seeds and examples, miss the true mean too often:
    where the seeds differ most, they hold it in 84% of cases with 5 seeds, 78% with 3 and 63% with 2.

    If each seed draws another split of the same examples, the figures of the seeds are correlated. Nadeau and
    Bengio's correction multiplies $v_1$ by $1 + S n_{test} / n_{train}$.

    Args:
      values: float `[S, N]`, finite. With one seed or one example, only the other axis counts.
      test_to_train: $n_{test} / n_{train}$ of seeds that draw splits of the same examples.

    Returns:
      Pairs of a variance and its degrees of freedom, without variances of 0 and those of rounding errors.

    >>> crossed_variances(np.array([[1.0, 2.0, 3.0]]))  # of one seed
    ((0.3333333333333333, 2.0),)

    References:
      Hillis (2007), "A comparison of denominator degrees of freedom methods for multiple observer ROC
      analysis". Owen (2007), "The pigeonhole bootstrap". Nadeau & Bengio (2003), "Inference for the
      generalization error".
    """
    seeds, examples = values.shape
    of_seeds, of_examples, rest = _mean_squares(values) / values.size
    correction = 1.0 + seeds * test_to_train
    pairs = [(correction * max(of_seeds, rest), seeds - 1), (of_examples - rest, examples - 1)]
    rounding = (8.0 * np.finfo(np.float64).eps * np.abs(values).max()) ** 2
    return tuple((float(variance), float(freedom)) for variance, freedom in pairs if variance > rounding)


def _mean_squares(values: np.ndarray) -> np.ndarray:
    """Returns the mean squares of seeds, examples and rest of values `[S, N]`; 0 where there is one."""
    seeds, examples = values.shape
    if 1 in values.shape:
        square = values.var(ddof=1)
        return np.array([square, 0.0, 0.0] if examples == 1 else [0.0, square, 0.0])
    by_seed, by_example = values.mean(axis=1), values.mean(axis=0)
    rest = np.sum((values - by_seed[:, None] - by_example + values.mean()) ** 2)
    squares = examples * by_seed.var(ddof=1), seeds * by_example.var(ddof=1)
    return np.array([*squares, rest / ((seeds - 1) * (examples - 1))])


def crossed_interval(values: np.ndarray, *, bounded: bool, test_to_train: float = 0.0) -> list[float] | None:
    """Returns the interval of the mean of a metric over seeds and examples.

    Values in [0, 1] have Wilson's interval for the number of independent values that would have the standard
    error of `crossed_variances`. If all values are equal, it is the number of examples.

    Args:
      values: float `[S, N]`, or `[S, 1]` for one figure per seed.
      bounded: whether the metric is in [0, 1].
      test_to_train: see `crossed_variances`.

    Returns:
      `[low, high]`; None if there is no interval: for one value, for an infinite value, or for equal values
      without a bound.

    >>> errors = np.zeros([5, 360])
    >>> low, high = crossed_interval(errors, bounded=True)
    >>> round(100 * low, 2), round(100 * high, 2)  # 0 errors of 360 examples
    (0.0, 1.06)

    References:
      Korn & Graubard (1998), "Confidence intervals for proportions with small expected number of positive
      counts estimated from survey data". Dean & Pagano (2015), "Evaluating confidence interval methods for
      binomial proportions in clustered surveys".
    """
    size, examples = values.size, values.shape[1]
    if size < 2 or not np.isfinite(values).all():
        return None
    mean = float(values.mean())
    estimate = Estimate(mean, mean, crossed_variances(values, test_to_train))
    if not estimate.variances:
        return wilson(np.array(mean), np.array(examples)).tolist() if bounded and examples > 1 else None
    if not bounded:
        return [mean - estimate.half_width(), mean + estimate.half_width()]
    count = mean * (1.0 - mean) / estimate.error**2 * size / (size - 1)
    quantile = estimate.half_width() / estimate.error
    return wilson(np.array(mean), np.array(count), quantile).tolist()


def paired_estimate(differences: np.ndarray, *, bounded: bool, test_to_train: float = 0.0) -> Estimate:
    """Returns the mean of paired differences over seeds and examples with its standard errors.

    Differences of metrics that are right or wrong are -1, 0 or 1. One pseudo-example of -1 and one of 1 join
    them, as in Bonett and Price's interval, beside the number of independent differences that would have the
    standard error of `crossed_variances`. If all differences are equal, it is the number of examples.

    Args:
      differences: float `[S, N]`, or `[S, 1]` for one figure per seed.
      bounded: whether the metric is in [0, 1].
      test_to_train: see `crossed_variances`.

    Returns:
      An estimate, without variances if there is a single difference, or one that is not finite.

    >>> differences = np.zeros([5, 360])
    >>> differences[:, :5] = 1.0
    >>> estimate = paired_estimate(differences, bounded=True)
    >>> round(estimate.center, 4), round(estimate.error, 4)  # 5 / 362, and 0.0140 +- 1.97 * 0.0073
    (0.0138, 0.0073)
    """
    with np.errstate(invalid="ignore"):  # infinite
        mean = float(differences.mean())
    if differences.size < 2 or not np.isfinite(differences).all():
        return Estimate(mean, mean, ())
    estimate = Estimate(mean, mean, crossed_variances(differences, test_to_train))
    examples = differences.shape[1]
    if not (bounded and examples > 1 and np.isin(differences, [-1.0, 0.0, 1.0]).all()):
        return estimate
    variances = estimate.variances or ((1.0, examples - 1.0),)
    total = sum(variance for variance, _ in variances)
    count = differences.var(ddof=1) / total if estimate.variances else examples
    center = mean * count / (count + 2)
    squares = (np.mean(differences**2) * count + 2) / (count + 2)
    scale = float(squares - center**2) / (count + 2) / total
    return Estimate(mean, float(center), tuple((float(scale * v), freedom) for v, freedom in variances))


def paired_p_value(differences: np.ndarray, estimate: Estimate, comparisons: int = 1) -> float:
    """Returns the two-sided p-value of the hypothesis that the true mean of paired differences is 0.

    Args:
      differences: float `[S, N]`. One seed has the p-value of `sign_test`, which is exact.
      estimate: see `paired_estimate`.
      comparisons: number of comparisons in the family. With more than 125, the test draws more permutations,
        since the least p-value has to pass the first level of a correction such as Holm's.

    Returns:
      A float in (0, 1]; NaN if there is none.
    """
    if len(differences) == 1 < differences.size:
        return sign_test(differences[0], permutations=max(PERMUTATIONS, math.ceil(4 * comparisons / LEVEL)))
    return estimate.p_value()


def unshared_error(values: np.ndarray, test_to_train: float = 0.0) -> float:
    """Returns the standard error of the mean of a cell without the variation that all cells share.

    It is the root mean square of the standard errors of all pairs' differences, divided by the root of 2.

    Args:
      values: float `[C, S, N]`: at least 2 cells, seeds and examples.
      test_to_train: see `crossed_variances`.

    >>> first, second = np.zeros([1, 4]), np.array([[0.0, 1.0, 0.0, 1.0]])
    >>> round(unshared_error(np.stack([first, second])) ** 2, 4)  # half of (1 / 3) / 4
    0.0417
    """
    if values[0].size < 2 or not np.isfinite(values).all():
        return math.nan
    apart = values - values.mean(axis=0)
    of_seeds, of_examples, rest = np.sum([_mean_squares(cell) for cell in apart], axis=0)
    correction = 1.0 + values.shape[1] * test_to_train
    variance = correction * max(of_seeds, rest) + max(of_examples - rest, 0.0)
    return math.sqrt(variance / apart[0].size / (len(values) - 1))


def _blocks(rows: int, columns: int) -> Iterator[int]:
    """Yields numbers of rows that sum to `rows`, of at most `_BLOCK` numbers each."""
    most = max(1, _BLOCK // columns)
    for start in range(0, rows, most):
        yield min(most, rows - start)

"""Inference on the cells of a grid: 95% intervals over crossed seeds and examples, multiple comparisons."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.special
import scipy.stats

from rank4class.pipelines.evaluation import statistics

POWER = 0.8
MOST_SEEDS = MOST_TIMES = 1_000  # most seeds and multiples of the examples of `detectable`
POOLING = 0.25  # level of the test of equal variances, after Bancroft & Han (1983): refuse early
_LEAST = 1e-100  # least p-value
_UNKNOWN = ((math.nan, 1.0), (math.nan, 1.0))


@dataclasses.dataclass(frozen=True)
class Estimate:
    r"""A mean over crossed seeds and examples with its standard errors.

    Its interval is `center` $\pm \sqrt{\sum_k t_k^2 v_k}$ for variances of the mean $v_k$ with Student's
    $t_k$: conservative for normal values, whatever the sizes of the variances (Banerjee, 1960, "Approximate
    confidence interval for linear functions of means of k populations").
    """

    mean: float
    center: float  # the mean, or that with the pseudo-examples of `paired_estimate`
    # Of the seeds and of the examples, with their degrees of freedom; NaN if both are 0 or unknown.
    variances: tuple[tuple[float, float], tuple[float, float]] = _UNKNOWN
    rest: float = 0.0  # the part of the first that more examples reduce

    @property
    def error(self) -> float:
        """The standard error; NaN if it is unknown."""
        return math.sqrt(sum(variance for variance, _ in self.variances))

    @property
    def is_known(self) -> bool:
        """Whether there is a standard error, and so an interval."""
        return not math.isnan(self.error)

    def half_width(self, level: float = statistics.LEVEL) -> float:
        """Returns half the width of the interval of a level."""
        return _half_width(self.variances, level / 2)

    def interval(self) -> tuple[float, float]:
        """Returns the interval `(low, high)`; NaN if the error is unknown."""
        return self.center - self.half_width(), self.center + self.half_width()

    def excludes_zero(self, level: float) -> bool:
        """Returns whether the interval of a level does not hold 0."""
        return abs(self.center) > self.half_width(level)

    def p_value(self) -> float:
        """Returns the two-sided p-value of a true mean of 0; NaN without an error."""
        return self._level(abs(self.center))

    def equivalence_p_value(self, margin: float) -> float:
        """Returns the larger of the one-sided p-values of a true mean `margin` or more away from 0."""
        distance = margin - abs(self.center)
        half = self._level(abs(distance)) / 2
        return half if distance > 0.0 else 1.0 - half

    def _level(self, half_width: float) -> float:
        """Returns the level whose interval has a half width."""
        if not self.is_known:
            return math.nan
        if half_width >= self.half_width(_LEAST):
            return _LEAST
        if half_width <= self.half_width(1.0):  # 0, or with some versions of SciPy a rounding error above
            return 1.0
        log_level = scipy.optimize.brentq(
            lambda log_level: self.half_width(math.exp(log_level)) - half_width, math.log(_LEAST), 0.0
        )
        return math.exp(log_level)


def _half_width(variances: Iterable[tuple[Any, Any]], tail: float) -> Any:
    r"""Returns $\sqrt{\sum_k t_k^2 v_k}$ of variances with their degrees of freedom."""
    return np.sqrt(sum(scipy.special.stdtrit(freedom, tail) ** 2 * v for v, freedom in variances))


def pooled_variance(values: np.ndarray, *, bounded: bool = False) -> tuple[float, float] | None:
    r"""Returns the variance of a seed's mean that cells share, of values `[C, S, N]`, and degrees of freedom.

    It assumes that the means $m_{cs}$ of all cells have one variance over the seeds, and each pair of cells
    one covariance, as of differences from one baseline. It is the mean over the cells of their variances,

    $$\frac{\sum_s (m_{.s} - m_{..})^2}{S - 1} +
      \frac{\sum_{cs} (m_{cs} - m_{c.} - m_{.s} + m_{..})^2}{C (S - 1)}$$

    with $S - 1$ and $(C - 1)(S - 1)$ degrees of freedom, joined by Satterthwaite's approximation. It is None
    for fewer than three cells, and if Cochran's test finds the largest share of a cell in the second sum too
    large at level `POOLING`. Cells whose seeds are all equal or not finite are left out. Of values in [0, 1]
    (`bounded`) the variance is that over $m (1 - m)$ for the mean $m$ of a cell. See Cochran (1941), "The
    distribution of the largest of a set of estimated variances as a fraction of their total".
    """
    with np.errstate(invalid="ignore"):  # infinite
        values = values[np.isfinite(values).all(axis=(1, 2)) & _varies(values)]
    cells, seeds = values.shape[:2]
    if cells < 3 or seeds < 2:
        return None
    means = values.mean(axis=2)
    if bounded:
        rates = means.mean(axis=1, keepdims=True)
        means = means / np.sqrt(rates * (1.0 - rates))
    apart = (means - means.mean(axis=0)).var(axis=1, ddof=1)
    if apart.sum() == 0.0 or np.mean(_largest_shares(cells, seeds) >= apart.max() / apart.sum()) < POOLING:
        return None
    shared = means.mean(axis=0).var(ddof=1)
    unshared = apart.mean()
    squares = (shared**2 + unshared**2 / (cells - 1)) / (seeds - 1)
    return float(shared + unshared), float((shared + unshared) ** 2 / squares)


def _varies(values: np.ndarray) -> np.ndarray:
    """Returns whether seeds differ, of values `[..., S, N]`."""
    rounding = 8.0 * np.finfo(np.float64).eps * np.abs(values).max(axis=(-2, -1))
    return np.ptp(values, axis=-2).max(axis=-1) > rounding


@functools.lru_cache
def _largest_shares(cells: int, seeds: int) -> np.ndarray:
    """Returns draws of the statistic of Cochran's test from cells of equal variance, float64 `[2000]`."""
    means = np.random.default_rng(0).normal(size=[2000, cells, seeds])
    apart = (means - means.mean(axis=1, keepdims=True)).var(axis=2, ddof=1)
    return apart.max(axis=1) / apart.sum(axis=1)


def crossed_variances(
    values: np.ndarray, test_to_train: float = 0.0, pooled: tuple[float, float] | None = None
) -> tuple[tuple[float, float], tuple[float, float]]:
    r"""Returns the variances of the mean of values `[S, N]` over seeds and examples, and degrees of freedom.

    Both are drawn at random. Of the mean squares $A$ of the seeds, $B$ of the examples and $E$ of the rest,

    $$v_1 = \frac{A}{S N}, \quad v_2 = \frac{\max(B - E, E - A, 0)}{S N}$$

    with $S - 1$ and $N - 1$ degrees of freedom: their sum is unbiased, but at least $E / S N$. Of two seeds
    without `pooled`, $A$ is at least $E$: a small difference of two is too often chance. See Hillis
    (2007), "A comparison of denominator degrees of freedom methods for multiple observer ROC analysis". The
    variance of several cells, if `pooled` has it, replaces $A / N$. If each seed draws another split of the
    same examples, `test_to_train` is $n_{test} / n_{train}$: the correction of Nadeau & Bengio (2003,
    "Inference for the generalization error") multiplies $v_1$ by $1 + S n_{test} / n_{train}$.
    """
    seeds, examples = values.shape
    of_seeds, of_examples, rest = _mean_squares(values) / values.size
    freedom = seeds - 1.0
    if pooled is not None and _varies(values):
        of_seeds = pooled[0] / seeds
        freedom = pooled[1]
    elif seeds == 2:
        of_seeds = max(of_seeds, rest)
    of_examples = max(of_examples - rest, rest - of_seeds, 0.0)
    of_seeds *= 1.0 + seeds * test_to_train
    rounding = (8.0 * np.finfo(np.float64).eps * np.abs(values).max()) ** 2
    if of_seeds + of_examples <= rounding:
        return _UNKNOWN
    return (float(of_seeds), max(freedom, 1.0)), (float(of_examples), max(examples - 1.0, 1.0))


def _mean_squares(values: np.ndarray) -> np.ndarray:
    """Returns the mean squares of seeds, examples and rest of values `[S, N]`; 0 where there is one."""
    seeds, examples = values.shape
    if 1 in values.shape:
        square = values.var(ddof=1)
        return np.array([square, 0.0, 0.0] if examples == 1 else [0.0, square, 0.0])
    by_seed = values.mean(axis=1)
    by_example = values.mean(axis=0)
    rest = np.sum((values - by_seed[:, None] - by_example + values.mean()) ** 2)
    squares = examples * by_seed.var(ddof=1), seeds * by_example.var(ddof=1)
    return np.array([*squares, rest / ((seeds - 1) * (examples - 1))])


def crossed_interval(
    values: np.ndarray,
    *,
    bounded: bool,
    test_to_train: float = 0.0,
    pooled: tuple[float, float] | None = None,
) -> list[float] | None:
    """Returns the interval of the mean of a metric, values `[S, N]`, or `[S, 1]` for one figure per seed.

    Values in [0, 1] (`bounded`) have Wilson's interval for the number of independent values that would have
    the standard error of `crossed_variances`, or of examples if all are equal. Of other values, none of which
    is negative, no end is negative. It is None for one value, an infinite one, or equal ones without a bound;
    `pooled` is that of `pooled_variance`. See Dean & Pagano (2015), "Evaluating confidence interval methods
    for binomial proportions in clustered surveys".
    """
    examples = values.shape[1]
    if values.size < 2 or not np.isfinite(values).all():
        return None
    mean = float(values.mean())
    if bounded and pooled is not None:
        pooled = mean * (1.0 - mean) * pooled[0], pooled[1]
    estimate = Estimate(mean, mean, crossed_variances(values, test_to_train, pooled))
    if not estimate.is_known:
        has_bound = bounded and examples > 1
        return statistics.wilson(np.array(mean), np.array(examples)).tolist() if has_bound else None
    if not bounded:
        low, high = estimate.interval()
        return [max(low, 0.0) if values.min() >= 0.0 else low, high]
    count = mean * (1.0 - mean) / estimate.error**2
    quantile = estimate.half_width() / estimate.error
    return statistics.wilson(np.array(mean), np.array(count), quantile).tolist()


def paired_estimate(
    differences: np.ndarray,
    *,
    bounded: bool,
    test_to_train: float = 0.0,
    pooled: tuple[float, float] | None = None,
) -> Estimate:
    """Returns the mean of paired differences with its standard errors; see `crossed_interval`.

    Differences of metrics that are right or wrong are -1, 0 or 1. One pseudo-example of -1 and one of 1 join
    them, as in Bonett and Price's interval, beside the number of independent differences that would have the
    standard error of `crossed_variances`, or of examples if all are equal.
    """
    with np.errstate(invalid="ignore"):  # infinite
        mean = float(differences.mean())
    if differences.size < 2 or not np.isfinite(differences).all():
        return Estimate(mean, mean)
    variances = crossed_variances(differences, test_to_train, pooled)
    rest = min(float(_mean_squares(differences)[2]) / differences.size, variances[0][0])
    estimate = Estimate(mean, mean, variances, rest)
    examples = differences.shape[1]
    if not (bounded and examples > 1 and np.isin(differences, [-1.0, 0.0, 1.0]).all()):
        return estimate
    count = differences.var(ddof=1) / sum(variance for variance, _ in variances)
    if not estimate.is_known:  # all are equal
        count = examples
        rest = 0.0
        variances = ((0.0, 1.0), (1.0, examples - 1.0))
    center = mean * count / (count + 2)
    squares = (np.mean(differences**2) * count + 2) / (count + 2)
    scale = float(squares - center**2) / (count + 2) / sum(variance for variance, _ in variances)
    of_seeds, of_examples = ((float(scale * variance), freedom) for variance, freedom in variances)
    return Estimate(mean, float(center), (of_seeds, of_examples), scale * rest)


def paired_p_value(differences: np.ndarray, estimate: Estimate, comparisons: int = 1) -> float:
    """Returns the two-sided p-value of paired differences; for one seed, that of permutations."""
    if len(differences) == 1 < differences.size:
        # The least p-value has to pass Holm's first level.
        permutations = max(statistics.PERMUTATIONS, math.ceil(4 * comparisons / statistics.LEVEL))
        return statistics.sign_test(differences[0], permutations=permutations)
    return estimate.p_value()


def unshared_error(values: np.ndarray, test_to_train: float = 0.0) -> float:
    """Returns the standard error of a cell's mean, of values `[C, S, N]`, without the variation all share."""
    if values[0].size < 2 or not np.isfinite(values).all():
        return math.nan
    apart = values - values.mean(axis=0)
    of_seeds, of_examples, rest = np.sum([_mean_squares(cell) for cell in apart], axis=0)
    correction = 1.0 + values.shape[1] * test_to_train
    variance = correction * of_seeds + max(of_examples - rest, 0.0)
    return math.sqrt(variance / apart[0].size / (len(values) - 1))


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Returns p-values adjusted for the number of tests (Holm, 1979), at most 1; NaN is no test."""
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values)
    steps = values[order] * (np.sum(~np.isnan(values)) - np.arange(len(values)))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)  # NaN is last
    return adjusted


def detectable(estimate: Estimate, seeds: int, counts: np.ndarray, level: float) -> np.ndarray:
    r"""Returns the least true differences that a test finds in 80% of cases, by the number of seeds.

    Each is the half width of the interval of a level, and that of 60% (Sokal & Rohlf, 1995, "Biometry",
    section 9.8). With the number $S$ of seeds, from the $S_0$ seeds of the estimate (at least 2), the
    variance of the seeds falls by $S_0 / S$, and its degrees of freedom grow by $(S - 1) / (S_0 - 1)$.
    """
    (variance, freedom), of_examples = estimate.variances
    of_seeds = variance * seeds / counts, freedom * (counts - 1) / (seeds - 1)
    return _found((of_seeds, of_examples), level)


def detectable_with_examples(estimate: Estimate, examples: np.ndarray, level: float) -> np.ndarray:
    r"""Returns the least true differences that a test finds in 80% of cases, by the number of examples.

    They are those of `detectable` with the seeds of the estimate. Of $N_0$ examples, the first number, `rest`
    $= E / S N_0$ and the variance of the examples fall by $N_0 / N$, with $N - 1$ degrees of freedom; the
    other variance over the seeds stays, $\sigma_s^2 / S$ of $E[A] = N_0 \sigma_s^2 + \sigma_e^2$.
    """
    (variance, freedom), (of_examples, _) = estimate.variances
    left = examples[0] / examples
    of_seeds = variance - estimate.rest * (1.0 - left), freedom
    return _found((of_seeds, (of_examples * left, np.maximum(examples - 1.0, 1.0))), level)


def _found(variances: Iterable[tuple[Any, Any]], level: float) -> Any:
    return sum(_half_width(variances, tail) for tail in (level / 2, 1.0 - POWER))


def expected_best(error: float, cells: int) -> float:
    r"""Returns how far the best of equal cells is expected beyond their common mean, by chance alone.

    It is the expectation of the largest of $m$ normal values of mean 0 and standard deviation `error`,
    $\sigma \int_0^\infty (1 - \Phi(z)^m - (1 - \Phi(z))^m) dz$.

    >>> round(expected_best(1.0, 1), 4), round(expected_best(1.0, 2), 4), round(expected_best(1.0, 15), 4)
    (0.0, 0.5642, 1.7359)
    """

    def tails(z: float) -> float:
        below = scipy.stats.norm.cdf(z)
        return 1.0 - below**cells - (1.0 - below) ** cells

    return float(error * scipy.integrate.quad(tails, 0.0, 10.0)[0])

"""Inference on the cells of a grid: 95% intervals over crossed seeds and examples, multiple comparisons."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.special
import scipy.stats

from rank4class.pipelines.evaluation import statistics

POWER = 0.8
MOST_SEEDS = 1_000
_LEAST = 1e-100  # least p-value


@dataclasses.dataclass(frozen=True)
class Estimate:
    r"""A mean over crossed seeds and examples with its standard errors.

    Its interval is `center` $\pm \sqrt{\sum_k t_k^2 v_k}$ for variances of the mean $v_k$ with Student's
    $t_k$: conservative for normal values, whatever the sizes of the variances (Banerjee, 1960, "Approximate
    confidence interval for linear functions of means of k populations").
    """

    mean: float
    center: float  # the mean, or that with the pseudo-examples of `paired_estimate`
    variances: tuple[tuple[float, float], ...]  # each positive, with its degrees of freedom; none if unknown

    @property
    def error(self) -> float:
        """The standard error; NaN if it is unknown."""
        return math.sqrt(sum(variance for variance, _ in self.variances)) or math.nan

    def half_width(self, level: float = statistics.LEVEL) -> float:
        """Returns half the width of the interval of a level."""
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
        """Returns the two-sided p-value of a true mean of 0; NaN without an error."""
        return self._level(abs(self.center))

    def equivalence_p_value(self, margin: float) -> float:
        """Returns the larger of the one-sided p-values of a true mean `margin` or more away from 0."""
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
    r"""Returns the variances of the mean of values `[S, N]` over seeds and examples, and degrees of freedom.

    Both are drawn at random. Of the mean squares $A$ of the seeds, $B$ of the examples and $E$ of the rest,

    $$v_1 = \frac{\max(A, E)}{S N}, \quad v_2 = \frac{\max(B - E, 0)}{S N}$$

    with $S - 1$ and $N - 1$ degrees of freedom, as for several readers of the same cases (Hillis, 2007, "A
    comparison of denominator degrees of freedom methods for multiple observer ROC analysis"). If each seed
    draws another split of the same examples, `test_to_train` is $n_{test} / n_{train}$: the correction of
    Nadeau & Bengio (2003, "Inference for the generalization error") multiplies $v_1$ by
    $1 + S n_{test} / n_{train}$.
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
    """Returns the interval of the mean of a metric, values `[S, N]`, or `[S, 1]` for one figure per seed.

    Values in [0, 1] (`bounded`) have Wilson's interval for the number of independent values that would have
    the standard error of `crossed_variances`, or of examples if all are equal. It is None for one value, an
    infinite one, or equal ones without a bound. See Dean & Pagano (2015), "Evaluating confidence interval
    methods for binomial proportions in clustered surveys".
    """
    size, examples = values.size, values.shape[1]
    if size < 2 or not np.isfinite(values).all():
        return None
    mean = float(values.mean())
    estimate = Estimate(mean, mean, crossed_variances(values, test_to_train))
    if not estimate.variances:
        has_bound = bounded and examples > 1
        return statistics.wilson(np.array(mean), np.array(examples)).tolist() if has_bound else None
    if not bounded:
        return list(estimate.interval())
    count = mean * (1.0 - mean) / estimate.error**2 * size / (size - 1)
    quantile = estimate.half_width() / estimate.error
    return statistics.wilson(np.array(mean), np.array(count), quantile).tolist()


def paired_estimate(differences: np.ndarray, *, bounded: bool, test_to_train: float = 0.0) -> Estimate:
    """Returns the mean of paired differences with its standard errors; see `crossed_interval`.

    Differences of metrics that are right or wrong are -1, 0 or 1. One pseudo-example of -1 and one of 1 join
    them, as in Bonett and Price's interval, beside the number of independent differences that would have the
    standard error of `crossed_variances`, or of examples if all are equal.
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
    variance = correction * max(of_seeds, rest) + max(of_examples - rest, 0.0)
    return math.sqrt(variance / apart[0].size / (len(values) - 1))


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Returns p-values adjusted for the number of tests (Holm, 1979), at most 1; NaN is no test."""
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values)
    steps = values[order] * (np.sum(~np.isnan(values)) - np.arange(len(values)))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)  # NaN is last
    return adjusted


def detectable(estimate: Estimate, seeds: int, level: float) -> np.ndarray:
    r"""Returns the least true difference that a test finds in 80% of cases, by the number of seeds from 0 on.

    The variance of the seeds falls with their number $S$, from the $S_0$ seeds of the estimate (at least 2):

    $$\delta(S) = h_{1 - \alpha / 2}(S) + h_{0.8}(S), \quad
      h_q(S)^2 = t_{q, S - 1}^2 \frac{S_0 v_1}{S} + t_{q, N - 1}^2 v_2$$

    with quantiles $t_{q, \nu}$ of Student's t (Sokal & Rohlf, 1995, "Biometry", section 9.8).
    """
    counts = np.arange(2, MOST_SEEDS + 1)
    width = np.zeros(len(counts)) if estimate.variances else np.full(len(counts), np.nan)
    for tail in (level / 2, 1.0 - POWER):
        squares = np.zeros(len(counts))
        for variance, freedom in estimate.variances:
            of_seeds = freedom == seeds - 1
            variances = variance * seeds / counts if of_seeds else variance
            squares += scipy.special.stdtrit(counts - 1.0 if of_seeds else freedom, tail) ** 2 * variances
        width += np.sqrt(squares)
    return np.concatenate([[np.inf, np.inf], width])


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

"""Comparisons of several cells: adjusted p-values, their power, and the best of cells that are equal."""

from collections.abc import Sequence

import numpy as np
import scipy.integrate
import scipy.special
import scipy.stats

from rank4class.pipelines.evaluation.statistics import Estimate

POWER = 0.8
MOST_SEEDS = 1_000


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Returns p-values that are adjusted for the number of tests of their family.

    If the tests with adjusted values of at most a level are rejected, a true hypothesis is among them in at
    most that fraction of the families. NaN stays NaN and does not count as a test.

    Args:
      p_values: float `[K]`.

    Returns:
      float64 `[K]`, at most 1.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])

    References:
      Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values)
    steps = values[order] * (np.sum(~np.isnan(values)) - np.arange(len(values)))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)  # NaN is last
    return adjusted


def detectable(estimate: Estimate, seeds: int, level: float) -> np.ndarray:
    r"""Returns the least true difference that a test finds in 80% of cases, by the number of seeds.

    Of the variances of `statistics.crossed_variances`, that of the seeds falls with their number $S$, from
    the $S_0$ seeds of the estimate, and that of the examples does not:

    $$\delta(S) = h_{1 - \alpha / 2}(S) + h_{0.8}(S), \quad
      h_q(S)^2 = t_{q, S - 1}^2 \frac{S_0 v_1}{S} + t_{q, N - 1}^2 v_2$$

    where $t_{q, \nu}$ is the quantile of Student's t, and $h_{1 - \alpha / 2}$ half the width of the test's
    interval. For $v_2 = 0$ it is the usual $S = (t_{1 - \alpha / 2} + t_{0.8})^2 s^2 / \delta^2$. The
    variances are estimates: with few seeds the result is a guide.

    Args:
      estimate: of `seeds` seeds.
      seeds: $S_0$, at least 2.
      level: $\alpha$, of one test of a family.

    Returns:
      float64 `[MOST_SEEDS + 1]`, the difference by $S$; infinite below 2 seeds, NaN without an error.

    >>> by_seeds = detectable(Estimate(0.5, 0.5, ((0.2, 4.0),)), 5, 0.05)  # s^2 = 1 of each seed
    >>> int(np.argmax(by_seeds <= 1.0))  # (2.262 + 0.883)^2 / 1^2 = 9.9
    10

    References:
      Sokal & Rohlf (1995), "Biometry", 3rd edition, section 9.8.
    """
    counts = np.arange(2, MOST_SEEDS + 1)
    widths = []
    for tail in (level / 2, 1.0 - POWER):
        squares = np.zeros(len(counts)) if estimate.variances else np.full(len(counts), np.nan)
        for variance, freedom in estimate.variances:
            of_seeds = freedom == seeds - 1
            variances = variance * seeds / counts if of_seeds else variance
            squares += scipy.special.stdtrit(counts - 1.0 if of_seeds else freedom, tail) ** 2 * variances
        widths.append(np.sqrt(squares))
    return np.concatenate([[np.inf, np.inf], np.add(*widths)])


def expected_best(error: float, cells: int) -> float:
    r"""Returns how far the best of equal cells is expected beyond their common mean, by chance alone.

    It is the expectation of the largest of $m$ normal values of mean 0,
    $\sigma \int_0^\infty (1 - \Phi(z)^m - (1 - \Phi(z))^m) dz$.

    Args:
      error: standard error of a cell's mean; see `statistics.unshared_error`.
      cells: their number $m$.

    >>> round(expected_best(1.0, 1), 4), round(expected_best(1.0, 2), 4), round(expected_best(1.0, 15), 4)
    (0.0, 0.5642, 1.7359)
    """

    def tails(z: float) -> float:
        below = scipy.stats.norm.cdf(z)
        return 1.0 - below**cells - (1.0 - below) ** cells

    return float(error * scipy.integrate.quad(tails, 0.0, 10.0)[0])

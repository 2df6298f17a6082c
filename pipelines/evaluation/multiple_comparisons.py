"""Comparisons of several cells: adjusted p-values, and the best of cells that are equal."""

from collections.abc import Sequence

import numpy as np
import scipy.integrate
import scipy.stats


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

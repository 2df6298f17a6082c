"""The error by the number of examples, and a forecast of it for more of them.

References:
  Hestness et al. (2017), "Deep learning scaling is predictable, empirically", eq. 1, for the power law.
"""

import dataclasses
from typing import Any

import numpy as np
import scipy.optimize

from rank4class import data
from rank4class.pipelines.evaluation import label_errors
from rank4class.pipelines.evaluation.label_errors import LeaveOneOut

_DRAWS = {0.125: 4, 0.25: 2, 0.5: 1, 1.0: 1}  # share of the examples -> number of random parts
_LANDMARKS = 2_048
_RESAMPLES = 200


@dataclasses.dataclass(frozen=True)
class LearningCurve:
    """Errors by number of examples, and that of twice the largest number; all in percent."""

    sizes: list[int]
    errors: list[float]
    forecast: float
    interval: list[float]  # of 95%


def measure(vectors: Any, labels: np.ndarray, num_classes: int) -> LearningCurve:
    r"""Measures the error of leave-one-out kernel regressions on random parts, and extrapolates it.

    The forecast is that of $e(N) = c + a N^{-b}$ with $a, b, c \ge 0$, whose squared differences from the
    errors are weighted by the inverse variance of the mean of that many answers. Its interval is from 200
    sets of errors with noise of this variance. It leaves out how the form itself may fail.

    Args:
      vectors, labels, num_classes: see `label_errors.judge`.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(400) % 4
    >>> curve = measure(np.eye(4)[labels] + 0.5 * rng.normal(size=[400, 4]), labels, num_classes=4)
    >>> curve.sizes, curve.interval[0] <= curve.forecast <= curve.interval[1] < 20
    ([50, 100, 200, 400], True)
    """
    rng = np.random.default_rng(0)
    size = len(labels)
    sizes, errors = [], []
    for share, draws in _DRAWS.items():
        count = int(share * size)
        parts = (np.sort(rng.permutation(size)[:count]) for _ in range(draws))
        sizes.append(count)
        errors.append(float(np.mean([_error(vectors[rows], labels[rows], num_classes) for rows in parts])))
    observed = np.array(errors)
    deviations = np.sqrt(np.maximum(observed * (1.0 - observed), 1.0 / size) / sizes)
    noise = rng.normal(size=[_RESAMPLES, len(sizes)]) * deviations
    forecasts = [_forecast(np.array(sizes), each, deviations) for each in (observed, *(observed + noise))]
    interval = np.percentile(forecasts[1:], [2.5, 97.5])
    return LearningCurve(
        sizes, [100.0 * each for each in errors], 100.0 * forecasts[0], (100.0 * interval).tolist()
    )


def _error(vectors: Any, labels: np.ndarray, num_classes: int) -> float:
    """Returns the share of the examples whose class is not the first by a regression without them."""
    targets = data.Split({}, labels).class_matrix(num_classes)
    regression = LeaveOneOut(vectors, targets, _LANDMARKS)
    rows = np.arange(len(labels))
    strength = regression.best_strength(label_errors.sample(rows))
    blocks = [regression.predict(each, strength).argmax(axis=1) for each in label_errors.blocks(rows)]
    return float(np.mean(np.concatenate(blocks) != labels))


def _forecast(sizes: np.ndarray, errors: np.ndarray, deviations: np.ndarray) -> float:
    """Returns the error of twice the largest size by the power law that fits best."""
    relative = sizes / sizes[-1]

    def residuals(parameters: np.ndarray) -> np.ndarray:
        c, a, b = parameters
        return (c + a * relative**-b - errors) / deviations

    start = [0.5 * max(errors[-1], 0.0), 0.5 * max(errors[-1], 1e-3), 0.5]
    c, a, b = scipy.optimize.least_squares(residuals, start, bounds=([0.0, 0.0, 0.0], [1.0, 1.0, 3.0])).x
    return float(c + a * 2.0**-b)

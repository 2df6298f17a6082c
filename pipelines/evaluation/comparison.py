"""Paired comparison of two runs on the same examples."""

import dataclasses
from collections.abc import Mapping

import numpy as np
from absl import logging

from rank4class import losses
from rank4class.losses.metrics.names import split_metric
from rank4class.pipelines.evaluation import statistics


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A metric of a first and of a second run on the same examples, in percent if it is a fraction."""

    metric: str
    first: float
    second: float
    difference: float  # second minus first; NaN if both are infinite
    interval: tuple[float, float]  # see `statistics.difference_interval`
    p_value: float  # see `statistics.sign_test`
    first_better: int  # number of examples
    second_better: int
    equal: int

    @property
    def examples(self) -> int:
        """Their number."""
        return self.first_better + self.second_better + self.equal

    def conclusion(self) -> str:
        """Returns which run, A the first or B the second, is better, by both the test and the interval."""
        if not self.first_better and not self.second_better:
            return "no difference"
        low, high = self.interval
        if not (low > 0.0 or high < 0.0) or not self.p_value <= statistics.LEVEL:  # True for NaN
            return "may be chance"
        second_is_better = (low > 0.0) == losses.get_metric(self.metric).higher_is_better
        return "B is better" if second_is_better else "A is better"


def compare(metric: str, first: np.ndarray, second: np.ndarray) -> Comparison:
    """Compares values `[N]`, not NaN, of a metric for the same examples in the same order."""
    definition = losses.get_metric(metric)
    scale = 100.0 if definition.percent else 1.0
    first, second = (np.asarray(values, np.float64) for values in (first, second))
    first_mean, second_mean = (float(scale * values.mean()) for values in (first, second))
    with np.errstate(invalid="ignore"):  # infinite in both runs
        differences = second - first
        if definition.percent:
            differences[np.abs(differences) <= statistics.ROUNDING] = 0.0
        difference = second_mean - first_mean
    low, high = statistics.difference_interval(differences, bounded=definition.percent)
    lower, higher = int(np.sum(differences < 0.0)), int(np.sum(differences > 0.0))
    second_better, first_better = (higher, lower) if definition.higher_is_better else (lower, higher)
    counts = first_better, second_better, len(first) - first_better - second_better
    interval, p_value = (scale * low, scale * high), statistics.sign_test(differences)
    return Comparison(metric, first_mean, second_mean, difference, interval, p_value, *counts)


def compare_all(
    first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray], *, same_weights: bool = True
) -> list[Comparison]:
    """Compares the metrics, name -> values `[N]`, that two runs have in common; see `compare`.

    Propensity-scored metrics are left out with a warning unless both runs have the same weights of classes.
    """
    common = [metric for metric in first if metric in second]
    # Training examples determine the propensities by which these weigh the classes.
    weighted = [name for name in common if (metric := split_metric(name)) and metric.function is not None]
    if weighted and not same_weights:
        logging.warning(
            "Not compared: %s. Other training examples or another propensity weigh the classes differently.",
            ", ".join(weighted),
        )
        common = [metric for metric in common if metric not in weighted]
    return [compare(metric, first[metric], second[metric]) for metric in common]

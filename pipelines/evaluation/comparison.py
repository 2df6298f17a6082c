"""Two runs judged on the same examples: by how much they differ, and whether that may be chance."""

import dataclasses

import numpy as np

from rank4class import losses
from rank4class.pipelines.evaluation import statistics


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A metric of a first and of a second run.

    Attributes:
      metric: its name.
      first, second: means over the examples, shares in percent.
      difference: second minus first; NaN if both are infinite.
      interval: 95% interval of the difference, `(low, high)`; see `statistics.difference_interval`.
      p_value: p-value of `statistics.sign_test`.
      first_better, second_better, equal: numbers of examples.
    """

    metric: str
    first: float
    second: float
    difference: float
    interval: tuple
    p_value: float
    first_better: int
    second_better: int
    equal: int

    def verdict(self):
        """Returns which run is better.

        A difference has to pass the test, and its interval has to exclude 0.

        Returns:
          "first", "second", "equal" if all examples have equal values, or None if the difference may be
          chance.
        """
        if not self.first_better and not self.second_better:
            return "equal"
        low, high = self.interval
        if not (low > 0.0 or high < 0.0) or not self.p_value <= statistics.LEVEL:  # True for NaN
            return None
        return "second" if (low > 0.0) == losses.get_metric(self.metric).higher_is_better else "first"


def compare(metric, first, second, *, seed=0):
    """Compares the values of a metric, example by example.

    Examples that are hard for both runs cancel out, so the interval is narrower than the two runs' own
    intervals suggest.

    Args:
      metric: its name.
      first, second: its values for the same `N` examples in the same order, `[N]`, not NaN.
      seed: seed of the resampling.

    Returns:
      A `Comparison`.

    >>> compared = compare("top1_error", [1, 1, 0, 0], [0, 1, 0, 0])
    >>> compared.difference, compared.p_value, compared.verdict()
    (-25.0, 1.0, None)
    """
    description = losses.get_metric(metric)
    scale = 100.0 if description.percent else 1.0
    first, second = (np.asarray(values, np.float64) for values in (first, second))
    means = float(scale * first.mean()), float(scale * second.mean())
    with np.errstate(invalid="ignore"):  # infinite in both runs
        differences = second - first
        difference = means[1] - means[0]
    low, high = statistics.difference_interval(differences, bounded=description.percent, seed=seed)
    lower, higher = int(np.sum(second < first)), int(np.sum(second > first))
    better, worse = (higher, lower) if description.higher_is_better else (lower, higher)
    return Comparison(
        metric,
        *means,
        difference,
        (scale * low, scale * high),
        statistics.sign_test(differences, seed=seed),
        worse,
        better,
        len(first) - better - worse,
    )

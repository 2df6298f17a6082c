"""Two runs judged on the same examples: by how much they differ, and whether that may be chance."""

import dataclasses

import numpy as np

from rank4class import losses
from rank4class.pipelines import evaluation

_BLOCK = 1 << 22  # numbers that are held at a time


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A metric of a first and of a second run.

    Attributes:
      metric: its name.
      first, second: its means over the examples, shares in percent.
      difference: second minus first; NaN where both are infinite.
      interval: 95%, of the difference, `(low, high)`; NaN where there is none: of one example, or where an
        example's value is infinite.
      first_better, second_better, equal: numbers of examples.
    """

    metric: str
    first: float
    second: float
    difference: float
    interval: tuple
    first_better: int
    second_better: int
    equal: int

    def verdict(self):
        """Returns "first" or "second", whichever is better; "equal", or None where it may be chance."""
        if not self.first_better and not self.second_better:
            return "equal"
        low, high = self.interval
        if not (low > 0.0 or high < 0.0):  # NaN too
            return None
        return "second" if (low > 0.0) == losses.get_metric(self.metric).higher_is_better else "first"


def compare(metric, first, second, *, seed=0):
    """Compares a metric's values by the paired bootstrap over the examples.

    Each resample draws examples, and takes of each what both runs made of it. What is hard for both cancels
    out, so the interval is narrower than the two runs' own intervals suggest.

    Args:
      metric: its name.
      first, second: its values for the same `N` examples in the same order, `[N]`, not NaN.
      seed: of the resampling.

    Returns:
      A `Comparison`.

    >>> compared = compare("top1_error", [1, 1, 0, 0], [0, 1, 0, 0])
    >>> compared.difference, compared.interval, compared.verdict()
    (-25.0, (-75.0, 0.0), None)
    """
    scale = 100.0 if losses.get_metric(metric).percent else 1.0
    first, second = (scale * np.asarray(values, np.float64) for values in (first, second))
    lower, higher = int(np.sum(second < first)), int(np.sum(second > first))
    better, worse = (higher, lower) if losses.get_metric(metric).higher_is_better else (lower, higher)
    means = float(first.mean()), float(second.mean())
    interval = _interval(first, second, seed)
    return Comparison(
        metric, *means, means[1] - means[0], interval, worse, better, len(first) - better - worse
    )


def _interval(first, second, seed):
    if len(first) < 2 or np.isinf([first, second]).any():
        return float("nan"), float("nan")
    # Examples of the same difference are alike here, so resampling their counts is resampling them.
    distinct, counts = np.unique(second - first, return_counts=True)
    size, rng = len(first), np.random.default_rng(seed)
    at_once = max(1, _BLOCK // len(distinct))
    means = [
        rng.multinomial(size, counts / size, size=min(at_once, evaluation.RESAMPLES - start))
        @ distinct
        / size
        for start in range(0, evaluation.RESAMPLES, at_once)
    ]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    # Differences that cancel out may leave 1e-16, which would not be 0.
    return round(float(low), 9), round(float(high), 9)

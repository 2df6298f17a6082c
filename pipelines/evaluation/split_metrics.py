"""Metrics of a whole split: propensity-scored metrics, coverage, the median rank, and those of decisions."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import scipy.sparse
import scipy.stats

from rank4class.losses.metrics import DECISION_METRICS
from rank4class.pipelines.evaluation import statistics


@dataclasses.dataclass(frozen=True)
class SplitMetrics:
    """The part of an evaluation of `N` examples that its metrics of the whole split need.

    Attributes:
      best: of each propensity-scored metric the best possible values, float64 `[N]`.
      covered: of each "coverage@K" whether a class is covered, and whether it has examples, bool `[2, n]`;
        of groups of classes their numbers.
      ranks: those of the examples whose "median_rank" is a metric, float32 `[N]`, or None.
    """

    best: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    covered: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    ranks: np.ndarray | None = None

    def means(self) -> dict[str, float]:
        """Returns name -> value of the metrics without a value for single examples, fractions in percent."""
        shares = {name: float(100.0 * np.divide(*parts.sum(axis=1))) for name, parts in self.covered.items()}
        return shares | ({} if self.ranks is None else {"median_rank": float(np.median(self.ranks))})

    def intervals(self) -> dict[str, list[float] | None]:
        """Returns name -> 95% interval of these: of the median rank that of its binomial test, else None."""
        intervals: dict[str, list[float] | None] = dict.fromkeys(self.means())
        if self.ranks is not None:
            ends = np.array(scipy.stats.quantile_test(self.ranks).confidence_interval(0.95))
            intervals["median_rank"] = ends.tolist() if np.isfinite(ends).all() else None
        return intervals

    def corrected(self, names: Sequence[str], values: np.ndarray) -> np.ndarray:
        """Returns values `[N, M]` of metrics whose means, and their intervals, are those of the metrics.

        A propensity-scored metric is a ratio `m` of the sums of values and of best values. Its column becomes
        `v + m (1 - b)` for these over the mean best value, whose mean is `m` (the delta method).
        """
        values = np.array(values, np.float64)
        for name, best in self.best.items():
            column = values[:, names.index(name)]
            column /= best.mean()
            column += column.mean() * (1.0 - best / best.mean())
            column[np.abs(column - 1.0) <= statistics.ROUNDING] = 1.0
        return values

    def select(self, rows: np.ndarray, classes: np.ndarray) -> "SplitMetrics":
        """Returns the part of some examples and classes."""
        best = {name: each[rows] for name, each in self.best.items()}
        covered = {name: parts[:, classes] for name, parts in self.covered.items()}
        return SplitMetrics(best, covered, None if self.ranks is None else self.ranks[rows])

    def grouped(self, group: np.ndarray) -> "SplitMetrics":
        """Returns the metrics for groups of the classes, from the group of each class, int `[n]`."""
        sums = {
            n: np.array([np.bincount(group, part) for part in parts]) for n, parts in self.covered.items()
        }
        return dataclasses.replace(self, covered=sums)

    def by_class(self, rows: np.ndarray, classes: np.ndarray, num_classes: int) -> dict[str, np.ndarray]:
        """Returns name -> values `[n]` of the metrics of each class, or group; fractions are in 0..1.

        The examples are `rows`, and `classes` their classes, both int `[E]`; a class without any has NaN.
        """
        with np.errstate(invalid="ignore"):
            columns = {name: np.divide(*parts) for name, parts in self.covered.items()}
        if self.ranks is not None:
            medians = pd.Series(self.ranks[rows]).groupby(classes).median()
            columns["median_rank"] = medians.reindex(range(num_classes)).to_numpy()
        return columns


@dataclasses.dataclass(frozen=True)
class Decisions:
    """The decided and the true classes of `N` examples, bool `[N, n]`, and names of metrics of their counts.

    The metrics, such as F1 scores, are in percent.
    """

    names: tuple[str, ...]
    decided: scipy.sparse.csr_array
    relevant: scipy.sparse.csr_array

    def counts(self) -> np.ndarray:
        """Returns the arguments of `losses.metrics.f1_micro`, float64 `[3, n]`."""
        return self._parts().sum(axis=0).reshape(3, -1)

    def means(self) -> dict[str, float]:
        """Returns name -> value of the metrics."""
        return {name: float(value) for name, value in self._evaluate(self.counts()).items()}

    def intervals(self) -> dict[str, list[float] | None]:
        """Returns the 95% intervals of a bootstrap of the examples; None if all resamples are equal."""
        blocks = [
            self._evaluate(np.moveaxis(sums.reshape(len(sums), 3, -1), 1, 0))
            for sums in (statistics.resampled_sums(self._parts()) if self.names else ())
        ]
        resampled = {name: np.concatenate([block[name] for block in blocks]) for name in self.names}
        return {
            name: np.percentile(values, [2.5, 97.5]).tolist() if np.ptp(values) else None
            for name, values in resampled.items()
        }

    def select(self, classes: np.ndarray) -> "Decisions":
        """Returns the decisions for some classes."""
        return Decisions(self.names, self.decided[:, classes], self.relevant[:, classes])

    def _parts(self) -> scipy.sparse.csr_array:
        """Returns for each example the arguments of `losses.metrics.f1_micro`, float64 `[N, 3n]`."""
        parts = (self.decided.multiply(self.relevant), self.decided, self.relevant)
        return scipy.sparse.hstack([scipy.sparse.csr_array(part, dtype=np.float64) for part in parts], "csr")

    def _evaluate(self, counts: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the metrics of counts `[3, ..., n]`."""
        return {name: 100.0 * DECISION_METRICS[name].function(*counts).numpy() for name in self.names}


def of_counts(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the metrics that have no value for single examples."""
    return tuple(n for n in names if n in DECISION_METRICS and DECISION_METRICS[n].function is not None)

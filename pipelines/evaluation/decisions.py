"""Metrics of the decided classes of a split: F1 scores, with the intervals of a bootstrap, and exact sets."""

import dataclasses
from collections.abc import Iterable

import numpy as np
import scipy.sparse

from rank4class.losses.metrics import DECISION_METRICS
from rank4class.pipelines.evaluation import statistics


@dataclasses.dataclass(frozen=True)
class Decisions:
    """The decided and the true classes of `N` examples, bool `[N, n]`, and names of metrics of their counts.

    The metrics are in percent.
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

"""The summary of a grid: its metrics over seeds and test examples, differences and verdicts.

Tables and reports are functions of this dict, which JSON can hold: it can be shown again without the runs.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rank4class import losses
from rank4class.pipelines.evaluation import statistics
from rank4class.pipelines.sweep import inference

MARGIN = 0.5  # percentage points


@dataclasses.dataclass(frozen=True)
class Metric:
    """Whether higher values of a metric are better, and whether they are fractions, shown in percent."""

    higher_is_better: bool
    percent: bool = False

    def shown(self, value: float) -> float | None:
        """Returns a value in the unit that is shown; None if it is not finite."""
        return _finite(100.0 * value if self.percent else value)


@dataclasses.dataclass(frozen=True)
class Cell:
    """The results of one cell of a grid; all cells have the same `S` seeds."""

    name: Mapping[str, str]
    seeds: Sequence[int]
    # Of a metric `[S, N]` for `N` test examples, which all cells share in one order, or `[S]`, one figure per
    # seed, for which `intervals` may have `(low, high)`.
    values: Mapping[str, np.ndarray]
    intervals: Mapping[str, Sequence[float] | None] = dataclasses.field(default_factory=dict)


def summarize(
    cells: Sequence[Cell],
    *,
    baseline: Mapping[str, str] | None = None,
    margin: float = MARGIN,
    metrics: Mapping[str, Metric] | None = None,
    test_to_train: float = 0.0,
) -> dict[str, Any]:
    """Returns the metrics of all cells, their differences to a baseline, and the cells that may be the best.

    All intervals are 95% intervals over seeds and examples; differences are paired over both. If all cells
    are equal, a verdict is wrong with a probability of about 5%: half of it is for the comparisons with the
    baseline, if there are any, half for the best, and all metrics share it. With one seed the verdicts are on
    these runs, not on the cells. `docs/reference/files.md` describes the result; numbers that are not finite
    are None. The margin is in percentage points, and `metrics` defines those that `losses` does not know.
    """
    if any(list(cell.seeds) != list(cells[0].seeds) for cell in cells):
        raise ValueError("seeds: the cells have different ones. Train all cells with the same.")
    results = [
        _Results(name, (metrics or {}).get(name) or losses.get_metric(name), cells, test_to_train)
        for name in cells[0].values
    ]
    comparisons = []
    level = statistics.LEVEL
    with np.errstate(invalid="ignore"):  # infinite in two cells
        if baseline is not None:
            first = check_baseline(baseline, [cell.name for cell in cells])
            comparisons = _comparisons(results, first, margin)
            level = level / 2
        level /= len(results) * max(1, math.comb(len(cells), 2))  # the best is selected among all pairs
        best = {one.name: one.best(level) for one in results if len(cells) > 1}
    return {
        "metrics": {one.name: dataclasses.asdict(one.metric) for one in results},
        "cells": [
            {
                "name": dict(cell.name),
                "seeds": list(map(int, cell.seeds)),
                "metrics": {one.name: one.figures(i) for one in results},
            }
            for i, cell in enumerate(cells)
        ],
        "baseline": None if baseline is None else dict(baseline),
        "margin": margin,
        "test_to_train": test_to_train,
        "level": statistics.LEVEL,
        "pooled": {one.name: one.pooled and round(one.pooled[1], 1) for one in results},
        "comparisons": comparisons,
        "best": best,
    }


def check_baseline(baseline: Mapping[str, str], names: Sequence[Mapping[str, str]]) -> int:
    """Returns the position of a baseline among the names of cells; raises ValueError if it is not there."""
    if baseline not in names:
        known = "; ".join(",".join(name.values()) for name in names)
        wrong = ",".join(filter(None, baseline.values()))
        raise ValueError(f"baseline={wrong}: not a cell of the grid. Choose one of these: {known}.")
    return names.index(baseline)


class _Results:
    """The values of one metric in all cells, float64 `[C, S, N]`; one figure per seed is `[C, S, 1]`."""

    def __init__(self, name: str, metric: Any, cells: Sequence[Cell], test_to_train: float):
        self.name = name
        self.metric = Metric(metric.higher_is_better, metric.percent)
        self._cells = cells
        self._test_to_train = test_to_train
        arrays = [np.asarray(cell.values[name], np.float64) for cell in cells]
        self.values = np.stack([array.reshape(len(array), -1) for array in arrays])
        self._bounded = self.metric.percent and not (self.values < 0.0).any()  # a correlation may be negative
        self.pooled = inference.pooled_variance(self.values, bounded=self._bounded)

    def figures(self, i: int) -> dict[str, Any]:
        """Returns the entry of the metric in a cell."""
        cell = self._cells[i]
        values = self.values[i]
        interval = inference.crossed_interval(
            values, bounded=self._bounded, test_to_train=self._test_to_train, pooled=self.pooled
        ) or cell.intervals.get(self.name)
        return {
            "values": list(map(self.metric.shown, values.mean(axis=1))),
            "mean": self.metric.shown(values.mean()),
            "interval": interval and list(map(self.metric.shown, interval)),
            "examples": values.shape[1] if np.ndim(cell.values[self.name]) > 1 else None,
        }

    def estimates(self, first: int) -> list[inference.Estimate]:
        """Returns the means of the differences of all cells from the first."""
        differences = self.values - self.values[first]
        pooled = None
        # With two seeds, Cochran's test misses unstable cells, and one verdict of six would be false.
        if differences.shape[1] > 2:
            pooled = inference.pooled_variance(np.delete(differences, first, axis=0))
        return [
            inference.paired_estimate(
                one, bounded=self.metric.percent, test_to_train=self._test_to_train, pooled=pooled
            )
            for one in differences
        ]

    def difference(
        self, i: int, estimate: inference.Estimate, level: float, margin: float, **figures: Any
    ) -> dict[str, Any]:
        """Returns the difference of a cell with other figures, and the sizes of a sweep that separates it."""
        entry = {
            "name": dict(self._cells[i].name),
            "metric": self.name,
            "difference": self.metric.shown(estimate.mean),
            **figures,
        }
        # Splits share their examples: more of them are not independent.
        return entry if self._test_to_train else entry | {"power": self._power(estimate, level, margin)}

    def _power(self, estimate: inference.Estimate, level: float, margin: float) -> dict[str, float | None]:
        """Returns the entry "power"; of one seed, the number of examples alone."""
        _, seeds, examples = self.values.shape

        def needed(counts: np.ndarray, least: np.ndarray, difference: float) -> int | None:
            is_enough = least <= abs(difference)
            return math.ceil(counts[np.argmax(is_enough)]) if is_enough.any() else None

        power: dict[str, float | None] = {}
        if examples > 1:
            counts = np.geomspace(examples, examples * inference.MOST_TIMES, 2000)
            least = inference.detectable_with_examples(estimate, counts, level)
            power["examples"] = needed(counts, least, estimate.mean)
        if seeds == 1:
            return power
        counts = np.arange(2, inference.MOST_SEEDS + 1)
        least = inference.detectable(estimate, seeds, counts, level)
        return power | {
            "least": self.metric.shown(least[min(seeds, inference.MOST_SEEDS) - 2]),
            "least_of_many": self.metric.shown(least[-1]),
            "seeds": needed(counts, least, estimate.mean),
            "margin_seeds": needed(counts, least, margin / 100.0) if self.metric.percent else None,
            "seeds_share": _finite(estimate.variances[0][0] / estimate.error**2),
        }

    def best(self, level: float) -> dict[str, Any]:
        """Returns the best cell, and those that are not separable from it at a level."""
        means = self.values.mean(axis=(1, 2)) * (1.0 if self.metric.higher_is_better else -1.0)
        best = int(np.argmax(np.where(np.isnan(means), -np.inf, means)))
        estimates = self.estimates(best)
        is_finite = np.isfinite(means)
        not_separable = [
            i
            for i, estimate in enumerate(estimates)
            if i == best or (is_finite[i] == is_finite[best] and not estimate.excludes_zero(level))
        ]
        error = inference.unshared_error(self.values, self._test_to_train)
        entry: dict[str, Any] = {
            "name": dict(self._cells[best].name),
            "not_separable": [dict(self._cells[i].name) for i in not_separable],
            "expected_gain": self.metric.shown(inference.expected_best(error, len(means))),
        }
        others = [i for i in not_separable if i != best and math.isfinite(estimates[i].mean)]
        if others and not self._test_to_train:
            last = max(others, key=lambda i: abs(estimates[i].mean))
            entry["largest_open"] = self.difference(last, estimates[last], level, 0.0)
        return entry


def _comparisons(results: Sequence[_Results], first: int, margin: float) -> list[dict[str, Any]]:
    """Returns the comparisons of all cells with the first by each metric, whose p-values share one level."""
    rows = [(one, i, each) for one in results for i, each in enumerate(one.estimates(first)) if i != first]
    p_values = [
        inference.paired_p_value(one.values[i] - one.values[first], estimate, len(rows))
        for one, i, estimate in rows
    ]
    adjusted = np.minimum(2.0 * inference.holm(p_values), 1.0)
    equivalence = inference.holm(
        [
            each.equivalence_p_value(margin / 100.0) if one.metric.percent else math.nan
            for one, _, each in rows
        ]
    )
    level = statistics.LEVEL / (2 * max(1, len(rows)))
    return [
        one.difference(
            i,
            estimate,
            level,
            margin,
            interval=list(map(one.metric.shown, estimate.interval())) if estimate.is_known else None,
            p_value=_finite(p_values[row]),
            adjusted_p_value=_finite(adjusted[row]),
            equivalence_p_value=_finite(equivalence[row]),
            verdict=_verdict(estimate, adjusted[row], equivalence[row], one.metric),
            freedom=round(estimate.variances[0][1], 1) if estimate.is_known else None,
        )
        for row, (one, i, estimate) in enumerate(rows)
    ]


def _verdict(estimate: inference.Estimate, p_value: float, equivalence_p_value: float, metric: Metric) -> str:
    """Returns the verdict of a comparison; a p-value of NaN supports none."""
    if not math.isfinite(estimate.mean):
        return "not finite"
    if p_value <= statistics.LEVEL:
        return "better" if (estimate.mean > 0.0) == metric.higher_is_better else "worse"
    return "equivalent" if equivalence_p_value <= statistics.LEVEL else "not separable"


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None

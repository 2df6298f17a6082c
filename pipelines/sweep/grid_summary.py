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
        return float(100.0 * value if self.percent else value) if math.isfinite(value) else None


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
    definitions = {}
    for name in cells[0].values:
        known = (metrics or {}).get(name) or losses.get_metric(name)
        definitions[name] = Metric(known.higher_is_better, known.percent)
    values = {name: np.stack([_matrix(cell.values[name]) for cell in cells]) for name in definitions}
    # A correlation may be negative.
    bounded = {
        name: metric.percent and not (values[name] < 0.0).any() for name, metric in definitions.items()
    }
    pooled = {name: inference.pooled_variance(values[name], bounded=bounded[name]) for name in definitions}
    with np.errstate(invalid="ignore"):  # infinite in two cells
        comparisons: list[dict[str, Any]] = []
        level = statistics.LEVEL
        if baseline is not None:
            comparisons = _comparisons(cells, values, definitions, baseline, margin, test_to_train)
            level /= 2
        best = _best_cells(cells, values, definitions, level, test_to_train) if len(cells) > 1 else {}
    return {
        "metrics": {name: dataclasses.asdict(metric) for name, metric in definitions.items()},
        "cells": [
            {
                "name": dict(cell.name),
                "seeds": list(map(int, cell.seeds)),
                "metrics": {
                    name: _figures(cell, name, metric, bounded[name], pooled[name], test_to_train)
                    for name, metric in definitions.items()
                },
            }
            for cell in cells
        ],
        "baseline": None if baseline is None else dict(baseline),
        "margin": margin,
        "test_to_train": test_to_train,
        "level": statistics.LEVEL,
        "pooled": {name: one and round(one[1], 1) for name, one in pooled.items()},
        "comparisons": comparisons,
        "best": best,
    }


def check_baseline(baseline: Mapping[str, str], names: Sequence[Mapping[str, str]]) -> int:
    """Returns the position of a baseline among the names of cells; raises ValueError if it is not there."""
    if dict(baseline) not in map(dict, names):
        known = "; ".join(",".join(name.values()) for name in names)
        wrong = ",".join(filter(None, baseline.values()))
        raise ValueError(f"baseline={wrong}: not a cell of the grid. Choose one of these: {known}.")
    return list(map(dict, names)).index(dict(baseline))


def _matrix(values: Any) -> np.ndarray:
    """Returns values as float64 `[S, N]`; one figure per seed as `[S, 1]`."""
    array = np.asarray(values, np.float64)
    return array[:, None] if array.ndim == 1 else array


def _figures(
    cell: Cell,
    name: str,
    metric: Metric,
    bounded: bool,
    pooled: tuple[float, float] | None,
    test_to_train: float,
) -> dict[str, Any]:
    values = _matrix(cell.values[name])
    crossed = inference.crossed_interval(values, bounded=bounded, test_to_train=test_to_train, pooled=pooled)
    interval = crossed or cell.intervals.get(name)
    return {
        "values": list(map(metric.shown, values.mean(axis=1))),
        "mean": metric.shown(values.mean()),
        "interval": interval and list(map(metric.shown, interval)),
        "examples": values.shape[1] if np.ndim(cell.values[name]) > 1 else None,
    }


def _comparisons(
    cells: Sequence[Cell],
    values: Mapping[str, np.ndarray],
    definitions: Mapping[str, Metric],
    baseline: Mapping[str, str],
    margin: float,
    test_to_train: float,
) -> list[dict[str, Any]]:
    first = check_baseline(baseline, [cell.name for cell in cells])
    pairs = [(name, i) for name in definitions for i in range(len(cells)) if i != first]
    estimates, p_values, equivalence_p_values = [], [], []
    for name, metric in definitions.items():
        differences = values[name] - values[name][first]
        for i, estimate in enumerate(_estimates(differences, first, metric, test_to_train)):
            if i != first:
                estimates.append(estimate)
                p_values.append(inference.paired_p_value(differences[i], estimate, len(pairs)))
                equivalence_p_values.append(
                    estimate.equivalence_p_value(margin / 100.0) if metric.percent else math.nan
                )
    adjusted = np.minimum(2.0 * inference.holm(p_values), 1.0)
    equivalence = inference.holm(equivalence_p_values)
    level = statistics.LEVEL / (2 * max(1, len(pairs)))
    comparisons = []
    for row, ((name, i), estimate) in enumerate(zip(pairs, estimates, strict=True)):
        metric = definitions[name]
        comparison: dict[str, Any] = {
            "name": dict(cells[i].name),
            "metric": name,
            "difference": metric.shown(estimate.mean),
            "interval": list(map(metric.shown, estimate.interval())) if estimate.variances else None,
            "p_value": _finite(p_values[row]),
            "adjusted_p_value": _finite(adjusted[row]),
            "equivalence_p_value": _finite(equivalence[row]),
            "verdict": _verdict(estimate, adjusted[row], equivalence[row], metric),
            "freedom": round(estimate.variances[0][1], 1) if estimate.variances else None,
        }
        if not test_to_train:
            comparison["power"] = _power(estimate, values[name].shape[1:], level, margin, metric)
        comparisons.append(comparison)
    return comparisons


def _estimates(
    differences: np.ndarray, first: int, metric: Metric, test_to_train: float
) -> list[inference.Estimate]:
    """Returns the means of the differences `[C, S, N]` of all cells from the first."""
    # With two seeds, Cochran's test misses unstable cells, and one verdict of six would be false.
    pooled = (
        inference.pooled_variance(np.delete(differences, first, axis=0)) if differences.shape[1] > 2 else None
    )
    return [
        inference.paired_estimate(one, bounded=metric.percent, test_to_train=test_to_train, pooled=pooled)
        for one in differences
    ]


def _power(
    estimate: inference.Estimate, shape: tuple[int, ...], level: float, margin: float, metric: Metric
) -> dict[str, float | None]:
    """Returns the entry "power" of differences `[S, N]`; of one seed, the number of examples alone."""
    seeds, examples = shape
    counts = np.geomspace(examples, examples * inference.MOST_TIMES, 2000)

    def needed(counts: np.ndarray, least: np.ndarray, difference: float) -> int | None:
        is_enough = least <= abs(difference)
        return math.ceil(counts[np.argmax(is_enough)]) if is_enough.any() else None

    by_examples = inference.detectable_with_examples(estimate, counts, level)
    power: dict[str, float | None] = {}
    if examples > 1:
        power["examples"] = needed(counts, by_examples, estimate.mean)
    if seeds == 1:
        return power
    by_seeds = inference.detectable(estimate, seeds, level)
    numbers = np.arange(len(by_seeds))
    return power | {
        "least": metric.shown(by_seeds[min(seeds, inference.MOST_SEEDS)]),
        "least_of_many": metric.shown(by_seeds[-1]),
        "seeds": needed(numbers, by_seeds, estimate.mean),
        "margin_seeds": needed(numbers, by_seeds, margin / 100.0) if metric.percent else None,
        "seeds_share": estimate.variances[0][0] / estimate.error**2 if estimate.variances else None,
    }


def _verdict(estimate: inference.Estimate, p_value: float, equivalence_p_value: float, metric: Metric) -> str:
    """Returns the verdict of a comparison; a p-value of NaN supports none."""
    if not math.isfinite(estimate.mean):
        return "not finite"
    if p_value <= statistics.LEVEL:
        return "better" if (estimate.mean > 0.0) == metric.higher_is_better else "worse"
    return "equivalent" if equivalence_p_value <= statistics.LEVEL else "not separable"


def _best_cells(
    cells: Sequence[Cell],
    values: Mapping[str, np.ndarray],
    definitions: Mapping[str, Metric],
    level: float,
    test_to_train: float,
) -> dict[str, dict[str, Any]]:
    """Returns the best cell of each metric. As it is selected, all pairs of cells share the level."""
    level /= len(definitions) * math.comb(len(cells), 2)
    entries: dict[str, dict[str, Any]] = {}
    for name, metric in definitions.items():
        means = values[name].mean(axis=(1, 2)) * (1.0 if metric.higher_is_better else -1.0)
        best = int(np.argmax(np.where(np.isnan(means), -np.inf, means)))
        is_finite = np.isfinite(means)
        estimates = _estimates(values[name] - values[name][best], best, metric, test_to_train)
        error = inference.unshared_error(values[name], test_to_train)
        open_ones = [
            i
            for i, estimate in enumerate(estimates)
            if i == best or (is_finite[i] == is_finite[best] and not estimate.excludes_zero(level))
        ]
        entries[name] = {
            "name": dict(cells[best].name),
            "not_separable": [dict(cells[i].name) for i in open_ones],
            "expected_gain": metric.shown(inference.expected_best(error, len(cells))),
        }
        others = [i for i in open_ones if i != best and math.isfinite(estimates[i].mean)]
        if others and not test_to_train:
            last = max(others, key=lambda i: abs(estimates[i].mean))
            entries[name]["largest_open"] = {
                "name": dict(cells[last].name),
                "metric": name,
                "difference": metric.shown(estimates[last].mean),
                "power": _power(estimates[last], values[name].shape[1:], level, 0.0, metric),
            }
    return entries


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None

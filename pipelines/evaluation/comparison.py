"""Paired comparison of runs on the same examples."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from absl import logging

from rank4class import losses
from rank4class.losses.metrics.names import split_metric
from rank4class.pipelines.evaluation import statistics
from rank4class.pipelines.evaluation.trained_model import TrainedModel


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
    lower = int(np.sum(differences < 0.0))
    higher = int(np.sum(differences > 0.0))
    second_better, first_better = (higher, lower) if definition.higher_is_better else (lower, higher)
    counts = first_better, second_better, len(first) - first_better - second_better
    interval = (scale * low, scale * high)
    p_value = statistics.sign_test(differences)
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


def frame(runs: Sequence[TrainedModel], split: str, path: str | os.PathLike | None = None) -> pd.DataFrame:
    """Returns a row for each other run and metric of `compare_runs`; see `run.compare`."""
    rows = [
        (i, each.metric, each.first, each.second, each.difference, *each.interval, each.p_value)
        for i, of_run in enumerate(compare_runs(runs, split, path), 1)
        for each in of_run
    ]
    columns = ["run", "metric", "first", "second", "difference", "low", "high", "p_value"]
    return pd.DataFrame(rows, columns=columns)


def compare_runs(
    runs: Sequence[TrainedModel], split: str = "test", path: str | os.PathLike | None = None
) -> list[list[Comparison]]:
    """Returns the comparisons of each other run with the first, on a split or a labeled file.

    Raises:
      ValueError: a single run, or runs of other examples, or without a metric in common.
    """
    if len(runs) < 2:
        paths = [run.run_dir.path for run in runs]
        raise ValueError(f"runs={paths}: fewer than two runs. Give more (--workdir=A --workdir=B).")
    first, *others = runs
    first_values = _values(first, split, path)
    compared = []
    for other in others:
        title = f"runs: {other.run_dir.path} and {first.run_dir.path}"
        hashes = first.run_dir.data_hashes()
        other_hashes = other.run_dir.data_hashes()
        names = ["classes"] if path is not None else ["classes", split]
        differences = [name for name in names if hashes[name] != other_hashes[name]]
        if other.experiment.data.held_out != first.experiment.data.held_out:
            differences.append("data.held_out")
        if differences:
            raise ValueError(f"{title} differ in {differences[0]}. Compare runs of the same data.")
        same_propensity = other.experiment.propensity == first.experiment.propensity
        same_weights = same_propensity and other_hashes["train"] == hashes["train"]
        values = _values(other, split, path)
        compared.append(compare_all(first_values, values, same_weights=same_weights))
        if not compared[-1]:
            raise ValueError(f"{title} have no metric in common. Compare runs with the same metrics.")
    return compared


def _values(run: TrainedModel, split: str, path: str | os.PathLike | None) -> dict[str, np.ndarray]:
    result = run.evaluate(run.load(path), split)
    return dict(zip(result.names, result.values.T, strict=True))

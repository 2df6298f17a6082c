"""Compare runs with one another."""

import os
from collections.abc import Sequence

import pandas as pd

from rank4class.pipelines.evaluation import comparison
from rank4class.pipelines.run import Run


def compare(runs: Sequence[Run | str | os.PathLike], split: str = "test") -> pd.DataFrame:
    """Compares runs with the first of them, example by example.

    Args:
      runs: at least two, or their folders, which rank the same classes of the same examples.
      split: to evaluate on.

    Propensity-scored metrics are compared only between runs of the same training examples and propensity.

    Returns:
      A frame with a row for each other run and metric of both: "run", its index; "metric"; "first" and
      "second", the means; "difference", second minus first, with its 95% interval "low" to "high"; "p_value".

    Raises:
      ValueError: a single run, or runs of different examples or without a metric in common.

    >>> comparison = rank4class.compare(["runs/digits", "runs/digits_ndcg"]).set_index("metric")
    >>> list(comparison.index)
    ['top1_error', 'top5_error', 'ndcg@5']
    """
    if len(runs) < 2:
        raise ValueError(f"runs={list(runs)}: fewer than two runs. Give two or more.")
    first, *others = (run if isinstance(run, Run) else Run(run) for run in runs)
    first_values = dict(first.evaluate_examples(split))
    rows = []
    for i, other in enumerate(others, 1):
        hashes, other_hashes = first.data_hashes, other.data_hashes
        differences = [name for name in ("classes", split) if hashes[name] != other_hashes[name]]
        if other.experiment.data.held_out != first.experiment.data.held_out:
            differences.append("data.held_out")
        if differences:
            raise ValueError(
                f"runs: {other} and {first} differ in {differences[0]}. Compare runs of the same data."
            )
        same_weights = (
            other_hashes["train"] == hashes["train"]
            and other.experiment.propensity == first.experiment.propensity
        )
        other_values = dict(other.evaluate_examples(split))
        comparisons = comparison.compare_all(first_values, other_values, same_weights=same_weights)
        if not comparisons:
            raise ValueError(
                f"runs: {other} and {first} have no metric in common. Compare runs with the same metrics."
            )
        for each in comparisons:
            means = (each.first, each.second, each.difference)
            rows.append((i, each.metric, *means, *each.interval, each.p_value))
    columns = ["run", "metric", "first", "second", "difference", "low", "high", "p_value"]
    return pd.DataFrame(rows, columns=columns)

"""Compare runs with one another."""

import os
from collections.abc import Sequence

import pandas as pd

from rank4class.pipelines.evaluation import comparison
from rank4class.pipelines.evaluation.comparison import Comparison
from rank4class.pipelines.run import Run


def compare(
    runs: Sequence[Run | str | os.PathLike], split: str = "test", path: str | os.PathLike | None = None
) -> pd.DataFrame:
    """Compares runs with the first of them, example by example.

    Args:
      runs: at least two, or their folders, which rank the same classes of the same examples.
      split: to evaluate on.
      path: a labeled file or folder to evaluate on in place of a split.

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
    rows = [
        (i, each.metric, each.first, each.second, each.difference, *each.interval, each.p_value)
        for i, of_run in enumerate(comparisons(runs, split, path), 1)
        for each in of_run
    ]
    columns = ["run", "metric", "first", "second", "difference", "low", "high", "p_value"]
    return pd.DataFrame(rows, columns=columns)


def comparisons(
    runs: Sequence[Run | str | os.PathLike], split: str = "test", path: str | os.PathLike | None = None
) -> list[list[Comparison]]:
    """Returns the comparisons of each other run with the first, by metric; see `compare`."""
    if len(runs) < 2:
        raise ValueError(f"runs={list(runs)}: fewer than two runs. Give more (--workdir=A --workdir=B).")
    first, *others = (run if isinstance(run, Run) else Run(run) for run in runs)
    first_values, compared = dict(first.evaluate_examples(split, path)), []
    for other in others:
        hashes, other_hashes = first.data_hashes, other.data_hashes
        names = ["classes"] if path is not None else ["classes", split]
        differences = [name for name in names if hashes[name] != other_hashes[name]]
        if other.experiment.data.held_out != first.experiment.data.held_out:
            differences.append("data.held_out")
        if differences:
            raise ValueError(
                f"runs: {other} and {first} differ in {differences[0]}. Compare runs of the same data."
            )
        same_propensity = other.experiment.propensity == first.experiment.propensity
        same_weights = same_propensity and other_hashes["train"] == hashes["train"]
        other_values = dict(other.evaluate_examples(split, path))
        compared.append(comparison.compare_all(first_values, other_values, same_weights=same_weights))
        if not compared[-1]:
            raise ValueError(
                f"runs: {other} and {first} have no metric in common. Compare runs with the same metrics."
            )
    return compared

"""Metrics by name."""

import re

from rank4class.losses.metrics.keras import METRICS, RankingMetric
from rank4class.losses.metrics.sets import (
    DECISION_METRICS,
    PREDICTION_SET_METRICS,
    SET_METRICS,
    SPLIT_METRICS,
    SetMetric,
    split_metric,
)


def get_metric(name: str, ties: str = "worst", max_relevant: int | None = None) -> RankingMetric | SetMetric:
    """Returns the Keras metric of a name such as `top1_error`, `ndcg@5` or `map`, or a metric of sets.

    Args:
      name: one of `METRICS` or `SPLIT_METRICS`, with a number for K; of `SET_METRICS` or `DECISION_METRICS`;
        or of `PREDICTION_SET_METRICS`, with a coverage P in percent. Only `METRICS` use the other arguments.
      ties, max_relevant: see `losses.metrics.functional`.

    Raises:
      ValueError: an unknown name, or an option that is out of its range.

    >>> get_metric("ndcg@5").name
    'ndcg@5'
    """
    for pattern, metric in METRICS.items():
        match = re.fullmatch(pattern, name)
        if match:
            return metric(*map(int, match.groups()), ties=ties, max_relevant=max_relevant)
    of_sets = {**SET_METRICS, **DECISION_METRICS, **PREDICTION_SET_METRICS}
    for pattern in of_sets:
        if re.fullmatch(pattern, name):
            return of_sets[pattern]
    if of_split := split_metric(name):
        return of_split
    patterns = (*METRICS, *of_sets, *SPLIT_METRICS)
    known = ", ".join(patterns).replace(r"([1-9]\d?)", "P")
    known = re.sub(r"\(.*?\)", "K", known)
    raise ValueError(f"metric={name!r}: unknown. There are: {known}.")

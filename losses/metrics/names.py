"""All metrics by name.

`METRICS` are of the scores of an example: see `losses.metrics.keras`.
`SET_METRICS` need a prior of the count in addition to the scores: see `losses.metrics.set_likelihoods`.
`DECISION_METRICS` are of classes that a rule decides for: see `losses.metrics.decisions`.
`PREDICTION_SET_METRICS` are of prediction sets, which contain the class of an example with a stated coverage.
`SPLIT_METRICS` are of all examples of a split together: see `losses.metrics.propensity`.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from rank4class.losses.metrics import decisions, propensity, set_likelihoods
from rank4class.losses.metrics.functional import check_k
from rank4class.losses.metrics.keras import METRICS, RankingMetric

__all__ = [
    "DECISION_METRICS",
    "PREDICTION_SET_METRICS",
    "SET_METRICS",
    "SPLIT_METRICS",
    "SetMetric",
    "get_metric",
]


@dataclasses.dataclass(frozen=True)
class SetMetric:
    """A metric of sets.

    The function of `SET_METRICS` is `function(scores, labels, log_prior, *, where=None)`. That of
    `DECISION_METRICS` takes the counts of `f1_micro`; it is None for a metric of single examples, as those of
    `PREDICTION_SET_METRICS` are, and for the median rank and the coverage. The attributes `percent` and
    `higher_is_better` are those of `losses.metrics.RankingMetric`: whether it is reported in percent, and
    whether a higher value is better. `one_class` says whether each example must have one class. `k` is the
    number of first classes that a metric of a split counts, or None. `coverage` is that of prediction sets,
    in percent, or None.
    """

    function: Any
    percent: bool = True
    higher_is_better: bool = True
    one_class: bool = False
    k: int | None = None
    coverage: int | None = None

    def check_classes(self, num_classes: int) -> None:
        """Raises ValueError if the metric is trivial for that number of classes."""
        if self.k is not None:
            check_k(self.k, num_classes)


SET_METRICS = {
    "nll": SetMetric(set_likelihoods.nll, percent=False, higher_is_better=False),
    "exact_match": SetMetric(set_likelihoods.exact_match),
}
DECISION_METRICS = {
    "f1_micro": SetMetric(decisions.f1_micro),
    "f1_macro": SetMetric(decisions.f1_macro),
    "macro_top1_error": SetMetric(decisions.macro_top1_error, higher_is_better=False, one_class=True),
    "balanced_accuracy": SetMetric(decisions.balanced_accuracy, one_class=True),
    "subset_accuracy": SetMetric(None),
}
PREDICTION_SET_METRICS = {
    r"set_size@(?P<coverage>[1-9]\d?)": SetMetric(None, percent=False, higher_is_better=False),
    r"set_coverage@(?P<coverage>[1-9]\d?)": SetMetric(None),
}
SPLIT_METRICS = {
    r"psp@(?P<k>[1-9]\d*)": SetMetric(propensity.psp),
    r"psndcg@(?P<k>[1-9]\d*)": SetMetric(propensity.psndcg),
    r"psr@(?P<k>[1-9]\d*)": SetMetric(propensity.psr),
    r"coverage@(?P<k>[1-9]\d*)": SetMetric(None),
    "median_rank": SetMetric(None, percent=False, higher_is_better=False),
}
_OF_SETS = SET_METRICS | DECISION_METRICS | PREDICTION_SET_METRICS | SPLIT_METRICS


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
    if of_scores := _find(METRICS, name):
        metric, numbers = of_scores
        return metric(ties=ties, max_relevant=max_relevant, **numbers)
    if of_sets := _find(_OF_SETS, name):
        metric, numbers = of_sets
        return dataclasses.replace(metric, **numbers)
    known = ", ".join([*METRICS, *_OF_SETS])
    for group, letter in ((r"\(\?P<coverage>.*?\)", "P"), (r"\(.*?\)", "K")):
        known = re.sub(group, letter, known)
    raise ValueError(f"metric={name!r}: unknown. There are: {known}.")


def _find(metrics: Mapping[str, Any], name: str) -> tuple[Any, dict[str, int]] | None:
    """Returns the metric whose pattern matches a name, and the numbers in the name; None without one."""
    for pattern, metric in metrics.items():
        if match := re.fullmatch(pattern, name):
            return metric, {option: int(number) for option, number in match.groupdict().items()}
    return None


def split_metric(name: str) -> SetMetric | None:
    """Returns the metric of a split with its `k`; None for other metrics.

    >>> split_metric("coverage@5").k, split_metric("ndcg@5")
    (5, None)
    """
    return get_metric(name) if _find(SPLIT_METRICS, name) else None


def stated_coverage(name: str) -> float | None:
    """Returns the coverage in the name of a metric of prediction sets; None for other metrics.

    >>> stated_coverage("set_size@90"), stated_coverage("ndcg@90")
    (0.9, None)
    """
    found = _find(PREDICTION_SET_METRICS, name)
    return found and found[1]["coverage"] / 100


def is_of_scores(name: str) -> bool:
    """Returns whether a metric follows from the scores of an example alone.

    >>> is_of_scores("ndcg@5"), is_of_scores("f1_macro"), is_of_scores("set_size@90"), is_of_scores("psp@5")
    (True, False, False, False)
    """
    return not _find(DECISION_METRICS | PREDICTION_SET_METRICS | SPLIT_METRICS, name)

"""What a model makes of each class: the metrics of its examples, and what they are taken for."""

import dataclasses

import numpy as np

from rank4class import losses
from rank4class.pipelines.evaluation.statistics import wilson

NO_CLASS = -1


@dataclasses.dataclass(frozen=True)
class PerClass:
    """Figures of each of `n` classes; NaN where there is nothing to tell them from.

    An example of several classes belongs to each of them: a metric of such an example, and whether its
    top class is right, is about all of its classes together.

    Attributes:
      class_names: of the classes.
      metrics: names of the `M` metrics.
      examples: how many each class has, int64 `[n]`.
      means: of the metrics over the class's examples, shares in percent, float64 `[n, M]`.
      intervals: 95%, of the means that are shares, float64 `[n, M, 2]`; see `statistics.wilson`.
      named: how many examples, of any class, have the class as their top class, int64 `[n]`.
      precision: how many percent of those are right, float64 `[n]`.
      precision_intervals: 95%, float64 `[n, 2]`.
      most_confused_with: the class that its examples are most often mistaken for, int64 `[n]`; the first of
        those that are equally often, `NO_CLASS` where there is none.
      taken: how many of them are, int64 `[n]`.
    """

    class_names: tuple
    metrics: tuple
    examples: np.ndarray
    means: np.ndarray
    intervals: np.ndarray
    named: np.ndarray
    precision: np.ndarray
    precision_intervals: np.ndarray
    most_confused_with: np.ndarray
    taken: np.ndarray

    def worst_first(self, metric):
        """Returns the ids of all classes, the worst mean first, those without an example last."""
        means = self.means[:, self.metrics.index(metric)]
        worst = means if losses.get_metric(metric).higher_is_better else -means
        return np.argsort(worst, kind="stable")  # which puts NaN last


def per_class(judged, labels, class_names):
    """Sums up what was judged for each class.

    Args:
      judged: an `evaluation.EvaluationResult` of `N` examples.
      labels: as in `data.Split`.
      class_names: of the `n` classes that the examples were ranked among.

    Returns:
      A `PerClass`.
    """
    n = len(class_names)
    top, right = judged.top_classes, judged.right > 0
    if labels.ndim == 1:
        rows, classes = np.arange(len(labels)), labels
        among_own = top == labels
    else:
        rows, classes = labels.nonzero()
        among_own = np.bincount(rows[top[rows] == classes], minlength=len(top)) > 0
    # Where one of an example's own classes shares the highest score nobody can say what it is taken for.
    mistaken = ~right & ~among_own & (top != NO_CLASS)
    examples = np.bincount(classes, minlength=n)
    named = np.bincount(top[top != NO_CLASS], minlength=n)
    precision = _share(np.bincount(top[right], minlength=n), named)
    sums = [np.bincount(classes, values[rows], minlength=n) for values in judged.values.T]
    means = np.stack([_share(of_metric, examples) for of_metric in sums], axis=1)
    percent = np.array([losses.get_metric(name).percent for name in judged.names])
    intervals = wilson(np.where(percent, means, np.nan), examples[:, None])
    most_confused_with, taken = _most_frequent(classes[mistaken[rows]], top[rows][mistaken[rows]], n)
    return PerClass(
        tuple(class_names),
        judged.names,
        examples,
        means * np.where(percent, 100.0, 1.0),
        100.0 * intervals,
        named,
        100.0 * precision,
        100.0 * wilson(precision, named),
        most_confused_with,
        taken,
    )


def _share(parts, wholes):
    return np.divide(parts, wholes, out=np.full(len(wholes), np.nan), where=wholes > 0)


def _most_frequent(classes, mistaken_for, n):
    """Returns for each class what its examples are most often mistaken for, and how often."""
    pairs, counts = np.unique(classes.astype(np.int64) * n + mistaken_for, return_counts=True)
    by_count = np.argsort(-counts, kind="stable")
    found, first = np.unique(pairs[by_count] // n, return_index=True)
    most, times = np.full(n, NO_CLASS), np.zeros(n, np.int64)
    most[found] = pairs[by_count][first] % n
    times[found] = counts[by_count][first]
    return most, times

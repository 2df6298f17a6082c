"""The stage of the metrics of a whole split: propensity-scored metrics, coverage, the median rank.

They need the first classes of each example, and no scores of all classes.
"""

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse

from rank4class.losses.metrics import propensities
from rank4class.losses.metrics.names import SetMetric, split_metric
from rank4class.pipelines import config
from rank4class.pipelines.evaluation.evaluator import EvaluationResult, applicable_metrics
from rank4class.pipelines.evaluation.split_metrics import SplitMetrics
from rank4class.pipelines.evaluation.stages.stage import Context, Needs, Stage
from rank4class.pipelines.task_data.task_data import TaskData


class SplitMetricStage(Stage):
    """Measures the metrics of a whole split that an experiment names.

    The `training_sizes` are the numbers of training examples of each class, int `[n]`, and of all together.
    """

    def __init__(self, experiment: config.Experiment, training_sizes: tuple[Any, Any]):
        self._experiment = experiment
        self._training_sizes = training_sizes

    def check(self, task_data: TaskData) -> None:
        for name in self._experiment.metrics:
            metric = split_metric(name)
            if metric and metric.k and task_data.splits["validation"].kind.ranks_items:
                raise ValueError(f"metrics={name!r}: the items of a list are not classes. Leave it out.")

    def needs(self, context: Context) -> Needs:
        metrics = _metrics(self._experiment, context.task_data.num_scored(context.split))
        return Needs(best=max((metric.k + 1 for metric in metrics.values() if metric.k), default=0))

    def measure(self, context: Context, result: EvaluationResult, consumer: Any = None) -> EvaluationResult:
        task_data = context.task_data
        split = context.split
        n = task_data.num_scored(split)
        metrics = _metrics(self._experiment, n)
        columns = {}
        best_values = {}
        covered = {}
        if any(metric.k for metric in metrics.values()):
            a, b = self._experiment.propensity
            propensity = propensities(*self._training_sizes, a=a, b=b).numpy()
            weights = context.examples.class_matrix(n).astype(np.float64)
            weights.data = (
                1.0 / propensity[... if task_data.ranks_all(split) else task_data.seen][weights.indices]
            )
            classes, gains = _first_classes(result, weights)
            ideal = _largest(weights, gains.shape[1])
            sizes = np.diff(weights.indptr)
            for name, metric in metrics.items():
                first = np.s_[:, : metric.k]
                if metric.function is not None:
                    values = metric.function(gains[first], ideal[first], sizes)
                    columns[name], best_values[name] = (each.numpy() for each in values)
                elif metric.k:
                    hits = classes[first][gains[first] > 0.0]
                    covered[name] = np.array(
                        [np.bincount(ids, minlength=n) > 0 for ids in (hits, weights.indices)]
                    )
        ranks = result.ranks if "median_rank" in metrics else None
        whole = SplitMetrics(best_values, covered, ranks)
        return dataclasses.replace(result.with_metrics(columns), whole=whole)


def _metrics(experiment: config.Experiment, num_classes: int) -> dict[str, SetMetric]:
    metrics = {name: metric for name in experiment.metrics if (metric := split_metric(name)) is not None}
    return {name: metrics[name] for name in applicable_metrics(metrics, num_classes)}


def _first_classes(
    result: EvaluationResult, weights: scipy.sparse.csr_array
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best classes, int `[N, K + 1]`, and their weights, 0 for those that are not relevant.

    Of equal scores, relevant classes are last. The weights of those that share the last score, which classes
    further on may have too, are 0, as are all of an example with scores that are not finite.
    """
    classes = result.best_classes
    scores = result.best_scores
    assert classes is not None
    assert scores is not None
    gains = weights[np.arange(len(classes))[:, None], classes].toarray()
    run = np.cumsum(np.diff(scores, axis=1, prepend=scores[:, :1]) != 0.0, axis=1)  # of equal scores
    order = np.lexsort((gains, run), axis=1)
    classes, gains = (np.take_along_axis(each, order, axis=1) for each in (classes, gains))
    if classes.shape[1] < weights.shape[1]:
        gains[run == run[:, -1:]] = 0.0
    gains[result.top_classes < 0] = 0.0
    return classes, gains


def _largest(weights: scipy.sparse.csr_array, k: int) -> np.ndarray:
    """Returns the largest `k` weights of each row, the largest first, then 0, float64 `[N, k]`."""
    sizes = np.diff(weights.indptr)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    place = np.arange(len(rows)) - weights.indptr[rows]
    largest = np.zeros([len(sizes), k])
    largest[rows[place < k], place[place < k]] = weights.data[np.lexsort((-weights.data, rows))][place < k]
    return largest

"""Metrics against TF-Ranking, a sort of all scores and a pass over the scores.

Each metric takes class ids, and under the name "METRIC dense" one-hot labels.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from rank4class import compat, losses
from rank4class.losses.metrics import forms
from rank4class.scripts.research.benchmarks import suite

metrics_impl = compat.import_tensorflow_ranking().python.metrics_impl

_TF_RANKING = {
    "top5_accuracy": functools.partial(metrics_impl.HitsMetric, topn=5),
    "ndcg@5": functools.partial(metrics_impl.NDCGMetric, topn=5),
    "ndcg": functools.partial(metrics_impl.NDCGMetric, topn=None),
    "mrr": functools.partial(metrics_impl.MRRMetric, topn=None),
    "mean_rank": metrics_impl.ARPMetric,
    "precision@5": functools.partial(metrics_impl.PrecisionMetric, topn=5),
    "recall@5": functools.partial(metrics_impl.RecallMetric, topn=5),
    "map": functools.partial(metrics_impl.MeanAveragePrecisionMetric, topn=None),
}
_DENSE = " dense"


def _steps(name: str) -> list[suite.Step]:
    theirs = f"tensorflow_ranking:{name.removesuffix(_DENSE)}"
    return suite.with_and_without_xla(name, theirs, f"naive:{name}", "floor")


def _build(step: suite.Step, size: suite.Size) -> suite.Compiled:
    scores, labels = suite.scores_and_labels(*size)
    if step.kind == "floor":
        return suite.Compiled(lambda scores: tf.reduce_sum(scores, axis=-1), step.xla, scores)
    if step.kind == "tensorflow_ranking" or step.contender.endswith(_DENSE):
        labels = tf.one_hot(labels, size[1])
    return suite.Compiled(_metric(step), step.xla, scores, labels)


def _metric(step: suite.Step) -> Callable:
    """Returns the function from scores and labels to a metric."""
    if step.kind == "tensorflow_ranking":
        theirs = _TF_RANKING[step.contender](None)
        return lambda scores, labels: theirs.compute(labels, scores)[0]
    metric = losses.get_metric(step.contender.removesuffix(_DENSE))
    assert isinstance(metric, losses.RankingMetric)
    return functools.partial(_by_sort, metric) if step.kind == "naive" else metric.of_scores


def _by_sort(metric: losses.RankingMetric, scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    ranks = tf.argsort(tf.argsort(scores, direction="DESCENDING")) + 1
    if labels.shape.rank == 2:
        labels = tf.argmax(labels, axis=-1)
    of_rank = getattr(forms, f"{metric.function.__name__}_of_rank")
    return of_rank(tf.cast(tf.gather(ranks, labels, batch_dims=1), tf.float32), **metric.options)


SUITE = suite.Suite(
    axes="BATCHxCLASSES",
    sizes=suite.BATCH_AND_CLASSES,
    contenders=lambda size: [
        step for name in _TF_RANKING for kind in ("", _DENSE) for step in _steps(name + kind)
    ],
    build=_build,
)

"""Metrics against TF-Ranking and a pass over the scores.

Each metric takes class ids, and under the name "METRIC dense" one-hot labels.
"""

import functools
from typing import Any

import tensorflow as tf

from rank4class import compat, losses
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


def _build(step: suite.Step, size: suite.Size) -> suite.Compiled:
    scores, labels = suite.scores_and_labels(*size)
    if step.kind == "floor":
        return suite.Compiled(lambda scores: tf.reduce_sum(scores, axis=-1), step.xla, scores)
    if step.kind == "tensorflow_ranking" or step.contender.endswith(_DENSE):
        labels = tf.one_hot(labels, size[1])
    if step.kind == "tensorflow_ranking":
        theirs = _TF_RANKING[step.contender](None)
        return suite.Compiled(lambda s, y: theirs.compute(y, s)[0], step.xla, scores, labels)
    metric: Any = losses.get_metric(step.contender.removesuffix(_DENSE))
    return suite.Compiled(metric.of_scores, step.xla, scores, labels)


SUITE = suite.Suite(
    axes="BATCHxCLASSES",
    sizes=suite.BATCH_AND_CLASSES,
    contenders=lambda size: [
        step
        for name in _TF_RANKING
        for kind in ("", _DENSE)
        for step in suite.with_and_without_xla(name + kind, f"tensorflow_ranking:{name}", "floor")
    ],
    build=_build,
)

"""Judging a model: each example's metrics, their means in percent, and the 95% intervals."""

import dataclasses

import numpy as np
import scipy.special
import tensorflow as tf

from rank4class import losses
from rank4class.losses.metrics import SetMetric
from rank4class.pipelines import distribution
from rank4class.pipelines.evaluation import statistics


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
    """What a model made of the `N` examples of a split.

    Attributes:
      names: of the `M` metrics.
      values: of each example, float32 `[N, M]`.
      top_classes: the class of the highest score, int32 `[N]`; -1 where the scores cannot be judged.
      right: 1 where a class of the example has the highest score, and no class that is not the example's has
        it too; else 0. int32 `[N]`.
      ranks: rank of the first of the example's classes, float32 `[N]`; infinite where it cannot be judged.
      scores: float32 `[N, n]`, or None where they were not to be kept.
      log_counts: of each example the log-probabilities of `0..m` classes, float32 `[N, m + 1]`, or None where
        they were not to be kept or the model has no count prior.
    """

    names: tuple
    values: np.ndarray
    top_classes: np.ndarray
    right: np.ndarray
    ranks: np.ndarray
    scores: np.ndarray | None = None
    log_counts: np.ndarray | None = None

    def summarize(self):
        """Returns `summarize` of the metrics."""
        return summarize(self.values, self.names)


class Evaluator:
    """A model and metrics of its scores, compiled into one function.

    Args:
      scorer: function of features and `training` to `task.ModelOutputs`. Classes that take no part stand
        behind all others: a metric is then that of the list without them, where that has more classes than
        the metric's K.
      names: of `M` metrics.
      max_relevant: how many classes an example has at most, the fewer, the faster; None where they are ids,
        or nobody knows.
      strategy: the `tf.distribute.Strategy` of the model; None is one device.
      jit_compile: whether XLA compiles it, where there is one replica.

    Attributes:
      of_batch: the function, of features, labels, weights and `keep_scores`, to tensors by name.
    """

    def __init__(self, scorer, names, *, max_relevant=None, strategy=None, jit_compile=False):
        self.names = tuple(names)
        self._strategy = strategy or tf.distribute.get_strategy()
        *metrics, mrr = (losses.get_metric(name, max_relevant=max_relevant) for name in (*names, "mrr"))

        def of_replica(features, labels, keep_scores):
            outputs = scorer(features, training=False)
            scores = tf.cast(outputs.scores, tf.float32)  # in half precision 1 less may be the same
            if outputs.where is not None:
                scores = mask_scores(scores, outputs.where)
            # A reciprocal has rounding errors.
            ranks = tf.math.round(1.0 / mrr.of_scores(scores, labels))
            sound = tf.reduce_all(tf.math.is_finite(scores), axis=1)
            values = []
            for metric in metrics:
                if isinstance(metric, SetMetric):
                    of_sets = (outputs.scores, labels, outputs.log_counts)
                    values.append(metric.function(*of_sets, where=outputs.where))
                else:
                    values.append(metric.of_scores(scores, labels))
            figures = {
                "values": tf.stack(values, axis=1),
                "top_classes": tf.where(sound, tf.argmax(scores, axis=1, output_type=tf.int32), -1),
                "right": tf.cast(ranks == 1.0, tf.int32),
                "ranks": ranks,
            }
            if keep_scores:
                figures["scores"] = scores
                if outputs.log_counts is not None:
                    figures["log_counts"] = outputs.log_counts
            return figures

        alone = self._strategy.num_replicas_in_sync == 1
        if alone:
            # A TPU compiles all it runs.
            jit_compile = jit_compile and not isinstance(self._strategy, tf.distribute.TPUStrategy)
            of_replica = tf.function(of_replica, autograph=False, jit_compile=jit_compile)

        def gathered(features, labels, weights, keep_scores):
            figures = {**of_replica(features, labels, keep_scores), "weights": weights}
            return figures if alone else distribution.all_gather(figures)

        @tf.function(autograph=False)
        def judged(features, labels, weights, keep_scores):
            def of_batch(*batch):
                return gathered(*batch, keep_scores)  # as an argument a TPU would make a tensor of it

            figures = self._strategy.run(of_batch, args=(features, labels, weights))
            return {name: self._strategy.experimental_local_results(f)[0] for name, f in figures.items()}

        self.of_batch = judged

    def __call__(self, batches, *, keep_scores=False, stopping=lambda: False):
        """Judges every example once.

        Args:
          batches: of `(features, labels, weights)`, those of the strategy; an example of weight 0 is
            padding.
          keep_scores: whether the result holds the scores.
          stopping: function that says whether to give up; asked before each batch.

        Returns:
          A `EvaluationResult`, or None where it gave up.
        """
        parts = []
        for features, labels, weights in batches:
            if stopping():
                return None
            figures = self.of_batch(features, labels, weights, keep_scores)
            kept = figures.pop("weights").numpy() > 0
            parts.append({name: figure.numpy()[kept] for name, figure in figures.items()})
        return EvaluationResult(
            self.names, **{name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
        )


def mask_scores(scores, where):
    """Scores of the classes that take no part below all others of their row.

    Args:
      scores: float32 `[B, n]`.
      where: bool `[B, n]`, the classes that take part.

    Returns:
      float32 `[B, n]`; a score that is not finite stays so, unless its class takes no part.

    >>> mask_scores(tf.constant([[3.0, 1.0, 2.0]]), [[False, True, True]]).numpy()
    array([[0., 1., 2.]], dtype=float32)
    """
    finite = tf.where(tf.math.is_finite(scores), scores, scores.dtype.max)
    lowest = tf.reduce_min(finite, axis=1, keepdims=True)
    return tf.where(where, scores, lowest - tf.maximum(1.0, 1e-6 * tf.abs(lowest)))


def summarize(values, names, *, seed=0):
    """Returns the mean of each metric over the examples, with its 95% interval and its information.

    Args:
      values: per-example values, `[N, M]`.
      names: names of the `M` metrics.
      seed: seed of the bootstrap.

    Returns:
      A dict of the metrics (shares in percent), "examples", "intervals": name -> [low, high], or None where
      there is none (see `statistics.mean_interval`), and "information": name -> {"bits", "interval"}, the
      entropy of `losses.metrics.information`; its interval is None if all values are equal.
    """
    rows, counts = np.unique(np.asarray(values, np.float64), axis=0, return_counts=True)
    draws = statistics.resample(counts, seed=seed)
    result, intervals, information = {}, {}, {}
    for name, column in zip(names, rows.T, strict=True):
        percent = losses.get_metric(name).percent
        scale = 100.0 if percent else 1.0
        distinct, of_value, resampled = _merge_equal(column, counts, draws)
        interval = statistics.mean_interval(distinct, of_value, resampled, bounded=percent)
        result[name] = float(counts @ (scale * column) / len(values))
        intervals[name] = interval and [scale * end for end in interval]
        information[name] = _information(of_value, resampled)
    return {**result, "examples": len(values), "intervals": intervals, "information": information}


def _merge_equal(values, counts, draws):
    """Returns the distinct values of a metric, their counts, and their counts in each resample."""
    order = np.argsort(values, kind="stable")
    distinct, starts = np.unique(values[order], return_index=True)
    of_value, *resampled = np.add.reduceat(np.vstack([counts, draws])[:, order], starts, axis=1)
    return distinct, of_value, np.array(resampled)


def _information(counts, draws):
    if len(counts) == 1:
        return {"bits": 0.0, "interval": None}
    bits, *resampled = _entropy(np.vstack([counts, draws]))
    return {"bits": float(bits), "interval": np.percentile(resampled, [2.5, 97.5]).tolist()}


def _entropy(counts):
    """Returns the entropy in bits of each row of counts, `[R, V]` to `[R]`."""
    return scipy.special.entr(counts / counts.sum(axis=1, keepdims=True)).sum(axis=1) / np.log(2.0)


def applicable_metrics(names, num_classes):
    """Leaves out the metrics that say nothing about so many classes, by the metrics' own rule."""

    def says_something(name):
        try:
            losses.get_metric(name).check_classes(num_classes)
        except ValueError:
            return False
        return True

    return tuple(filter(says_something, names))


def better(name, value, best):
    """Whether a metric's value is better than the best so far (NaN: none yet); an equal one is not."""
    if np.isnan(best):
        return not np.isnan(value)
    return value > best if losses.get_metric(name).higher_is_better else value < best


def metric_heading(name):
    """Returns the name of a metric with its unit.

    >>> metric_heading("top1_error"), metric_heading("mean_rank")
    ('top1_error (%)', 'mean_rank')
    """
    return f"{name} (%)" if losses.get_metric(name).percent else name

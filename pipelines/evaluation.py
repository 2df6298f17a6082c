"""Judging a model: ranks of the true classes, metrics in percent, and their 95% intervals."""

import numpy as np
import tensorflow as tf

from rank4class import losses
from rank4class.losses import ranks

RESAMPLES = 2000


def rank_function(model):
    """Compiles a model and the ranking of its scores into one function of `(features, labels)`."""

    @tf.function(autograph=False)
    def rank(features, labels):
        return ranks.hard_rank(model(features, training=False), labels)

    return rank


def rank_true_classes(rank, batches):
    """Ranks the true class of every example once.

    Args:
      rank: from `rank_function`.
      batches: of `(features, labels, weights)`; an example of weight 0 is padding.

    Returns:
      float32 `[N]`, in `1..n`, or infinity where a score is not finite.
    """
    kept = [rank(features, labels).numpy()[weights.numpy() > 0] for features, labels, weights in batches]
    return np.concatenate(kept)


def instance_metrics(true_ranks, names):
    """Returns each named metric of each rank, shares in percent, as float64 arrays.

    >>> instance_metrics([1.0, 3.0], ["top1_error", "ndcg@5", "mean_rank"])["ndcg@5"]
    array([100.,  50.])
    """
    true_ranks = tf.constant(true_ranks, tf.float32)
    metrics = {name: losses.get_metric(name) for name in names}
    return {
        name: (100.0 if metric.percent else 1.0) * np.asarray(metric.of_rank(true_ranks), np.float64)
        for name, metric in metrics.items()
    }


def summarize(true_ranks, names, *, seed=0):
    """The mean of each metric over the examples, with a 95% bootstrap interval, and its information.

    Args:
      true_ranks: `[N]`, from `rank_true_classes`.
      names: of metrics.
      seed: of the resampling.

    Returns:
      A dict of the metrics (shares in percent), "examples", "intervals": name -> [low, high], and
      "information": name -> {"bits", "interval"}, the entropy of `losses.metrics.information`.
    """
    # Examples of one rank are alike to every metric, so resampling the counts of the ranks is
    # resampling the examples.
    distinct, counts = np.unique(true_ranks, return_counts=True)
    size = len(true_ranks)
    draws = np.random.default_rng(seed).multinomial(size, counts / size, size=RESAMPLES)
    values = instance_metrics(distinct, names)
    return {
        **{name: float(counts @ value / size) for name, value in values.items()},
        "examples": size,
        "intervals": {name: _interval(draws, value) for name, value in values.items()},
        "information": {name: _information(counts, draws, value) for name, value in values.items()},
    }


def _interval(draws, values):
    if np.isinf(values).any():  # a mean rank that counts an infinite one
        return [float("inf")] * 2
    return np.percentile(draws @ values / draws[0].sum(), [2.5, 97.5]).tolist()


def _information(counts, draws, values):
    # Ranks of one value fall together.
    _, group = np.unique(values, return_inverse=True)
    together = np.eye(group.max() + 1)[group]
    bits = np.array([_entropy(row) for row in np.vstack([counts, draws]) @ together])
    return {"bits": float(bits[0]), "interval": np.percentile(bits[1:], [2.5, 97.5]).tolist()}


def _entropy(counts):
    shares = counts[counts > 0] / counts.sum()
    return np.sum(shares * np.log2(1.0 / shares))


def meaningful(names, num_classes):
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

"""Judging a model: each example's metrics, their means in percent, and the 95% intervals."""

import numpy as np
import tensorflow as tf

from rank4class import losses

RESAMPLES = 2000


def judge_function(model, names):
    """Compiles a model and metrics of its scores into one function of `(features, labels)`.

    Args:
      model: function of features and `training` to scores `[B, n]`.
      names: of `M` metrics.

    Returns:
      A function to the examples' values, float32 `[B, M]`.
    """
    metrics = [losses.get_metric(name) for name in names]

    @tf.function(autograph=False)
    def values(features, labels):
        scores = tf.cast(model(features, training=False), tf.float32)
        return tf.stack([metric.of_scores(scores, labels) for metric in metrics], axis=1)

    return values


def judge(function, batches):
    """Judges every example once.

    Args:
      function: from `judge_function`.
      batches: of `(features, labels, weights)`; an example of weight 0 is padding.

    Returns:
      float32 `[N, M]`.
    """
    kept = [function(features, labels).numpy()[weights.numpy() > 0] for features, labels, weights in batches]
    return np.concatenate(kept)


def summarize(values, names, *, seed=0):
    """The mean of each metric over the examples, with a 95% bootstrap interval, and its information.

    Args:
      values: `[N, M]`, from `judge`.
      names: of the `M` metrics.
      seed: of the resampling.

    Returns:
      A dict of the metrics (shares in percent), "examples", "intervals": name -> [low, high], and
      "information": name -> {"bits", "interval"}, the entropy of `losses.metrics.information`.
    """
    # Examples of the same values are alike to every metric, so resampling the counts of the distinct
    # values is resampling the examples.
    distinct, counts = np.unique(np.asarray(values, np.float64), axis=0, return_counts=True)
    size = len(values)
    draws = np.random.default_rng(seed).multinomial(size, counts / size, size=RESAMPLES)
    percent = np.array([100.0 if losses.get_metric(name).percent else 1.0 for name in names])
    columns = dict(zip(names, (distinct * percent).T, strict=True))
    return {
        **{name: float(counts @ value / size) for name, value in columns.items()},
        "examples": size,
        "intervals": {name: _interval(draws, value) for name, value in columns.items()},
        "information": {name: _information(counts, draws, value) for name, value in columns.items()},
    }


def _interval(draws, values):
    if draws[0].sum() < 2:  # one example says nothing of the others
        return [float("nan")] * 2
    if np.isinf(values).any():  # a mean rank that counts an infinite one
        return [float("inf")] * 2
    return np.percentile(draws @ values / draws[0].sum(), [2.5, 97.5]).tolist()


def _information(counts, draws, values):
    # Examples that this metric cannot tell apart fall together.
    order = np.argsort(values, kind="stable")
    _, starts = np.unique(values[order], return_index=True)
    together = np.add.reduceat(np.vstack([counts, draws])[:, order], starts, axis=1)
    bits = np.array([_entropy(row) for row in together])
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

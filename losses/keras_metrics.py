"""The ranking metrics as streaming Keras metrics, for `model.compile(metrics=[...])`.

`y_pred` is `[B, n]`; `y_true` is integer class ids of shape `[B]` or `[B, 1]`, or one gain a class,
`[B, n]` (one-hot, multi-label or graded). Each keeps a sum and a weight, so that every example counts
once on any number of replicas. `metrics.py` says what each metric is, and what it does with ties,
with scores that are not finite and with examples that have no relevant class.
"""

import tensorflow as tf

from rank4class.losses import metrics, ranks, relevant
from rank4class.losses.keras_losses import squeeze_ids

_serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


class RankingMetric(tf.keras.metrics.Mean):
    """The weighted mean over the instances of a function of `metrics.py`.

    A subclass names the function, its form for ranks, and the metric's own name.

    Args:
      ties: "worst" or "average"; see `metrics`.
      name, dtype: see `tf.keras.metrics.Mean`.
      max_relevant: how many classes are relevant in a list of dense labels at most; None is all. The smaller,
        the faster; see `metrics`.

    Raises:
      ValueError: unknown `ties`, or a `max_relevant` that makes no sense.
    """

    function = None
    function_of_rank = None
    default_name = ""
    percent = True  # a share, which the papers report in percent
    higher_is_better = True

    def __init__(self, ties="worst", name=None, dtype=None, max_relevant=None, **knobs):
        super().__init__(name=name or self.default_name.format(**knobs), dtype=dtype)
        if ties not in metrics.TIES:
            raise ValueError(f"ties={ties!r} is not one of {', '.join(metrics.TIES)}")
        relevant.check_most(max_relevant)
        self.ties = ties
        self.max_relevant = max_relevant
        self.knobs = knobs

    def of_rank(self, rank):
        """Returns each instance's value from the rank of its true class (`ranks.hard_rank`)."""
        return self.function_of_rank(rank, **self.knobs)

    def of_scores(self, scores, labels):
        """Returns each instance's value from its scores `[B, n]` and its labels, as in `update_state`."""
        given = {"ties": self.ties, "max_relevant": self.max_relevant}
        return self.function(scores, labels, **given, **self.knobs)

    def check_classes(self, num_classes):
        """Raises ValueError where the metric says nothing about so many classes."""
        del num_classes  # most metrics mean something for any number

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_pred = ranks.dense("y_pred", y_pred)
        values = self.of_scores(y_pred, squeeze_ids(y_true, y_pred))
        if sample_weight is not None:
            sample_weight = ranks.dense("sample_weight", sample_weight)
            sample_weight = _as_values(tf.cast(sample_weight, values.dtype), values)
            # An instance that does not count may have an infinite rank, and 0 times infinity is NaN.
            values = tf.where(sample_weight == 0.0, 0.0, values)
        return super().update_state(values, sample_weight)

    def get_config(self):
        own = {"ties": self.ties, "max_relevant": self.max_relevant}
        return {**super().get_config(), **own, **self.knobs}


def _as_values(sample_weight, values):
    """Gives weights of `[B]`, or `[B, 1]`, the shape of the values, `[B]` or `[B, T]`."""
    if sample_weight.shape.rank == values.shape.rank + 1:
        sample_weight = tf.squeeze(sample_weight, axis=-1)
    while sample_weight.shape.rank and sample_weight.shape.rank < values.shape.rank:
        sample_weight = sample_weight[..., None]
    return tf.broadcast_to(sample_weight, tf.shape(values))


class _AtK(RankingMetric):
    def __init__(self, k, ties="worst", name=None, dtype=None, max_relevant=None):
        super().__init__(ties, name, dtype, max_relevant, k=k)
        if k is not None:
            metrics.check_cutoff(self.name, k)


class _AmongK(_AtK):
    """What says nothing of the first K of K classes, and so needs a K."""

    def __init__(self, k, ties="worst", name=None, dtype=None, max_relevant=None):
        super().__init__(k, ties, name, dtype, max_relevant)
        metrics.check_cutoff(self.name, k)

    def check_classes(self, num_classes):
        metrics.check_k(self.knobs["k"], num_classes)


@_serializable
class TopKAccuracy(_AmongK):
    """Share of instances with a relevant class among the first `k`; see `metrics.top_k_accuracy`.

    >>> metric = TopKAccuracy(k=2)
    >>> _ = metric.update_state([2, 1], [[3., 1., 2.], [3., 1., 2.]])
    >>> metric.result().numpy()
    0.5
    """

    function = staticmethod(metrics.top_k_accuracy)
    function_of_rank = staticmethod(metrics.top_k_accuracy_of_rank)
    default_name = "top{k}_accuracy"

    def __init__(self, k=1, ties="worst", name=None, dtype=None, max_relevant=None):
        super().__init__(k, ties, name, dtype, max_relevant)


@_serializable
class TopKError(_AmongK):
    """Share of instances without a relevant class among the first `k`; see `metrics.top_k_error`.

    >>> metric = TopKError(k=1)
    >>> _ = metric.update_state([2, 0], [[3., 1., 2.], [3., 1., 2.]])
    >>> metric.result().numpy()
    0.5
    """

    function = staticmethod(metrics.top_k_error)
    function_of_rank = staticmethod(metrics.top_k_error_of_rank)
    default_name = "top{k}_error"
    higher_is_better = False

    def __init__(self, k=1, ties="worst", name=None, dtype=None, max_relevant=None):
        super().__init__(k, ties, name, dtype, max_relevant)


@_serializable
class NDCG(_AtK):
    """NDCG of the first `k`, or of the whole list; see `metrics.ndcg`.

    >>> metric = NDCG(k=5)
    >>> _ = metric.update_state([2], [[3., 1., 2.]])
    >>> metric.result().numpy().round(4)
    0.6309
    """

    function = staticmethod(metrics.ndcg)
    function_of_rank = staticmethod(metrics.ndcg_of_rank)

    def __init__(self, k=None, ties="worst", name=None, dtype=None, max_relevant=None):
        super().__init__(k, ties, name or ("ndcg" if k is None else f"ndcg@{k}"), dtype, max_relevant)


@_serializable
class MRR(RankingMetric):
    """Mean reciprocal rank of the first relevant class; see `metrics.mrr`.

    >>> metric = MRR()
    >>> _ = metric.update_state([2], [[3., 1., 2.]])
    >>> metric.result().numpy()
    0.5
    """

    function = staticmethod(metrics.mrr)
    function_of_rank = staticmethod(metrics.mrr_of_rank)
    default_name = "mrr"


@_serializable
class MeanRank(RankingMetric):
    """Mean rank of the relevant classes; see `metrics.mean_rank`.

    >>> metric = MeanRank()
    >>> _ = metric.update_state([2], [[3., 1., 2.]])
    >>> metric.result().numpy()
    2.0
    """

    function = staticmethod(metrics.mean_rank)
    function_of_rank = staticmethod(metrics.mean_rank_of_rank)
    default_name = "mean_rank"
    percent = False
    higher_is_better = False


@_serializable
class Precision(_AmongK):
    """Share of the first `k` classes that are relevant; see `metrics.precision`.

    >>> metric = Precision(k=2)
    >>> _ = metric.update_state([[1., 0., 1.]], [[3., 1., 2.]])
    >>> metric.result().numpy()
    1.0
    """

    function = staticmethod(metrics.precision)
    function_of_rank = staticmethod(metrics.precision_of_rank)
    default_name = "precision@{k}"


@_serializable
class Recall(_AmongK):
    """Share of the relevant classes that are among the first `k`; see `metrics.recall`.

    >>> metric = Recall(k=1)
    >>> _ = metric.update_state([[1., 0., 1.]], [[3., 1., 2.]])
    >>> metric.result().numpy()
    0.5
    """

    function = staticmethod(metrics.recall)
    function_of_rank = staticmethod(metrics.recall_of_rank)
    default_name = "recall@{k}"


@_serializable
class MAP(_AtK):
    """Mean average precision of the first `k`, or of the whole list; see `metrics.average_precision`.

    >>> metric = MAP()
    >>> _ = metric.update_state([[1., 1., 0.]], [[3., 1., 2.]])
    >>> metric.result().numpy().round(4)  # (1 / 1 + 2 / 3) / 2
    0.8333
    """

    function = staticmethod(metrics.average_precision)
    function_of_rank = staticmethod(metrics.average_precision_of_rank)

    def __init__(self, k=None, ties="worst", name=None, dtype=None, max_relevant=None):
        super().__init__(k, ties, name or ("map" if k is None else f"map@{k}"), dtype, max_relevant)

"""The ranking metrics as streaming Keras metrics, for `model.compile(metrics=[...])`.

`y_pred` is `[B, n]`; `y_true` is integer class ids of shape `[B]` or `[B, 1]`, or one-hot `[B, n]`.
Each keeps a sum and a weight, so that every example counts once on any number of replicas.
"""

import tensorflow as tf

from rank4class.losses import metrics, ranks
from rank4class.losses.keras_losses import squeeze_ids

_serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


class RankingMetric(tf.keras.metrics.Mean):
    """The weighted mean over the instances of a function of the true class's rank."""

    def of_rank(self, rank):
        """Returns each instance's value, in `[0, 1]`, from its rank (`ranks.hard_rank`)."""
        raise NotImplementedError

    def check_classes(self, num_classes):
        """Raises ValueError where the metric says nothing about so many classes."""
        del num_classes  # most metrics mean something for any number

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_pred = tf.convert_to_tensor(y_pred)
        self.check_classes(y_pred.shape[-1])
        values = self.of_rank(ranks.hard_rank(y_pred, class_ids(y_true, y_pred)))
        if sample_weight is not None:
            sample_weight = tf.convert_to_tensor(sample_weight)
            if sample_weight.shape.rank == values.shape.rank + 1:
                sample_weight = tf.squeeze(sample_weight, axis=-1)
        return super().update_state(values, sample_weight)


class _AtK(RankingMetric):
    def __init__(self, k, name, dtype):
        super().__init__(name=name, dtype=dtype)
        if k is not None and k < 1:
            raise ValueError(f"{name} needs K of at least 1, got {k}")
        self.k = k

    def get_config(self):
        return {**super().get_config(), "k": self.k}


class _TopK(_AtK):
    def check_classes(self, num_classes):
        metrics.check_k(self.k, num_classes)


@_serializable
class TopKAccuracy(_TopK):
    """Share of instances whose true class is among the first `k`; see `metrics.top_k_accuracy`.

    >>> metric = TopKAccuracy(k=2)
    >>> _ = metric.update_state([2, 1], [[3., 1., 2.], [3., 1., 2.]])
    >>> metric.result().numpy()
    0.5
    """

    def __init__(self, k=1, name=None, dtype=None):
        super().__init__(k, name or f"top{k}_accuracy", dtype)

    def of_rank(self, rank):
        return metrics.top_k_accuracy_of_rank(rank, self.k)


@_serializable
class TopKError(_TopK):
    """Share of instances whose true class is not among the first `k`; see `metrics.top_k_error`.

    >>> metric = TopKError(k=1)
    >>> _ = metric.update_state([2, 0], [[3., 1., 2.], [3., 1., 2.]])
    >>> metric.result().numpy()
    0.5
    """

    def __init__(self, k=1, name=None, dtype=None):
        super().__init__(k, name or f"top{k}_error", dtype)

    def of_rank(self, rank):
        return metrics.top_k_error_of_rank(rank, self.k)


@_serializable
class NDCG(_AtK):
    """NDCG@K for one relevant class; see `metrics.ndcg`.

    >>> metric = NDCG(k=5)
    >>> _ = metric.update_state([2], [[3., 1., 2.]])
    >>> metric.result().numpy().round(4)
    0.6309
    """

    def __init__(self, k=None, name=None, dtype=None):
        super().__init__(k, name or ("ndcg" if k is None else f"ndcg@{k}"), dtype)

    def of_rank(self, rank):
        return metrics.ndcg_of_rank(rank, self.k)


@_serializable
class MRR(RankingMetric):
    """Mean reciprocal rank; see `metrics.mrr`.

    >>> metric = MRR()
    >>> _ = metric.update_state([2], [[3., 1., 2.]])
    >>> metric.result().numpy()
    0.5
    """

    def __init__(self, name="mrr", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def of_rank(self, rank):
        return metrics.mrr_of_rank(rank)


def class_ids(y_true, y_pred):
    """Returns `[B]` integer ids; a one-hot row names its class, any other row has id -1 (rank infinity)."""
    labels = squeeze_ids(y_true, y_pred)
    if labels.shape.rank < y_pred.shape.rank:
        return labels
    one_hot = tf.cast(labels, tf.float32)
    is_one_hot = (tf.reduce_max(one_hot, -1) == 1.0) & (tf.reduce_sum(tf.abs(one_hot), -1) == 1.0)
    return tf.where(is_one_hot, tf.argmax(one_hot, axis=-1, output_type=tf.int32), -1)

"""The ranking metrics as streaming Keras metrics, for `model.compile(metrics=[...])`.

`y_pred` is `[B, n]`; `y_true` is integer class ids of shape `[B]` or `[B, 1]`, or one-hot `[B, n]`.
Each keeps a sum and a weight, so that every example counts once on any number of replicas.
"""

import tensorflow as tf
from rank4class.losses import metrics
from rank4class.losses.keras_losses import squeeze_ids

_serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


class RankingMetric(tf.keras.metrics.Mean):
    """The weighted mean of a function of `metrics.py` over the instances."""

    def instance_values(self, scores, labels):
        raise NotImplementedError

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_pred = tf.convert_to_tensor(y_pred)
        values = self.instance_values(y_pred, class_ids(y_true, y_pred))
        if sample_weight is not None:
            sample_weight = tf.reshape(sample_weight, tf.shape(values))
        return super().update_state(values, sample_weight)


class _TopK(RankingMetric):
    def __init__(self, k, name, dtype):
        super().__init__(name=name, dtype=dtype)
        self.k = k

    def get_config(self):
        return {**super().get_config(), "k": self.k}


@_serializable
class TopKAccuracy(_TopK):
    """Share of instances whose true class is among the first `k`; see `metrics.top_k_accuracy`.

    >>> metric = TopKAccuracy(k=2)
    >>> metric.update_state([2, 1], [[3., 1., 2.], [3., 1., 2.]])
    >>> metric.result().numpy()
    0.5
    """

    def __init__(self, k=1, name=None, dtype=None):
        super().__init__(k, name or f"top{k}_accuracy", dtype)

    def instance_values(self, scores, labels):
        return metrics.top_k_accuracy(scores, labels, self.k)


@_serializable
class TopKError(_TopK):
    """Share of instances whose true class is not among the first `k`; see `metrics.top_k_error`.

    >>> metric = TopKError(k=1)
    >>> metric.update_state([2, 0], [[3., 1., 2.], [3., 1., 2.]])
    >>> metric.result().numpy()
    0.5
    """

    def __init__(self, k=1, name=None, dtype=None):
        super().__init__(k, name or f"top{k}_error", dtype)

    def instance_values(self, scores, labels):
        return metrics.top_k_error(scores, labels, self.k)


@_serializable
class NDCG(_TopK):
    """NDCG@K for one relevant class; see `metrics.ndcg`.

    >>> metric = NDCG(k=5)
    >>> metric.update_state([2], [[3., 1., 2.]])
    >>> metric.result().numpy().round(4)
    0.6309
    """

    def __init__(self, k=None, name=None, dtype=None):
        super().__init__(k, name or ("ndcg" if k is None else f"ndcg@{k}"), dtype)

    def instance_values(self, scores, labels):
        return metrics.ndcg(scores, labels, self.k)


@_serializable
class MRR(RankingMetric):
    """Mean reciprocal rank; see `metrics.mrr`.

    >>> metric = MRR()
    >>> metric.update_state([2], [[3., 1., 2.]])
    >>> metric.result().numpy()
    0.5
    """

    def __init__(self, name="mrr", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def instance_values(self, scores, labels):
        return metrics.mrr(scores, labels)


def class_ids(y_true, y_pred):
    """Returns `[B]` integer ids; a one-hot row names its class, any other row has id -1 (rank infinity)."""
    labels = squeeze_ids(y_true, y_pred)
    if labels.shape.rank < y_pred.shape.rank:
        return labels
    one_hot = tf.cast(labels, tf.float32)
    is_one_hot = (tf.reduce_max(one_hot, -1) == 1.0) & (tf.reduce_sum(tf.abs(one_hot), -1) == 1.0)
    return tf.where(is_one_hot, tf.argmax(one_hot, axis=-1, output_type=tf.int32), -1)

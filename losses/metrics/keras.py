"""Streaming Keras metrics for `model.compile(metrics=[...])`.

`y_pred` is `[B, n]`; `y_true` is integer class ids `[B]` or `[B, 1]`, or one gain per class, `[B, n]`
(one-hot, multi-label or graded). Each metric accumulates a sum and a weight, so every example counts once on
any number of replicas. See `losses.metrics.functional` for the definitions, ties, scores that are not finite,
and examples without a relevant class.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses.base import add_common_arguments, labels_of
from rank4class.losses.metrics import functional
from rank4class.losses.ops import tensors, top_relevant

__all__ = [
    "MAP",
    "MRR",
    "NDCG",
    "GradePrecision",
    "MeanRank",
    "Precision",
    "RankingMetric",
    "Recall",
    "TopKAccuracy",
    "TopKError",
]


class RankingMetric(tf.keras.metrics.Mean):
    """The weighted mean over the instances of a function of `losses.metrics.functional`.

    The options of the function are keyword arguments too, such as `grade`.

    Args:
      k: see `functional`, for a metric of the first K classes; by default 1 for top-K, and the whole list for
        `NDCG` and `MAP`.
      ties, max_relevant: see `functional`.
      name, dtype: see `tf.keras.metrics.Mean`.

    Raises:
      ValueError: an option is out of its range.
      TypeError: the function has no such option.

    >>> metric = TopKAccuracy(k=2)
    >>> _ = metric.update_state([2, 1], [[3., 1., 2.], [3., 1., 2.]])
    >>> print(metric.result().numpy())
    0.5
    """

    function: Any = None
    default_name: str  # with the options in braces
    defaults: Mapping[str, int | None] = {}  # of the options; None is required, except for the whole list
    whole_list = False  # whether a `k` of None is the whole list
    percent = True  # reported in percent
    higher_is_better = True

    def __init__(
        self,
        k: int | None = None,
        ties: str = "worst",
        name: str | None = None,
        dtype: tf.DType | str | None = None,
        max_relevant: int | None = None,
        **options: Any,
    ) -> None:
        options |= {} if k is None else {"k": k}
        if unknown := sorted(set(options) - set(self.defaults)):
            raise TypeError(f"{unknown[0]}: {type(self).__name__} has no such option.")
        options = {**self.defaults, **options}
        is_whole = self.whole_list and options["k"] is None
        default_name = self.default_name.removesuffix("@{k}") if is_whole else self.default_name
        super().__init__(name=name or default_name.format(**options), dtype=dtype)
        arguments.check_choice(functional.TIES, ties=ties)
        top_relevant.check_most(max_relevant)
        if not is_whole:
            arguments.check_integer(section=f"{self.name}: ", **options)
        self.ties = ties
        self.max_relevant = max_relevant
        self.options = options

    def of_scores(self, scores: TensorLike, labels: TensorLike) -> tf.Tensor:
        """Returns each instance's value from its scores `[B, n]` and its labels, as in `update_state`."""
        options = {"ties": self.ties, "max_relevant": self.max_relevant}
        return self.function(scores, labels, **options, **self.options)

    def check_classes(self, num_classes: int) -> None:
        """Raises ValueError if the metric is trivial for that number of classes."""
        if "k" in self.options and not self.whole_list:
            functional.check_k(self.options["k"], num_classes)

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> tf.Operation | None:
        y_pred = tensors.dense("y_pred", y_pred)
        values = self.of_scores(y_pred, labels_of(y_true, y_pred))
        if sample_weight is not None:
            sample_weight = tf.cast(tensors.dense("sample_weight", sample_weight), values.dtype)
            if sample_weight.shape.rank == values.shape.rank + 1:  # `[B, 1]` for values `[B]`
                sample_weight = tf.squeeze(sample_weight, axis=-1)
            while sample_weight.shape.rank and sample_weight.shape.rank < values.shape.rank:
                sample_weight = sample_weight[..., None]
            sample_weight = tf.broadcast_to(sample_weight, tf.shape(values))
            # An instance of weight 0 may have an infinite rank, and 0 times infinity is NaN.
            values = tf.where(sample_weight == 0.0, 0.0, values)
        return super().update_state(values, sample_weight)

    def get_config(self) -> dict[str, Any]:
        common = {"ties": self.ties, "max_relevant": self.max_relevant}
        return {**super().get_config(), **common, **self.options}


METRICS: dict[str, type[RankingMetric]] = {}  # by the pattern of its name, with groups for its options


def _metric(
    name: str, function: Callable, default_name: str, /, *, whole_list: bool = False, **attributes: Any
) -> type[RankingMetric]:
    """Returns the Keras metric of a function, a class of that name; adds it to `METRICS`."""
    options = dict.fromkeys(re.findall(r"\{(\w+)\}", default_name))
    attributes |= {
        "defaults": options | attributes.get("defaults", {}),
        "function": staticmethod(function),
        "default_name": default_name,
        "whole_list": whole_list,
        "__module__": __name__,
        "__doc__": f"`{function.__name__}` as a Keras metric.",
    }
    metric = type(name, (RankingMetric,), attributes)
    add_common_arguments(function, functional.__doc__)
    METRICS[re.sub(r"\{(\w+)\}", r"(?P<\1>\\d+)", default_name)] = metric
    if whole_list:
        METRICS[default_name.removesuffix("@{k}")] = metric
    return tf.keras.utils.register_keras_serializable(package="rank4class")(metric)


TopKAccuracy = _metric("TopKAccuracy", functional.top_k_accuracy, "top{k}_accuracy", defaults={"k": 1})
TopKError = _metric(
    "TopKError", functional.top_k_error, "top{k}_error", defaults={"k": 1}, higher_is_better=False
)
NDCG = _metric("NDCG", functional.ndcg, "ndcg@{k}", whole_list=True)
MRR = _metric("MRR", functional.mrr, "mrr")
MeanRank = _metric("MeanRank", functional.mean_rank, "mean_rank", percent=False, higher_is_better=False)
Precision = _metric("Precision", functional.precision, "precision@{k}")
GradePrecision = _metric("GradePrecision", functional.grade_precision, "grade{grade}_precision@{k}")
Recall = _metric("Recall", functional.recall, "recall@{k}")
MAP = _metric("MAP", functional.average_precision, "map@{k}", whole_list=True)

"""Streaming Keras metrics for `model.compile(metrics=[...])`.

`y_pred` is `[B, n]`; `y_true` is integer class ids `[B]` or `[B, 1]`, or one gain per class, `[B, n]`
(one-hot, multi-label or graded). Each metric accumulates a sum and a weight, so every example counts once on
any number of replicas. See `losses.metrics.functional` for the definitions, ties, scores that are not finite,
and examples without a relevant class.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses.base import add_common_arguments, labels_of
from rank4class.losses.metrics import forms, functional
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

METRICS: "dict[str, Callable[..., RankingMetric]]" = {}  # by the pattern of its name, with a group for K


def _register(*patterns: str) -> Callable:
    """Adds a Keras metric to `METRICS` under patterns of names and lets Keras load it."""

    def add(metric: type[RankingMetric]) -> type[RankingMetric]:
        add_common_arguments(metric.function, functional.__doc__)
        METRICS.update(dict.fromkeys(patterns, metric))
        return tf.keras.utils.register_keras_serializable(package="rank4class")(metric)

    return add


class RankingMetric(tf.keras.metrics.Mean):
    """The weighted mean over the instances of a function of `losses.metrics.functional`.

    A subclass names the function and the default name in its class line; its options come first, such as `k`.

    Args:
      ties, max_relevant: see `functional`.
      name, dtype: see `tf.keras.metrics.Mean`.

    Raises:
      ValueError: an option is out of its range.

    >>> metric = TopKAccuracy(k=2)
    >>> _ = metric.update_state([2, 1], [[3., 1., 2.], [3., 1., 2.]])
    >>> print(metric.result().numpy())
    0.5
    """

    function: Any = None
    default_name: str
    percent = True  # reported in percent
    higher_is_better = True

    def __init_subclass__(
        cls, function: Callable | None = None, default_name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if function is not None and default_name is not None:
            cls.function, cls.default_name = staticmethod(function), default_name

    def __init__(
        self,
        ties: str = "worst",
        name: str | None = None,
        dtype: tf.DType | str | None = None,
        max_relevant: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name=name or self.default_name.format(**options), dtype=dtype)
        arguments.check_choice(functional.TIES, ties=ties)
        top_relevant.check_most(max_relevant)
        self.ties = ties
        self.max_relevant = max_relevant
        self.options = options

    def of_rank(self, rank: tf.Tensor) -> tf.Tensor:
        """Returns each instance's value from the rank of its true class (`ranks.hard_rank`)."""
        return getattr(forms, f"{self.function.__name__}_of_rank")(rank, **self.options)

    def of_scores(self, scores: TensorLike, labels: TensorLike) -> tf.Tensor:
        """Returns each instance's value from its scores `[B, n]` and its labels, as in `update_state`."""
        options = {"ties": self.ties, "max_relevant": self.max_relevant}
        return self.function(scores, labels, **options, **self.options)

    def check_classes(self, num_classes: int) -> None:
        """Raises ValueError if the metric is trivial for that number of classes."""
        del num_classes  # most metrics allow any number

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


class _AtK(RankingMetric):
    """A metric of the first K classes, or of the whole list if K is None."""

    def __init__(
        self, k: int | None = None, ties: str = "worst", name: str | None = None, **kwargs: Any
    ) -> None:
        whole_list = self.default_name.removesuffix("@{k}") if k is None else None
        super().__init__(ties, name or whole_list, k=k, **kwargs)
        if k is not None:
            arguments.check_integer(section=f"{self.name}: ", k=k)


class _AmongK(_AtK):
    """A metric that is trivial for the first K of K classes, and so requires a smaller K."""

    def __init__(self, k: int, ties: str = "worst", name: str | None = None, **kwargs: Any) -> None:
        super().__init__(k, ties, name, **kwargs)
        arguments.check_integer(section=f"{self.name}: ", k=k)

    def check_classes(self, num_classes: int) -> None:
        functional.check_k(self.options["k"], num_classes)


class _TopK(_AmongK):
    def __init__(self, k: int = 1, ties: str = "worst", name: str | None = None, **kwargs: Any) -> None:
        super().__init__(k, ties, name, **kwargs)


@_register(r"top(\d+)_accuracy")
class TopKAccuracy(_TopK, function=functional.top_k_accuracy, default_name="top{k}_accuracy"):
    """`top_k_accuracy` as a Keras metric."""


@_register(r"top(\d+)_error")
class TopKError(_TopK, function=functional.top_k_error, default_name="top{k}_error"):
    """`top_k_error` as a Keras metric."""

    higher_is_better = False


@_register(r"ndcg@(\d+)", "ndcg")
class NDCG(_AtK, function=functional.ndcg, default_name="ndcg@{k}"):
    """`ndcg` as a Keras metric."""


@_register("mrr")
class MRR(RankingMetric, function=functional.mrr, default_name="mrr"):
    """`mrr` as a Keras metric."""


@_register("mean_rank")
class MeanRank(RankingMetric, function=functional.mean_rank, default_name="mean_rank"):
    """`mean_rank` as a Keras metric."""

    percent = False
    higher_is_better = False


@_register(r"precision@(\d+)")
class Precision(_AmongK, function=functional.precision, default_name="precision@{k}"):
    """`precision` as a Keras metric."""


@_register(r"grade(\d+)_precision@(\d+)")
class GradePrecision(_AmongK, function=functional.grade_precision, default_name="grade{grade}_precision@{k}"):
    """`grade_precision` as a Keras metric."""

    def __init__(
        self, grade: int, k: int, ties: str = "worst", name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(k, ties, name, grade=grade, **kwargs)
        arguments.check_integer(grade=grade)


@_register(r"recall@(\d+)")
class Recall(_AmongK, function=functional.recall, default_name="recall@{k}"):
    """`recall` as a Keras metric."""


@_register(r"map@(\d+)", "map")
class MAP(_AtK, function=functional.average_precision, default_name="map@{k}"):
    """`average_precision` as a Keras metric."""

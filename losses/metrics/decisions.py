"""Metrics of decided classes, which a rule such as a threshold selects for each instance.

Common arguments:
  decided: bool `[N, n]`, whether a class is decided for an instance.
  labels: numbers or bool `[N, n]`; values above 0 are the true classes.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class.losses import docstrings

__all__ = ["DECISION_METRICS", "DecisionMetric", "f1_macro", "f1_micro", "subset_accuracy"]


def f1_micro(decided: TensorLike, labels: TensorLike) -> tf.Tensor:
    r"""Returns the F1 score of all pairs of instance and class, a float64 scalar in [0, 1].

    $$\text{F1} = \frac{2 \, TP}{2 \, TP + FP + FN}$$

    It is 0 if no class is decided or true. It equals `sklearn.metrics.f1_score` with `average="micro"` and
    `zero_division=0`.

    >>> f1_micro([[True, True], [False, True]], [[1, 0], [1, 1]]).numpy().round(4)  # 2 * 2 / (4 + 1 + 1)
    np.float64(0.6667)
    """
    return f1_micro_of_counts(*_counts(decided, labels))


def f1_macro(decided: TensorLike, labels: TensorLike) -> tf.Tensor:
    """Returns the mean of the F1 scores of the classes, a float64 scalar in [0, 1].

    A class that is never decided and never true has F1 0, as in `sklearn.metrics.f1_score` with
    `average="macro"` and `zero_division=0`.

    >>> f1_macro([[True, True], [False, True]], [[1, 0], [1, 1]]).numpy().round(4)  # of 2/3 and 2/3
    np.float64(0.6667)
    """
    return f1_macro_of_counts(*_counts(decided, labels))


def subset_accuracy(decided: TensorLike, labels: TensorLike) -> tf.Tensor:
    """Returns whether the decided classes are exactly the true ones, float32 `[N]`, 0 or 1.

    Its mean equals `sklearn.metrics.accuracy_score` of label indicators.

    >>> subset_accuracy([[True, True], [False, True]], [[1, 0], [0, 1]]).numpy()
    array([0., 1.], dtype=float32)
    """
    return tf.cast(tf.reduce_all(tf.equal(decided, _relevant(labels)), axis=-1), tf.float32)


def f1_micro_of_counts(hits: TensorLike, decided: TensorLike, relevant: TensorLike) -> tf.Tensor:
    """Returns `f1_micro`, `[...]`, of numbers of instances by class, float64 `[..., n]`.

    They are the instances for which a class is both decided and true, decided, and true.
    """
    return _f1(*(tf.reduce_sum(counts, axis=-1) for counts in (hits, decided, relevant)))


def f1_macro_of_counts(hits: TensorLike, decided: TensorLike, relevant: TensorLike) -> tf.Tensor:
    """Returns `f1_macro`; see `f1_micro_of_counts`."""
    return tf.reduce_mean(_f1(hits, decided, relevant), axis=-1)


def _f1(hits: TensorLike, decided: TensorLike, relevant: TensorLike) -> tf.Tensor:
    return tf.math.divide_no_nan(2.0 * tf.convert_to_tensor(hits), tf.add(decided, relevant))


def _relevant(labels: TensorLike) -> tf.Tensor:
    return tf.cast(labels, tf.float32) > 0.0


def _counts(decided: TensorLike, labels: TensorLike) -> list[tf.Tensor]:
    decided, relevant = tf.cast(decided, tf.bool), _relevant(labels)
    parts = (decided & relevant, decided, relevant)
    return [tf.math.count_nonzero(part, axis=0, dtype=tf.float64) for part in parts]


@dataclasses.dataclass(frozen=True)
class DecisionMetric:
    """A metric of decided classes, `function(decided, labels)`, reported in percent and better if higher.

    The function `of_counts` takes the counts of `f1_micro_of_counts`; None for a metric of single instances.
    """

    function: Callable
    of_counts: Any = None
    percent: bool = True
    higher_is_better: bool = True

    def check_classes(self, num_classes: int) -> None:
        """Allows any number of classes."""


DECISION_METRICS = {
    "f1_micro": DecisionMetric(f1_micro, f1_micro_of_counts),
    "f1_macro": DecisionMetric(f1_macro, f1_macro_of_counts),
    "subset_accuracy": DecisionMetric(subset_accuracy),
}
for _metric in DECISION_METRICS.values():
    docstrings.add_common_arguments(_metric.function, __doc__)

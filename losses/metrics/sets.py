"""Metrics of sets of classes, which also judge the number of classes; and all metrics by name.

`SET_METRICS` need a prior of the count in addition to the scores; see `losses.ops.set_sizes`.
`DECISION_METRICS` are of classes that a rule, such as a threshold, decides for.
`PREDICTION_SET_METRICS` are of prediction sets, which contain the class of an example with a stated coverage.
`SPLIT_METRICS` are of all examples of a split together; see `losses.metrics.propensity`.

Common arguments:
  scores: floats `[..., n]`.
  labels: one gain per class, `[..., n]`, where values above 0 are in the set; or class ids `[...]`.
  log_prior: see `losses.ops.set_sizes`.
  where: optional bool, broadcastable to `[..., n]`: the classes that take part.
"""

import dataclasses
import re
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class.losses.metrics import propensity
from rank4class.losses.metrics.functional import check_k
from rank4class.losses.metrics.keras import METRICS, RankingMetric
from rank4class.losses.ops import label_checks, n_choose_k, set_sizes, tensors

__all__ = [
    "DECISION_METRICS",
    "PREDICTION_SET_METRICS",
    "SET_METRICS",
    "SPLIT_METRICS",
    "SetMetric",
    "balanced_accuracy",
    "exact_match",
    "f1_macro",
    "f1_micro",
    "get_metric",
    "macro_top1_error",
    "nll",
]


def nll(
    scores: TensorLike, labels: TensorLike, log_prior: TensorLike, *, where: TensorLike | None = None
) -> tf.Tensor:
    r"""Returns the negative log-likelihood of the set, in nats, float32 `[...]`.

    $$-\log p(k) - \log p(c \mid k)$$

    It is infinite if the prior excludes the count, or if a score, a label or the prior is invalid (in eager
    mode an invalid prior raises ValueError, see `losses.ops.set_sizes`).

    References:
      Swersky, Tarlow, Adams, Zemel, Frey (2012), eq. 3, and section 5.1.

    >>> nll([[0.0, 0.0]], [[1.0, 0.0]], tf.math.log([[0.25, 0.5, 0.25]])).numpy().round(4)
    array([1.3863], dtype=float32)
    """
    scores, where, _ = n_choose_k.checked(scores, where)
    chosen, valid = _chosen(scores, labels, where)
    value = -tf.cast(set_sizes.log_likelihood(scores, chosen, log_prior, where=where), tf.float32)
    return tf.where(tf.math.is_nan(value) | ~valid, float("inf"), value)


def exact_match(
    scores: TensorLike, labels: TensorLike, log_prior: TensorLike, *, where: TensorLike | None = None
) -> tf.Tensor:
    """Returns whether the most probable set, over all sizes, is the true one, as float32 `[...]`, 0 or 1.

    It is 0 if a score, a label or the prior is invalid.

    >>> exact_match([[3.0, 1.0, 2.0]], [[1.0, 0.0, 1.0]], tf.math.log([[0.0, 0.2, 0.8]])).numpy()
    array([1.], dtype=float32)
    """
    scores, where, _ = n_choose_k.checked(scores, where)
    chosen, valid = _chosen(scores, labels, where)
    predicted = set_sizes.most_probable(scores, log_prior, where=where)
    # The likelihood of invalid input is not finite.
    likelihood = set_sizes.log_likelihood(scores, predicted, log_prior, where=where)
    same = tf.reduce_all(predicted == (chosen & where), axis=-1)
    return tf.cast(same & valid & tf.math.is_finite(likelihood), tf.float32)


def f1_micro(hits: TensorLike, decided: TensorLike, relevant: TensorLike) -> tf.Tensor:
    r"""Returns the F1 score of all pairs of example and class, `[...]`, in [0, 1].

    $$\text{F1} = \frac{2 \, TP}{2 \, TP + FP + FN}$$

    It is that of `sklearn.metrics.f1_score` with `average="micro"` and `zero_division=0`.

    Args:
      hits, decided, relevant: floats `[..., n]`, for how many examples each class is both decided and true,
        decided, and true.

    >>> print(f1_micro([1.0, 1.0], [1.0, 3.0], [2.0, 2.0]).numpy())  # 2 * 2 / (4 + 4)
    0.5
    """
    return _f1(*(tf.reduce_sum(counts, axis=-1) for counts in (hits, decided, relevant)))


def f1_macro(hits: TensorLike, decided: TensorLike, relevant: TensorLike) -> tf.Tensor:
    """Returns the mean of the F1 scores of the classes, `[...]`; the arguments are those of `f1_micro`.

    A class that is never decided and never true counts as 0, as with scikit-learn's `zero_division=0`.

    >>> print(f1_macro([1.0, 1.0, 0.0], [1.0, 3.0, 0.0], [1.0, 1.0, 0.0]).numpy())  # (1 + 1/2 + 0) / 3
    0.5
    """
    return tf.reduce_mean(_f1(hits, decided, relevant), axis=-1)


def balanced_accuracy(hits: TensorLike, decided: TensorLike, relevant: TensorLike) -> tf.Tensor:
    r"""Returns the mean recall of the classes, `[...]`, in [0, 1]; the arguments are those of `f1_micro`.

    $$\frac{1}{|C|} \sum_{j \in C} \frac{TP_j}{TP_j + FN_j}, \quad C = \{j : TP_j + FN_j > 0\}$$

    A class without examples is left out, and without any example the value is 0. For examples of one class,
    each with one decided class, it is that of `sklearn.metrics.balanced_accuracy_score`.

    References:
      Brodersen, Ong, Stephan, Buhmann (2010), "The balanced accuracy and its posterior distribution".

    >>> print(balanced_accuracy([4.0, 1.0, 0.0], [4.0, 2.0, 1.0], [5.0, 2.0, 0.0]).numpy())  # (4/5 + 1/2) / 2
    0.65
    """
    del decided
    recalls = tf.math.divide_no_nan(hits, relevant)
    present = tf.math.count_nonzero(relevant, axis=-1, dtype=recalls.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(recalls, axis=-1), present)


def macro_top1_error(hits: TensorLike, decided: TensorLike, relevant: TensorLike) -> tf.Tensor:
    """Returns one minus the `balanced_accuracy`, `[...]`: the mean of the top-1 errors of the classes.

    The decided class of each example is the one with the highest score.

    References:
      Menon, Jayasumana, Rawat, Jain, Veit, Kumar (2021), "Long-tail learning via logit adjustment",
      section 2.

    >>> print(macro_top1_error([4.0, 1.0, 0.0], [4.0, 2.0, 1.0], [5.0, 2.0, 0.0]).numpy().round(2))
    0.35
    """
    return 1.0 - balanced_accuracy(hits, decided, relevant)


def _f1(hits: TensorLike, decided: TensorLike, relevant: TensorLike) -> tf.Tensor:
    return tf.math.divide_no_nan(tf.multiply(hits, 2.0), tf.add(decided, relevant))


def _chosen(scores: tf.Tensor, labels: TensorLike, where: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the classes of each set, bool `[..., n]`, and whether its labels are valid, bool `[...]`."""
    labels = tensors.dense("labels", labels)
    if labels.dtype.is_integer and labels.shape.rank == scores.shape.rank - 1:
        labels, n = tensors.widen(labels), tf.shape(scores)[-1]
        return tf.one_hot(labels, n, True, False), label_checks.known(labels, n)
    labels = tf.cast(labels, tf.float32)
    return labels > 0.0, tf.reduce_all(label_checks.valid_gains(labels, where), axis=-1)


@dataclasses.dataclass(frozen=True)
class SetMetric:
    """A metric of sets.

    The function of `SET_METRICS` is `function(scores, labels, log_prior, *, where=None)`. That of
    `DECISION_METRICS` takes the counts of `f1_micro`; it is None for a metric of single examples, as those of
    `PREDICTION_SET_METRICS` are, and for the median rank and the coverage. The attributes `percent` and
    `higher_is_better` are those of `losses.metrics.RankingMetric`: whether it is reported in percent, and
    whether a higher value is better. `one_class` says whether each example must have one class. `k` is the
    number of first classes that a metric of a split counts, or None.
    """

    function: Any
    percent: bool
    higher_is_better: bool
    one_class: bool = False
    k: int | None = None

    def check_classes(self, num_classes: int) -> None:
        """Raises ValueError if the metric is trivial for that number of classes."""
        if self.k is not None:
            check_k(self.k, num_classes)


SET_METRICS = {
    "nll": SetMetric(nll, percent=False, higher_is_better=False),
    "exact_match": SetMetric(exact_match, percent=True, higher_is_better=True),
}
DECISION_METRICS = {
    "f1_micro": SetMetric(f1_micro, percent=True, higher_is_better=True),
    "f1_macro": SetMetric(f1_macro, percent=True, higher_is_better=True),
    "macro_top1_error": SetMetric(macro_top1_error, percent=True, higher_is_better=False, one_class=True),
    "balanced_accuracy": SetMetric(balanced_accuracy, percent=True, higher_is_better=True, one_class=True),
    "subset_accuracy": SetMetric(None, percent=True, higher_is_better=True),
}
PREDICTION_SET_METRICS = {  # with a stated coverage in percent
    r"set_size@([1-9]\d?)": SetMetric(None, percent=False, higher_is_better=False),
    r"set_coverage@([1-9]\d?)": SetMetric(None, percent=True, higher_is_better=True),
}
SPLIT_METRICS = {
    r"psp@([1-9]\d*)": SetMetric(propensity.psp, percent=True, higher_is_better=True),
    r"psndcg@([1-9]\d*)": SetMetric(propensity.psndcg, percent=True, higher_is_better=True),
    r"psr@([1-9]\d*)": SetMetric(propensity.psr, percent=True, higher_is_better=True),
    r"coverage@([1-9]\d*)": SetMetric(None, percent=True, higher_is_better=True),
    "median_rank": SetMetric(None, percent=False, higher_is_better=False),
}


def get_metric(name: str, ties: str = "worst", max_relevant: int | None = None) -> RankingMetric | SetMetric:
    """Returns the Keras metric of a name such as `top1_error`, `ndcg@5` or `map`, or a metric of sets.

    Args:
      name: one of `METRICS` or `SPLIT_METRICS`, with a number for K; of `SET_METRICS` or `DECISION_METRICS`;
        or of `PREDICTION_SET_METRICS`, with a coverage P in percent. Only `METRICS` use the other arguments.
      ties, max_relevant: see `losses.metrics.functional`.

    Raises:
      ValueError: an unknown name, or an option that is out of its range.

    >>> get_metric("ndcg@5").name
    'ndcg@5'
    """
    for pattern, metric in METRICS.items():
        if match := re.fullmatch(pattern, name):
            options: dict[str, Any] = {option: int(number) for option, number in match.groupdict().items()}
            return metric(ties=ties, max_relevant=max_relevant, **options)
    of_sets = {**SET_METRICS, **DECISION_METRICS, **PREDICTION_SET_METRICS}
    for pattern in of_sets:
        if re.fullmatch(pattern, name):
            return of_sets[pattern]
    if of_split := split_metric(name):
        return of_split
    patterns = (*METRICS, *of_sets, *SPLIT_METRICS)
    known = ", ".join(patterns).replace(r"([1-9]\d?)", "P")
    known = re.sub(r"\(.*?\)", "K", known)
    raise ValueError(f"metric={name!r}: unknown. There are: {known}.")


def split_metric(name: str) -> SetMetric | None:
    """Returns the metric of a split with its `k`; None for other metrics.

    >>> split_metric("coverage@5").k, split_metric("ndcg@5")
    (5, None)
    """
    for pattern, metric in SPLIT_METRICS.items():
        if match := re.fullmatch(pattern, name):
            return dataclasses.replace(metric, k=int(match[1]) if match.groups() else None)
    return None


def stated_coverage(name: str) -> float | None:
    """Returns the coverage in the name of a metric of prediction sets; None for other metrics.

    >>> stated_coverage("set_size@90"), stated_coverage("ndcg@90")
    (0.9, None)
    """
    match = next(filter(None, (re.fullmatch(pattern, name) for pattern in PREDICTION_SET_METRICS)), None)
    return match and int(match[1]) / 100


def is_of_scores(name: str) -> bool:
    """Returns whether a metric follows from the scores of an example alone.

    >>> is_of_scores("ndcg@5"), is_of_scores("f1_macro"), is_of_scores("set_size@90"), is_of_scores("psp@5")
    (True, False, False, False)
    """
    return name not in DECISION_METRICS and stated_coverage(name) is None and split_metric(name) is None

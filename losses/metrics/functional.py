"""Ranking metrics as pure functions: `metric(scores, labels, *, where=None, ties="worst", ...)`.

Each function returns one value per instance, float32 `[...]`, in `[0, 1]` unless its text says otherwise.

Dense gains sort all scores, `O(n log n)`. Metrics of the first K classes sort only these, `O(n log K)`,
unless ties are averaged or reach beyond them. With `max_relevant`, `m`, of at most K or 64, only the relevant
classes are sorted and the others are counted: `O(n log m)`, unless ties are averaged. Reciprocal rank and
top-K accuracy count the classes ahead of the first relevant one, `O(n)`, unless ties are averaged.

No metric hides a problem:
  - Ties: by default ("worst") the true class ranks behind all classes of equal score, and among dense labels
    the lower gain ranks first. The value is deterministic, and a constant scorer gets the worst value.
    "average" is the exact mean over all orders of the tied classes.
  - The value is the worst one (0; error 1; mean rank infinity) if a score is not finite, a label is outside
    the classes or not a finite gain of at least 0, or no class is relevant.
  - The top `n` of `n` classes are always right: top-K accuracy, precision and recall do not accept `K >= n`,
    and return the worst value for a masked list of at most `K` classes. NDCG and MAP use the whole list then.

Common arguments:
  scores: floats `[..., n]`.
  labels: one integer class id per instance, `[...]`, which takes `O(n)` without a sort; or dense gains,
    `[..., n]`, multi-label or graded. A class is relevant if its gain is above 0.
  k: `K`, the number of classes that count, in `1..n-1`; for `ndcg` and `average_precision` at least 1, or
    None for the whole list.
  where: optional bool, broadcastable to `[..., n]`: the classes that take part.
  ties: "worst" or "average".
  max_relevant: the largest number of relevant classes of a list with dense gains, or None.

Common errors:
  ValueError: shapes or dtypes do not fit, an option is out of its range, or (in eager mode, otherwise the
    value is the worst one) a list has more than `max_relevant` relevant classes.
"""

from collections.abc import Callable

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses.metrics import forms
from rank4class.losses.ops import ranks, tensors, top_relevant

__all__ = [
    "TIES",
    "average_precision",
    "check_k",
    "grade_precision",
    "information",
    "mean_rank",
    "mrr",
    "ndcg",
    "precision",
    "recall",
    "top_k_accuracy",
    "top_k_error",
]

TIES = ("worst", "average")


def top_k_accuracy(
    scores: TensorLike,
    labels: TensorLike,
    k: int,
    *,
    where: TensorLike | None = None,
    ties: str = "worst",
    max_relevant: int | None = None,
) -> tf.Tensor:
    """Returns top-K accuracy, `[rank <= K]`; one of several relevant classes is enough.

    >>> top_k_accuracy([[3., 1., 2.], [3., 1., 2.]], [2, 1], k=2).numpy()
    array([1., 0.], dtype=float32)
    >>> top_k_accuracy([[1., 1., 1.]], [2], k=1, ties="average").numpy().round(4)
    array([0.3333], dtype=float32)

    References:
      Rank4Class, eq. 1.
    """
    return _evaluate(forms.top_k_accuracy, scores, labels, where, ties, max_relevant, longer_than=k, most=1)


def top_k_error(
    scores: TensorLike,
    labels: TensorLike,
    k: int,
    *,
    where: TensorLike | None = None,
    ties: str = "worst",
    max_relevant: int | None = None,
) -> tf.Tensor:
    """Returns top-K error, one minus `top_k_accuracy`.

    >>> top_k_error([[3., 1., 2.], [3., 1., 2.]], [2, 1], k=2).numpy()
    array([0., 1.], dtype=float32)
    """
    return 1.0 - top_k_accuracy(scores, labels, k, where=where, ties=ties, max_relevant=max_relevant)


def ndcg(
    scores: TensorLike,
    labels: TensorLike,
    k: int | None = None,
    *,
    where: TensorLike | None = None,
    ties: str = "worst",
    max_relevant: int | None = None,
) -> tf.Tensor:
    r"""Returns the normalized discounted cumulative gain of the first K ranks.

    $$\text{NDCG@}K = \frac{1}{Z} \sum_{i=1}^{K} \frac{2^{t_{\pi(i)}} - 1}{\log_2(1 + i)}$$

    `Z` is the value of the ideal order. With one relevant class it is `[rank <= K] / log2(1 + rank)`.

    >>> ndcg([[3., 1., 2.], [3., 1., 2.]], [2, 1], k=2).numpy().round(4)  # 1 / log2(3), beyond K
    array([0.6309, 0.    ], dtype=float32)
    >>> ndcg([[3., 1., 2.]], [[1., 0., 2.]]).numpy().round(4)  # (1 + 3 / log2(3)) / (3 + 1 / log2(3))
    array([0.7967], dtype=float32)

    References:
      Rank4Class, eq. 2; Järvelin, Kekäläinen (2002).
    """
    return _evaluate(forms.ndcg, scores, labels, where, ties, max_relevant, k=k)


def mrr(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    ties: str = "worst",
    max_relevant: int | None = None,
) -> tf.Tensor:
    """Returns the reciprocal rank of the first relevant class.

    >>> mrr([[3., 1., 2.]], [2]).numpy()
    array([0.5], dtype=float32)
    """
    return _evaluate(forms.mrr, scores, labels, where, ties, max_relevant, most=1)


def mean_rank(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    ties: str = "worst",
    max_relevant: int | None = None,
) -> tf.Tensor:
    r"""Returns the rank of the true class, or the mean rank of the relevant classes, weighted by gain.

    $$\frac{\sum_i i \, t_{\pi(i)}}{\sum_i t_{\pi(i)}}$$

    It is in `1..n` or infinite; lower is better.

    >>> mean_rank([[3., 1., 2.]], [2]).numpy()
    array([2.], dtype=float32)
    """
    return _evaluate(forms.mean_rank, scores, labels, where, ties, max_relevant, worst=float("inf"))


def precision(
    scores: TensorLike,
    labels: TensorLike,
    k: int,
    *,
    where: TensorLike | None = None,
    ties: str = "worst",
    max_relevant: int | None = None,
) -> tf.Tensor:
    """Returns the share of the first K classes that are relevant.

    >>> precision([[3., 1., 2., 0.]], [[1., 0., 1., 1.]], k=3).numpy().round(4)
    array([0.6667], dtype=float32)
    """
    return _evaluate(forms.precision, scores, labels, where, ties, max_relevant, longer_than=k)


def grade_precision(
    scores: TensorLike,
    labels: TensorLike,
    k: int,
    grade: int,
    *,
    where: TensorLike | None = None,
    ties: str = "worst",
    max_relevant: int | None = None,
) -> tf.Tensor:
    """Returns the share of the first K classes that have a grade or a higher one.

    With the highest grade it is the precision of the n-choose-k paper; `precision` counts each grade above 0.

    Args:
      grade: the lowest grade that counts, a whole number of at least 1. A class id has grade 1.

    >>> grade_precision([[3., 1., 2., 0.]], [[1., 0., 2., 2.]], k=2, grade=2).numpy()
    array([0.5], dtype=float32)

    References:
      Swersky, Tarlow, Adams, Zemel, Frey (2012), "Probabilistic n-choose-k models for classification and
      ranking", section 4.2.
    """
    arguments.check_integer(grade=grade)
    labels = tensors.dense("labels", labels)
    are_ids = labels.shape.rank != tensors.dense("scores", scores).shape.rank
    if not are_ids:
        is_lower = (labels >= 0) & (labels < grade)  # invalid labels stay
        labels = tf.where(is_lower, tf.zeros_like(labels), labels)
    values = precision(scores, labels, k, where=where, ties=ties, max_relevant=max_relevant)
    return tf.zeros_like(values) if are_ids and grade > 1 else values


def recall(
    scores: TensorLike,
    labels: TensorLike,
    k: int,
    *,
    where: TensorLike | None = None,
    ties: str = "worst",
    max_relevant: int | None = None,
) -> tf.Tensor:
    """Returns the share of the relevant classes that are among the first K.

    >>> recall([[3., 1., 2., 0.]], [[1., 0., 1., 1.]], k=3).numpy().round(4)
    array([0.6667], dtype=float32)
    """
    return _evaluate(forms.recall, scores, labels, where, ties, max_relevant, longer_than=k)


def average_precision(
    scores: TensorLike,
    labels: TensorLike,
    k: int | None = None,
    *,
    where: TensorLike | None = None,
    ties: str = "worst",
    max_relevant: int | None = None,
) -> tf.Tensor:
    r"""Returns average precision, whose mean over the instances is MAP.

    $$\text{AP@}K = \frac{1}{R} \sum_{i=1}^{K} [t_{\pi(i)} > 0] \, \text{precision@}i$$

    `R` is the number of relevant classes, even if it exceeds `K`, as in TF-Ranking.

    >>> average_precision([[3., 1., 2., 0.]], [[1., 0., 0., 1.]]).numpy()  # (1 / 1 + 2 / 4) / 2
    array([0.75], dtype=float32)

    References:
      McSherry, Najork (2008), "Computing information retrieval performance measures efficiently in
      the presence of tied scores", for the average over ties.
    """
    return _evaluate(forms.average_precision, scores, labels, where, ties, max_relevant, k=k)


def information(values: TensorLike) -> tf.Tensor:
    r"""Returns the information of a metric: the entropy of its value over an evaluation set.

    $$H = -\sum_v p_v \log_2 p_v$$

    `p_v` is the share of the instances with the value `v`. NDCG@K has at least the information of top-K
    accuracy (Theorem 1), and the rank itself has the most.

    Args:
      values: `[N]`, the metric of each instance, not NaN.

    Returns:
      float32 scalar, in bits, in `[0, log2 N]`; a plug-in estimate, biased downwards for small `N`.

    >>> print(information(ndcg([[3., 1., 2.]] * 4, [0, 0, 2, 1], k=2)).numpy())  # 1/2, 1/4, 1/4
    1.5

    References:
      Rank4Class, Theorem 1 and appendix A.
    """
    _, _, counts = tf.unique_with_counts(tf.reshape(values, [-1]))
    shares = tf.cast(counts, tf.float32) / tf.cast(tf.size(values), tf.float32)
    return tf.reduce_sum(shares * tf.math.log(1.0 / shares)) / tf.math.log(2.0)


def check_k(k: int, num_classes: int | None) -> None:
    """Raises ValueError if top-K is trivial for that number of classes."""
    arguments.check_integer(k=k)
    if num_classes is not None and k >= num_classes:
        raise ValueError(f"k={k}: trivial for {num_classes} classes. Choose K in 1..n-1.")


@tf.autograph.experimental.do_not_convert  # AutoGraph would take seconds and change nothing
def _evaluate(
    formula: Callable,
    scores: TensorLike,
    labels: TensorLike,
    where: TensorLike | None,
    ties: str,
    max_relevant: int | None,
    *,
    k: int | None = None,
    longer_than: int | None = None,
    most: int | None = None,
    worst: float = 0.0,
) -> tf.Tensor:
    """Computes a formula of `forms` of the first `k` or `longer_than` classes, or of all.

    Lists of at most `longer_than` classes, and instances that are not valid, have the `worst` value. The
    formula reads the best `most` relevant classes, or all.
    """
    if longer_than is not None:
        check_k(longer_than, tensors.dense("scores", scores).shape[-1])
    elif k is not None:
        arguments.check_integer(k=k)
    limit = longer_than or k
    arguments.check_choice(TIES, ties=ties)
    scores = tensors.dense("scores", scores)
    labels = tensors.dense("labels", labels)
    tensors.check_scores(scores)
    tensors.check_labels(labels, scores)
    size = tf.shape(scores)[-1]
    if where is not None:
        where = tensors.broadcast("where", where, tf.bool, scores)
        size = tf.reduce_sum(tf.cast(where, tf.int32), axis=-1)
    if labels.shape.rank == scores.shape.rank:
        labels = tf.reshape(labels, tf.shape(scores))  # checks shapes that are known only at run time
        gains = tf.cast(labels, tf.float32)
        if where is not None:
            scores = tf.where(where, scores, -float("inf"))
            gains = tf.where(where, gains, 0.0)
        too_many = top_relevant.too_many(gains, max_relevant)
        order = forms.in_order(scores, gains, ties, most or max_relevant, limit)
        values = tf.reshape(formula(order, limit), tf.shape(scores)[:-1])
        is_valid = tf.math.is_finite(scores) & tf.math.is_finite(gains) & (gains >= 0.0)
        is_valid = is_valid if where is None else is_valid | ~where
        has_relevant = tf.reduce_any(gains > 0.0, axis=-1) & ~too_many
        valid = tf.reduce_all(is_valid, axis=-1) & has_relevant
    else:
        first, last = ranks.tie_range(scores, labels, where)

        def of_rank(rank: tf.Tensor) -> tf.Tensor:
            return formula(forms.of_true_class(rank), limit)

        values = of_rank(last) if ties == "worst" else _mean_over(of_rank, first, last, scores)
        valid = True
    return tf.where((size > (longer_than or 0)) & valid, values, worst)


def _mean_over(of_rank: Callable, first: tf.Tensor, last: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Returns the mean of a metric over the ranks `first..last`, from cumulative sums."""
    every_rank = tf.range(1, tf.shape(scores)[-1] + 1)
    each = tf.cast(of_rank(tf.cast(every_rank, tf.float32)), tf.float64)
    sums = tf.concat([tf.zeros([1], tf.float64), tf.cumsum(each)], axis=0)
    valid = tf.math.is_finite(last)
    low, high = (tf.cast(tf.where(valid, rank, 1.0), tf.int32) for rank in (first, last))
    mean = (tf.gather(sums, high) - tf.gather(sums, low - 1)) / tf.cast(high - low + 1, tf.float64)
    return tf.where(valid, tf.cast(mean, tf.float32), of_rank(last))

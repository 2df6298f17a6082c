"""Ranking metrics as pure functions: `metric(scores, labels, *, where=None, ties="worst", ...)`.

Each function returns one value per instance, float32 `[...]`. `scores` is `[..., n]`. `labels` is either one
integer class id per instance, `[...]`, which takes `O(n)` without a sort; or dense gains, `[..., n]`,
multi-label or graded. A class is relevant if its gain is above 0. `where` is an optional bool, broadcastable
to `[..., n]`: the classes that take part.

Dense gains sort all scores, `O(n log n)`. If `max_relevant` limits the relevant classes of a list to `m`,
only these are sorted and the others are counted: `O(n log m)`, unless ties are averaged. A list with more
raises ValueError in eager mode; compiled functions cannot raise, and return the worst value. Class ids ignore
it.

No metric hides a problem:
  - Ties: by default ("worst") the true class ranks behind all classes of equal score, and among dense labels
    the lower gain ranks first. The value is deterministic, and a constant scorer gets the worst value.
    "average" is the exact mean over all orders of the tied classes.
  - The value is the worst one (0; error 1; mean rank infinity) if a score is not finite, a label is outside
    the classes or not a finite gain of at least 0, or no class is relevant.
  - The top `n` of `n` classes are always right: top-K accuracy, precision and recall do not accept `K >= n`,
    and return the worst value for a masked list of at most `K` classes. NDCG and MAP use the whole list then.

The functions `*_of_rank` take the rank of the true class in place of scores and labels.
"""

import functools
import numbers
import typing

import tensorflow as tf

from rank4class.losses.ops import arguments, ranks, thresholds, top_relevant
from rank4class.losses.ops.gains import discount, exponential_gains

__all__ = [
    "TIES",
    "average_precision",
    "check_k",
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


def top_k_accuracy(scores, labels, k, *, where=None, ties="worst", max_relevant=None):
    r"""Returns top-K accuracy, `[rank <= K]`; one of several relevant classes is enough.

    Args:
      scores, labels, where, ties, max_relevant: see the module.
      k: `K`, less than the number of classes.

    Returns:
      float32 `[...]`, in `[0, 1]`.

    Raises:
      ValueError: `k` outside `1..n-1`, or unknown `ties`.

    >>> top_k_accuracy([[3., 1., 2.], [3., 1., 2.]], [2, 1], k=2).numpy()
    array([1., 0.], dtype=float32)
    >>> top_k_accuracy([[1., 1., 1.]], [2], k=1, ties="average").numpy().round(4)
    array([0.3333], dtype=float32)

    References:
      Rank4Class, eq. 1.
    """
    return _evaluate_first(
        (top_k_accuracy_of_rank, _top_k_accuracy_of_order), scores, labels, k, where, ties, max_relevant
    )


def top_k_error(scores, labels, k, *, where=None, ties="worst", max_relevant=None):
    """Returns top-K error, one minus `top_k_accuracy`.

    >>> top_k_error([[3., 1., 2.], [3., 1., 2.]], [2, 1], k=2).numpy()
    array([0., 1.], dtype=float32)
    """
    return 1.0 - top_k_accuracy(scores, labels, k, where=where, ties=ties, max_relevant=max_relevant)


def ndcg(scores, labels, k=None, *, where=None, ties="worst", max_relevant=None):
    r"""Returns the normalized discounted cumulative gain of the first K ranks.

    $$\text{NDCG@}K = \frac{1}{Z} \sum_{i=1}^{K} \frac{2^{t_{\pi(i)}} - 1}{\log_2(1 + i)}$$

    `Z` is the value of the ideal order. With one relevant class it is `[rank <= K] / log2(1 + rank)`.

    Args:
      scores, labels, where, ties, max_relevant: see the module.
      k: `K` of at least 1; None counts the whole list.

    Returns:
      float32 `[...]`, in `[0, 1]`.

    Raises:
      ValueError: `k` less than 1, or unknown `ties`.

    >>> ndcg([[3., 1., 2.], [3., 1., 2.]], [2, 1], k=2).numpy().round(4)  # 1 / log2(3), beyond K
    array([0.6309, 0.    ], dtype=float32)
    >>> ndcg([[3., 1., 2.]], [[1., 0., 2.]]).numpy().round(4)  # (1 + 3 / log2(3)) / (3 + 1 / log2(3))
    array([0.7967], dtype=float32)

    References:
      Rank4Class, eq. 2; Järvelin, Kekäläinen (2002).
    """
    if k is not None:
        check_cutoff("NDCG@K", k)
    return _evaluate((ndcg_of_rank, _ndcg_of_order), scores, labels, where, ties, max_relevant, k=k)


def mrr(scores, labels, *, where=None, ties="worst", max_relevant=None):
    """Returns the reciprocal rank of the first relevant class.

    Args:
      scores, labels, where, ties, max_relevant: see the module.

    Returns:
      float32 `[...]`, in `[0, 1]`.

    >>> mrr([[3., 1., 2.]], [2]).numpy()
    array([0.5], dtype=float32)
    """
    return _evaluate((mrr_of_rank, _mrr_of_order), scores, labels, where, ties, max_relevant)


def mean_rank(scores, labels, *, where=None, ties="worst", max_relevant=None):
    r"""Returns the rank of the true class, or the mean rank of the relevant classes, weighted by gain.

    $$\frac{\sum_i i \, t_{\pi(i)}}{\sum_i t_{\pi(i)}}$$

    Args:
      scores, labels, where, ties, max_relevant: see the module.

    Returns:
      float32 `[...]`, in `1..n` or infinity; lower is better.

    >>> mean_rank([[3., 1., 2.]], [2]).numpy()
    array([2.], dtype=float32)
    """
    forms = (mean_rank_of_rank, _mean_rank_of_order)
    return _evaluate(forms, scores, labels, where, ties, max_relevant, worst=float("inf"))


def precision(scores, labels, k, *, where=None, ties="worst", max_relevant=None):
    """Returns the share of the first K classes that are relevant.

    Args:
      scores, labels, where, ties, max_relevant: see the module.
      k: `K`, less than the number of classes.

    Returns:
      float32 `[...]`, in `[0, 1]`.

    Raises:
      ValueError: `k` outside `1..n-1`, or unknown `ties`.

    >>> precision([[3., 1., 2., 0.]], [[1., 0., 1., 1.]], k=3).numpy().round(4)
    array([0.6667], dtype=float32)
    """
    return _evaluate_first(
        (precision_of_rank, _precision_of_order), scores, labels, k, where, ties, max_relevant
    )


def recall(scores, labels, k, *, where=None, ties="worst", max_relevant=None):
    """Returns the share of the relevant classes that are among the first K.

    Args:
      scores, labels, where, ties, max_relevant: see the module.
      k: `K`, less than the number of classes.

    Returns:
      float32 `[...]`, in `[0, 1]`.

    Raises:
      ValueError: `k` outside `1..n-1`, or unknown `ties`.

    >>> recall([[3., 1., 2., 0.]], [[1., 0., 1., 1.]], k=3).numpy().round(4)
    array([0.6667], dtype=float32)
    """
    return _evaluate_first((recall_of_rank, _recall_of_order), scores, labels, k, where, ties, max_relevant)


def average_precision(scores, labels, k=None, *, where=None, ties="worst", max_relevant=None):
    r"""Returns average precision, whose mean over the instances is MAP.

    $$\text{AP@}K = \frac{1}{R} \sum_{i=1}^{K} [t_{\pi(i)} > 0] \, \text{precision@}i$$

    `R` is the number of relevant classes, even if it exceeds `K`, as in TF-Ranking.

    Args:
      scores, labels, where, ties, max_relevant: see the module.
      k: `K` of at least 1; None counts the whole list.

    Returns:
      float32 `[...]`, in `[0, 1]`.

    Raises:
      ValueError: `k` less than 1, or unknown `ties`.

    >>> average_precision([[3., 1., 2., 0.]], [[1., 0., 0., 1.]]).numpy()  # (1 / 1 + 2 / 4) / 2
    array([0.75], dtype=float32)

    References:
      McSherry, Najork (2008), "Computing information retrieval performance measures efficiently in
      the presence of tied scores", for the average over ties.
    """
    if k is not None:
        check_cutoff("MAP@K", k)
    forms = (average_precision_of_rank, _average_precision_of_order)
    return _evaluate(forms, scores, labels, where, ties, max_relevant, k=k)


def information(values):
    r"""Returns the information of a metric: the entropy of its value over an evaluation set.

    $$H = -\sum_v p_v \log_2 p_v$$

    `p_v` is the share of the instances with the value `v`. NDCG@K has at least the information of top-K
    accuracy (Theorem 1), and the rank itself has the most.

    Args:
      values: `[N]`, the metric of each instance, not NaN.

    Returns:
      float32 scalar, in bits, in `[0, log2 N]`; a plug-in estimate, biased downwards for small `N`.

    >>> information(ndcg([[3., 1., 2.]] * 4, [0, 0, 2, 1], k=2)).numpy()  # 1/2, 1/4, 1/4
    1.5
    >>> information(top_k_accuracy([[3., 1., 2.]] * 4, [0, 0, 2, 1], k=2)).numpy().round(4)
    0.8113

    References:
      Rank4Class, Theorem 1 and appendix A.
    """
    _, _, counts = tf.unique_with_counts(tf.reshape(values, [-1]))
    shares = tf.cast(counts, tf.float32) / tf.cast(tf.size(values), tf.float32)
    return tf.reduce_sum(shares * tf.math.log(1.0 / shares)) / tf.math.log(2.0)


def top_k_accuracy_of_rank(rank, k):
    return tf.cast(rank <= k, tf.float32)


def top_k_error_of_rank(rank, k):
    return 1.0 - top_k_accuracy_of_rank(rank, k)


def ndcg_of_rank(rank, k=None):
    return tf.where(_counted(rank, k), discount(rank), 0.0)


def mrr_of_rank(rank):
    # A graph turns 1.0 / rank into an approximation, which is 0.99999994 for some ranks of 1.
    return tf.math.divide_no_nan(1.0, rank)


def mean_rank_of_rank(rank):
    return rank


recall_of_rank = top_k_accuracy_of_rank


def precision_of_rank(rank, k):
    return top_k_accuracy_of_rank(rank, k) / k


def average_precision_of_rank(rank, k=None):
    return tf.where(_counted(rank, k), mrr_of_rank(rank), 0.0)


def check_k(k, num_classes):
    """Raises ValueError if top-K is trivial for that number of classes."""
    if k < 1 or (num_classes is not None and k >= num_classes):
        raise ValueError(f"k={k}: trivial for {num_classes} classes. Choose K in 1..n-1.")


def _evaluate_first(forms, scores, labels, k, where, ties, max_relevant):
    """Computes a metric of the first K classes, which is trivial for lists of at most K classes."""
    check_k(k, arguments.dense("scores", scores).shape[-1])
    return _evaluate(forms, scores, labels, where, ties, max_relevant, longer_than=k, k=k)


@tf.autograph.experimental.do_not_convert  # AutoGraph would take seconds and change nothing
def _evaluate(forms, scores, labels, where, ties, max_relevant, *, worst=0.0, longer_than=0, **options):
    """Computes a metric in the form that fits the labels.

    Args:
      forms: `of_rank(rank, **options)` for class ids, `of_order(order, **options)` for dense labels.
      scores, labels, where, ties, max_relevant: see the module.
      worst: the value of instances that are not valid.
      longer_than: lists of at most this length get the worst value.
      **options: passed to the form.
    """
    arguments.check_choice("ties", ties, TIES)
    of_rank, of_order = forms
    scores, labels = arguments.dense("scores", scores), arguments.dense("labels", labels)
    _check_shapes(scores, labels)
    size = tf.shape(scores)[-1]
    if where is not None:
        where = arguments.broadcast("where", where, tf.bool, scores)
        size = tf.reduce_sum(tf.cast(where, tf.int32), axis=-1)
    if labels.shape.rank == scores.shape.rank:
        labels = tf.reshape(labels, tf.shape(scores))  # checks shapes that are known only at run time
        gains = tf.cast(labels, tf.float32)
        if where is not None:
            scores, gains = tf.where(where, scores, -float("inf")), tf.where(where, gains, 0.0)
        top_relevant.check(gains, max_relevant)
        order = _order(scores, gains, ties, max_relevant)
        values = tf.reshape(of_order(order, **options), tf.shape(scores)[:-1])
        valid = _is_valid(scores, gains, where, max_relevant)
    else:
        first, last = ranks.tie_range(scores, labels, where)
        of_rank = functools.partial(of_rank, **options)
        values = of_rank(last) if ties == "worst" else _mean_over(of_rank, first, last, scores)
        valid = True
    return tf.where((size > longer_than) & valid, values, worst)


def _check_shapes(scores, labels):
    if not scores.dtype.is_floating or not scores.shape.rank:
        raise ValueError(f"scores must be floats of shape [..., n], got {scores.dtype.name} {scores.shape}")
    if labels.shape.rank is None:
        raise ValueError("labels need a known rank: give them one with tf.ensure_shape")
    if not any(map(labels.shape.is_compatible_with, (scores.shape, scores.shape[:-1]))):
        raise ValueError(
            f"labels of shape {labels.shape} do not fit scores of shape {scores.shape}: give one integer "
            f"per instance, {scores.shape[:-1]}, or one gain per class, {scores.shape}"
        )


def _is_valid(scores, gains, where, max_relevant):
    """Returns whether scores, gains and the number of relevant classes are valid, bool `[...]`."""
    valid = tf.math.is_finite(scores) & tf.math.is_finite(gains) & (gains >= 0.0)
    if where is not None:
        valid |= ~where
    some = tf.reduce_any(gains > 0.0, axis=-1)
    return tf.reduce_all(valid, axis=-1) & some & ~top_relevant.too_many(gains, max_relevant)


def _mean_over(of_rank, first, last, scores):
    """Returns the mean of a metric over the ranks `first..last`, from cumulative sums."""
    every_rank = tf.range(1, tf.shape(scores)[-1] + 1)
    each = tf.cast(of_rank(tf.cast(every_rank, tf.float32)), tf.float64)
    sums = tf.concat([tf.zeros([1], tf.float64), tf.cumsum(each)], axis=0)
    valid = tf.math.is_finite(last)
    low, high = (tf.cast(tf.where(valid, rank, 1.0), tf.int32) for rank in (first, last))
    mean = (tf.gather(sums, high) - tf.gather(sums, low - 1)) / tf.cast(high - low + 1, tf.float64)
    return tf.where(valid, tf.cast(mean, tf.float32), of_rank(last))


class _Runs(typing.NamedTuple):
    """For every class in order, its run: the classes of equal score."""

    before: tf.Tensor  # classes ahead of the run
    relevant_before: tf.Tensor
    size: tf.Tensor
    relevant: tf.Tensor
    mean: typing.Callable  # from values to their mean over the run


class _Order(typing.NamedTuple):
    """The classes of each list in the order of their scores, `[N, m]`.

    If ties are averaged, these are all classes and `runs` is set. Otherwise they include all relevant
    classes.
    """

    gains: tf.Tensor
    relevant: tf.Tensor  # 1.0 or 0.0
    rank: tf.Tensor  # among all classes, 1..n
    runs: _Runs | None


def _order(scores, gains, ties, max_relevant):
    n = arguments.length(scores)
    if scores.dtype != tf.float64:
        scores = tf.cast(scores, tf.float32)
    scores, gains = tf.reshape(scores, [-1, n]), tf.reshape(gains, [-1, n])
    left_out = None
    if ties == "worst" and max_relevant is not None:  # only the number of irrelevant classes ahead matters
        left_out = tf.where(gains <= 0.0, scores, -float("inf"))
        scores, gains = top_relevant.sorted_scores(scores, gains, max_relevant)
    scores, gains = _lesser_first(scores, gains)
    rank = tf.broadcast_to(tf.range(1, arguments.length(scores) + 1), tf.shape(scores))
    if left_out is not None:
        rank += thresholds.at_or_above(left_out, scores)
    rank = tf.cast(rank, tf.float32)
    is_relevant = tf.cast(gains > 0.0, tf.float32)
    runs = None if ties == "worst" else _runs(scores, is_relevant, rank)
    return _Order(gains, is_relevant, rank, runs)


def _lesser_first(scores, gains):
    """Sorts scores and gains by score; among equal scores the lower gain comes first."""
    scores = tf.where(scores == 0.0, tf.zeros_like(scores), scores)  # XLA sorts -0.0 behind 0.0
    # Sort by gain first: the stable sort by score keeps that order among equal scores.
    by_gain = tf.argsort(gains, axis=-1, stable=True)
    by_score = tf.argsort(ranks.take(scores, by_gain), axis=-1, direction="DESCENDING", stable=True)
    order = ranks.take(by_gain, by_score)
    return ranks.take(scores, order), ranks.take(gains, order)


def _runs(scores, is_relevant, rank):
    run = ranks.number_runs(scores)

    def gather_runs(reduce, values):
        of_run = reduce(tf.reshape(values, [-1]), tf.reshape(run, [-1]), tf.size(run))
        return tf.gather(of_run, run)

    total = functools.partial(gather_runs, tf.math.unsorted_segment_sum)
    least = functools.partial(gather_runs, tf.math.unsorted_segment_min)
    size = total(tf.ones_like(rank))
    return _Runs(
        before=least(rank) - 1.0,
        relevant_before=least(ranks.running(tf.add, is_relevant) - is_relevant),
        size=size,
        relevant=total(is_relevant),
        mean=lambda values: total(values) / size,
    )


def _expected(values, order):
    """Returns values in order or, if ties are averaged, the expected value at each rank."""
    return values if order.runs is None else order.runs.mean(values)


def _first_relevant(order):
    """Returns the probability that the first relevant class is at each rank."""
    if order.runs is None:
        return tf.where(ranks.running(tf.add, order.relevant) == 1.0, order.relevant, 0.0)
    # Of m relevant among t classes, the first is the x-th with probability C(t - x, m - 1) / C(t, m).
    runs = order.runs
    t, m = (tf.cast(x, tf.float64) for x in (runs.size, runs.relevant))
    x = tf.cast(order.rank - runs.before, tf.float64)
    possible = (runs.relevant_before == 0.0) & (m > 0.0) & (x <= t - m + 1.0)
    t, m, x = (tf.where(possible, value, tf.ones_like(value)) for value in (t, m, x))
    probability = tf.exp(_log_choose(t - x, m - 1.0) - _log_choose(t, m))
    return tf.where(possible, tf.cast(probability, tf.float32), 0.0)


def _log_choose(n, k):
    return tf.math.lgamma(n + 1.0) - tf.math.lgamma(k + 1.0) - tf.math.lgamma(n - k + 1.0)


def _top_k_accuracy_of_order(order, k):
    return tf.reduce_sum(tf.where(order.rank <= k, _first_relevant(order), 0.0), axis=-1)


def _mrr_of_order(order):
    return tf.reduce_sum(_first_relevant(order) / order.rank, axis=-1)


def _ndcg_of_order(order, k=None):
    def collected(gains, rank):
        return tf.reduce_sum(tf.where(_counted(rank, k), gains * discount(rank), 0.0), axis=-1)

    gains = exponential_gains(order.gains)
    ideal = tf.sort(gains, axis=-1, direction="DESCENDING")
    first_ranks = tf.range(1, arguments.length(gains) + 1, dtype=tf.float32)
    return tf.math.divide_no_nan(
        collected(_expected(gains, order), order.rank), collected(ideal, first_ranks)
    )


def _mean_rank_of_order(order):
    largest = tf.reduce_max(order.gains, axis=-1, keepdims=True)
    gains = tf.math.divide_no_nan(order.gains, largest)  # no sum exceeds float32
    total = tf.reduce_sum(_expected(gains, order) * order.rank, axis=-1)
    return tf.math.divide_no_nan(total, tf.reduce_sum(gains, axis=-1))


def _precision_of_order(order, k):
    return _relevant_among(order, k) / k


def _recall_of_order(order, k):
    return tf.math.divide_no_nan(_relevant_among(order, k), tf.reduce_sum(order.relevant, axis=-1))


def _average_precision_of_order(order, k=None):
    if order.runs is None:
        hits = order.relevant * ranks.running(tf.add, order.relevant)
    else:
        runs = order.runs
        others = tf.math.divide_no_nan(runs.relevant - 1.0, runs.size - 1.0)
        earlier = runs.relevant_before + (order.rank - runs.before - 1.0) * others
        hits = runs.relevant / runs.size * (earlier + 1.0)
    counted = tf.where(_counted(order.rank, k), hits / order.rank, 0.0)
    return tf.math.divide_no_nan(tf.reduce_sum(counted, axis=-1), tf.reduce_sum(order.relevant, axis=-1))


def _relevant_among(order, k):
    return tf.reduce_sum(tf.where(order.rank <= k, _expected(order.relevant, order), 0.0), axis=-1)


def _counted(rank, k):
    return tf.math.is_finite(rank) if k is None else rank <= k


def check_cutoff(name, k):
    """Raises ValueError, which names the metric, unless K is an integer of at least 1."""
    if not isinstance(k, numbers.Integral):
        raise ValueError(f"{name}: K must be an integer, got {k!r}")
    if k < 1:
        raise ValueError(f"{name} needs K of at least 1, got {k}")

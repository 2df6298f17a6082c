"""The formulas of metrics: functions of the `Order` of lists and of `k`, which return one value per list.

A `k` of None counts the whole list; reciprocal rank and mean rank ignore it.
"""

import functools
import typing
from collections.abc import Callable

import tensorflow as tf

from rank4class import scan
from rank4class.losses.ops import ranks, tensors, thresholds, top_relevant
from rank4class.losses.ops.gains import discount, exponential_gains

_FEW = 64  # relevant classes, which are sorted in about the time of the first K, and whatever the ties


class Runs(typing.NamedTuple):
    """For every class in order, its run: the classes of equal score."""

    before: tf.Tensor  # classes ahead of the run
    relevant_before: tf.Tensor
    size: tf.Tensor
    relevant: tf.Tensor
    mean: Callable  # from values to their mean over the run


class Order(typing.NamedTuple):
    """The classes of each list in the order of their scores, `[N, m]`.

    If ties are averaged, these are all classes and `runs` is set. Otherwise they include all relevant
    classes or, for a metric of the first `k` classes, these and one more.
    """

    gains: tf.Tensor
    all_gains: tf.Tensor  # of all relevant classes, in any order
    relevant: tf.Tensor  # 1.0 or 0.0
    rank: tf.Tensor  # among all classes, 1..n, or infinity in an invalid list
    runs: Runs | None


def of_true_class(rank: tf.Tensor) -> Order:
    """Returns the `Order` of lists with one relevant class, of which only that class is read, `[..., 1]`."""
    one = tf.ones_like(rank)[..., None]
    return Order(one, one, one, rank[..., None], None)


def in_order(
    scores: tf.Tensor, gains: tf.Tensor, ties: str, max_relevant: int | None, k: int | None = None
) -> Order:
    """Returns the `Order` of lists `[..., n]` for a metric of the first `k` classes, or of all."""
    n = tensors.length(scores)
    if scores.dtype != tf.float64:
        scores = tf.cast(scores, tf.float32)
    scores = tf.reshape(scores, [-1, n])
    gains = tf.reshape(gains, [-1, n])
    left_out = None
    few = max_relevant is not None and (k is None or max_relevant <= max(k, _FEW))
    if ties == "worst" and few:  # only the number of irrelevant classes ahead matters
        left_out = tf.where(gains <= 0.0, scores, -float("inf"))
        scores, gains = top_relevant.sorted_scores(scores, gains, max_relevant)
    all_gains = gains
    scores = tf.where(scores == 0.0, tf.zeros_like(scores), scores)  # XLA sorts -0.0 behind 0.0
    if ties == "worst" and left_out is None and k is not None and isinstance(n, int) and k < n:
        scores, gains = _first_with_lesser_first(scores, gains, k + 1)
    else:
        scores, gains = _lesser_first(scores, gains)
    rank = tf.broadcast_to(tf.range(1, tensors.length(scores) + 1), tf.shape(scores))
    if left_out is not None:
        if max_relevant == 1:
            rank += tf.math.count_nonzero(left_out >= scores, axis=-1, keepdims=True, dtype=tf.int32)
        else:
            rank += thresholds.at_or_above(left_out, scores)
    rank = tf.cast(rank, tf.float32)
    is_relevant = tf.cast(gains > 0.0, tf.float32)
    runs = None if ties == "worst" else _runs(scores, is_relevant, rank)
    return Order(gains, all_gains, is_relevant, rank, runs)


def _first_with_lesser_first(scores: tf.Tensor, gains: tf.Tensor, most: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first scores and gains of `_lesser_first`; the last may have another gain."""
    top, classes = tf.math.top_k(scores, most)
    last = tf.reduce_min(top, axis=-1, keepdims=True)  # a slice would make XLA sort all scores
    last_is_tied = tf.math.count_nonzero(top == last, axis=-1) > 1

    def of_all() -> tuple[tf.Tensor, ...]:
        return tuple(x[:, :most] for x in _lesser_first(scores, gains))

    return tf.cond(
        tf.reduce_any(last_is_tied), of_all, lambda: _lesser_first(top, ranks.take(gains, classes))
    )


def _lesser_first(scores: tf.Tensor, gains: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sorts scores and gains by score; among equal scores the lower gain comes first."""
    in_order, order = tf.math.top_k(scores, tensors.length(scores))
    gains_in_order = ranks.take(gains, order)
    is_tie = in_order[:, :-1] == in_order[:, 1:]
    is_out_of_order = is_tie & (gains_in_order[:, :-1] > gains_in_order[:, 1:])

    def by_gain_first() -> tuple[tf.Tensor, tf.Tensor]:
        # The stable sort by score keeps the order by gain among equal scores.
        order = tf.argsort(gains, axis=-1, stable=True)
        by_score = tf.argsort(ranks.take(scores, order), axis=-1, direction="DESCENDING", stable=True)
        return in_order, ranks.take(gains, ranks.take(order, by_score))

    return tf.cond(tf.reduce_any(is_out_of_order), by_gain_first, lambda: (in_order, gains_in_order))


def _runs(scores: tf.Tensor, is_relevant: tf.Tensor, rank: tf.Tensor) -> Runs:
    run = ranks.number_runs(scores)

    def gather_runs(reduce: Callable, values: tf.Tensor) -> tf.Tensor:
        run_values = reduce(tf.reshape(values, [-1]), tf.reshape(run, [-1]), tf.size(run))
        return tf.gather(run_values, run)

    total = functools.partial(gather_runs, tf.math.unsorted_segment_sum)
    least = functools.partial(gather_runs, tf.math.unsorted_segment_min)
    size = total(tf.ones_like(rank))
    return Runs(
        before=least(rank) - 1.0,
        relevant_before=least(scan.running(tf.add, is_relevant) - is_relevant),
        size=size,
        relevant=total(is_relevant),
        mean=lambda values: total(values) / size,
    )


def _expected(values: tf.Tensor, order: Order) -> tf.Tensor:
    """Returns values in order or, if ties are averaged, the expected value at each rank."""
    return values if order.runs is None else order.runs.mean(values)


def _of_first_relevant(order: Order, weigh: Callable) -> tf.Tensor:
    """Returns the expected value at the first relevant class.

    `weigh` multiplies probabilities of ranks by their values, which are at least 0 and never rise.
    """
    if order.runs is None:
        return tf.reduce_max(weigh(order.relevant), axis=-1)
    # Of m relevant among t classes, the first is the x-th with probability C(t - x, m - 1) / C(t, m).
    runs = order.runs
    t, m = (tf.cast(x, tf.float64) for x in (runs.size, runs.relevant))
    x = tf.cast(order.rank - runs.before, tf.float64)
    possible = (runs.relevant_before == 0.0) & (m > 0.0) & (x <= t - m + 1.0)
    t, m, x = (tf.where(possible, value, tf.ones_like(value)) for value in (t, m, x))
    probability = tf.cast(tf.exp(_log_choose(t - x, m - 1.0) - _log_choose(t, m)), tf.float32)
    return tf.reduce_sum(weigh(tf.where(possible, probability, 0.0)), axis=-1)


def _log_choose(n: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    return tf.math.lgamma(n + 1.0) - tf.math.lgamma(k + 1.0) - tf.math.lgamma(n - k + 1.0)


def top_k_accuracy(order: Order, k: int) -> tf.Tensor:
    return _of_first_relevant(order, lambda probability: tf.where(order.rank <= k, probability, 0.0))


def mrr(order: Order, k: int | None) -> tf.Tensor:
    return _of_first_relevant(order, lambda probability: _over_rank(probability, order))


def ndcg(order: Order, k: int | None) -> tf.Tensor:
    def collected(gains: tf.Tensor, rank: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.where(_counted(rank, k), gains * discount(rank), 0.0), axis=-1)

    largest = tf.reduce_max(order.all_gains, axis=-1, keepdims=True)
    gains = exponential_gains(order.gains, largest)
    ideal = _falling(exponential_gains(order.all_gains, largest), k)
    first_ranks = tf.range(1, tensors.length(ideal) + 1, dtype=tf.float32)
    return tf.math.divide_no_nan(
        collected(_expected(gains, order), order.rank), collected(ideal, first_ranks)
    )


def _falling(gains: tf.Tensor, k: int | None) -> tf.Tensor:
    """Returns the `k` highest gains, or all, in order; those of one value besides 0 need no sort."""
    n = tensors.length(gains)
    if k is not None and isinstance(n, int) and k < n:
        return tf.math.top_k(gains, k)[0]
    highest = tf.reduce_max(gains, axis=-1, keepdims=True)
    is_gain = gains > 0.0
    are_equal = tf.reduce_all(gains == tf.where(is_gain, highest, 0.0))
    is_first = tf.range(n) < tf.math.count_nonzero(is_gain, axis=-1, keepdims=True, dtype=tf.int32)
    return tf.cond(
        are_equal,
        lambda: tf.where(is_first, highest, 0.0),
        lambda: tf.sort(gains, axis=-1, direction="DESCENDING"),
    )


def mean_rank(order: Order, k: int | None) -> tf.Tensor:
    largest = tf.reduce_max(order.gains, axis=-1, keepdims=True)
    gains = tf.math.divide_no_nan(order.gains, largest)  # no sum exceeds float32
    total = tf.reduce_sum(_expected(gains, order) * order.rank, axis=-1)
    return tf.math.divide_no_nan(total, tf.reduce_sum(gains, axis=-1))


def precision(order: Order, k: int) -> tf.Tensor:
    return _relevant_among(order, k) / k


def recall(order: Order, k: int) -> tf.Tensor:
    return tf.math.divide_no_nan(_relevant_among(order, k), _num_relevant(order))


def average_precision(order: Order, k: int | None) -> tf.Tensor:
    if order.runs is None:
        hits = order.relevant * ranks.running_sum(order.relevant)
    else:
        runs = order.runs
        others = tf.math.divide_no_nan(runs.relevant - 1.0, runs.size - 1.0)
        earlier = runs.relevant_before + (order.rank - runs.before - 1.0) * others
        hits = runs.relevant / runs.size * (earlier + 1.0)
    counted = tf.where(_counted(order.rank, k), _over_rank(hits, order), 0.0)
    return tf.math.divide_no_nan(tf.reduce_sum(counted, axis=-1), _num_relevant(order))


def _over_rank(values: tf.Tensor, order: Order) -> tf.Tensor:
    # A graph turns 1.0 / rank into an approximation, which is 0.99999994 for some ranks of 1.
    return tf.math.divide_no_nan(values, order.rank)


def _relevant_among(order: Order, k: int) -> tf.Tensor:
    return tf.reduce_sum(tf.where(order.rank <= k, _expected(order.relevant, order), 0.0), axis=-1)


def _num_relevant(order: Order) -> tf.Tensor:
    return tf.math.count_nonzero(order.all_gains > 0.0, axis=-1, dtype=tf.float32)


def _counted(rank: tf.Tensor, k: int | None) -> tf.Tensor:
    return tf.math.is_finite(rank) if k is None else rank <= k

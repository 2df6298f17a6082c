r"""n-choose-k models with a random size: a prior of the size, and the distribution of the set given its size.

$$p(c) = p(k) \, p(c \mid k), \quad k = |c|$$

Results for all counts `0..m` share circles (see `n_choose_k`): one circle of `O(n)` serves all counts within
two standard deviations of its count. There are about `m / (4 sqrt(v))` circles, where `v` is the variance of
the shifted coins. That is `O(n sqrt(n))` for all counts of similar scores. The worst case is `O(n m)`, for
scores so far apart that one set of each size is nearly certain.

Common arguments:
  scores, where: see `n_choose_k`.
  log_prior: `log p(k)`, float `[..., m + 1]` for the counts `0..m`, broadcastable over the instances, with
    `m` at most `n`; minus infinity for impossible counts. Counts above `m` are impossible.

Types of results, and results of invalid scores: see `n_choose_k`.

Common errors:
  ValueError: shapes or dtypes do not fit, there is no class; or (in eager mode, otherwise the result is NaN)
    a prior has NaN, has no possible count, or allows more classes than take part.

References:
  Swersky, Tarlow, Adams, Zemel, Frey (2012), "Probabilistic n-choose-k models for classification and
  ranking", sections 2 and 2.2.
"""

from collections.abc import Callable

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses.ops import n_choose_k, ranks, tensors
from rank4class.losses.ops import poisson_binomial as coins

_LEAST = 0.1  # counts of a smaller probability, relative to the peak's, need another circle


def log_z_by_count(
    scores: TensorLike, most: int | None = None, *, where: TensorLike | None = None
) -> tf.Tensor:
    """Returns `n_choose_k.log_z` of the counts `0..most`, by default `0..n`, as `[..., most + 1]`.

    Counts above the number of classes have minus infinity.

    >>> log_z_by_count([[0.0, 0.0, 0.0]]).numpy().round(4)  # log 1, log 3, log 3, log 1
    array([[0.    , 1.0986, 1.0986, 0.    ]], dtype=float32)
    """
    scores, where, dtype = n_choose_k.checked(scores, where)
    most = scores.shape[-1] if most is None else most
    arguments.check_integer(0, scores.shape[-1], most=most)

    @tf.custom_gradient
    def value(scores: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return _mixed(scores, upstream, where)

        return _log_z_by_count(tf.stop_gradient(scores), most, where), gradient

    return tf.cast(value(scores), dtype)


def poisson_binomial(scores: TensorLike, *, where: TensorLike | None = None) -> tf.Tensor:
    r"""Returns the log-probability of each count of independent classes, `[..., n + 1]`.

    $$\log p(k) = \log Z_k(s) - \sum_j \log(1 + e^{s_j})$$

    References:
      Eq. 2.

    >>> tf.exp(poisson_binomial([[0.0, 0.0]])).numpy()
    array([[0.25, 0.5 , 0.25]], dtype=float32)
    """
    scores, where, dtype = n_choose_k.checked(scores, where)
    total = tf.reduce_sum(tf.where(where, tf.math.softplus(scores), 0.0), axis=-1, keepdims=True)
    # Rounding of two large terms could make it positive.
    return tf.cast(tf.minimum(log_z_by_count(scores, where=where) - total, 0.0), dtype)


def log_likelihood(
    scores: TensorLike, chosen: TensorLike, log_prior: TensorLike, *, where: TensorLike | None = None
) -> tf.Tensor:
    r"""Returns the log-probability of a set, including its size, `[...]`.

    $$\log p(c) = \log p(k) + \log p(c \mid k)$$

    Args:
      chosen: bool `[..., n]`, the classes of the set; masked classes do not count.

    References:
      Eq. 3.

    >>> log_likelihood([[0.0, 0.0]], [[True, False]], tf.math.log([[0.2, 0.5, 0.3]])).numpy().round(4)
    array([-1.3863], dtype=float32)
    """
    scores, where, dtype = n_choose_k.checked(scores, where)
    chosen = where & tensors.broadcast("chosen", chosen, tf.bool, scores)
    log_prior = _checked_prior(log_prior, scores, where)
    count_log_p = _of_size(log_prior, tf.math.count_nonzero(chosen, axis=-1, dtype=tf.int32))
    return tf.cast(count_log_p + n_choose_k.log_likelihood(scores, chosen, where=where), dtype)


def conditioned(log_prior: TensorLike, where: TensorLike) -> tf.Tensor:
    r"""Returns a prior given that a set has at most the `r` classes that take part, `[..., m + 1]`.

    $$\log p(k \mid k \le r)$$

    >>> tf.exp(conditioned(tf.math.log([[0.2, 0.2, 0.6]]), [[True, False]])).numpy()
    array([[0.5, 0.5, 0. ]], dtype=float32)
    """
    log_prior = tensors.dense("log_prior", log_prior)
    size = tf.math.count_nonzero(where, axis=-1, keepdims=True, dtype=tf.int32)
    possible = tf.range(tensors.length(log_prior)) <= size
    return tf.nn.log_softmax(tf.where(possible, log_prior, tf.cast(-float("inf"), log_prior.dtype)))


def count_nll(log_prior: TensorLike, labels: TensorLike, *, where: TensorLike | None = None) -> tf.Tensor:
    """Returns the negative log-likelihood of the number of classes, the loss of a count prior, `[...]`.

    It is infinite if the prior excludes the count, and NaN if the prior is NaN there.

    Args:
      log_prior: float `[..., m + 1]`, one per instance.
      labels: one gain per class, `[..., n]`, where values above 0 count; or class ids `[...]`.

    >>> count_nll(tf.math.log([[0.25, 0.5, 0.25]]), [[0.0, 1.0, 1.0, 0.0]]).numpy().round(4)
    array([1.3863], dtype=float32)
    """
    log_prior = tf.cast(tensors.dense("log_prior", log_prior), tf.float32)
    labels = tensors.dense("labels", labels)
    if labels.shape.rank == log_prior.shape.rank - 1:
        return -_of_size(log_prior, tf.ones_like(labels, tf.int32))
    is_relevant = labels > 0
    if where is not None:
        is_relevant &= tensors.broadcast("where", where, tf.bool, labels)
    return -_of_size(log_prior, tf.math.count_nonzero(is_relevant, axis=-1, dtype=tf.int32))


def marginals(scores: TensorLike, log_prior: TensorLike, *, where: TensorLike | None = None) -> tf.Tensor:
    r"""Returns the probability of each class over all sizes, `[..., n]`; 0 for masked classes.

    $$p(j \in c) = \sum_k p(k) \, \pi_j(k)$$

    The absolute error is about 1e-15.

    References:
      Section 2.2.

    >>> marginals([[0.0, 0.0]], tf.math.log([[0.2, 0.5, 0.3]])).numpy().round(4)
    array([[0.55, 0.55]], dtype=float32)
    """
    scores, where, dtype = n_choose_k.checked(scores, where)
    log_prior = _checked_prior(log_prior, scores, where)
    return tf.cast(tf.clip_by_value(_mixed(scores, tf.exp(log_prior), where), 0.0, 1.0), dtype)


def most_probable(scores: TensorLike, log_prior: TensorLike, *, where: TensorLike | None = None) -> tf.Tensor:
    r"""Returns the most probable set, over all sizes, bool `[..., n]`.

    Given the size, it has the highest scores, so one sort finds it (Theorem 1):

    $$\arg\max_k \log p(k) + \sum_{i \le k} s_{(i)} - \log Z_k(s)$$

    Among equal scores the first classes win, among equally probable counts the smallest.

    >>> most_probable([[3.0, 1.0, 2.0]], tf.math.log([[0.0, 0.2, 0.8]])).numpy()
    array([[ True, False,  True]])
    """
    scores, where, _ = n_choose_k.checked(scores, where)
    log_prior = _checked_prior(log_prior, scores, where)
    most = tensors.length(log_prior) - 1
    highest, places = tf.math.top_k(tf.where(where, scores, -float("inf")), most)
    taken = tf.range(most) < tf.math.count_nonzero(where, axis=-1, keepdims=True, dtype=tf.int32)
    best_sums = tf.cumsum(tf.where(taken, highest, 0.0), axis=-1)
    best_sums = tf.pad(best_sums, [[0, 0]] * (scores.shape.rank - 1) + [[1, 0]])
    log_z = _log_z_by_count(scores, most, where)
    # An impossible count has a prior and a log_z of minus infinity.
    possible = log_prior > -float("inf")
    likely = tf.where(possible, log_prior + best_sums - tf.where(possible, log_z, 0.0), -float("inf"))
    k = tf.argmax(likely, axis=-1, output_type=tf.int32)
    chosen = tf.range(most) < k[..., None]
    chosen &= tf.math.is_finite(n_choose_k.nan_if_invalid(scores, where))[..., None]
    return ranks.put(chosen, places, scores)


def _of_size(log_prior: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    """Returns `log p(k)` of the counts `k`, `[...]`; minus infinity beyond the last."""
    last = tensors.length(log_prior) - 1
    log_p = tf.gather(log_prior, tf.minimum(k, last), batch_dims=k.shape.rank)
    return tf.where(k <= last, log_p, -float("inf"))


@tf.autograph.experimental.do_not_convert
def _checked_prior(log_prior: TensorLike, scores: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Returns the prior of each instance in float64, `[..., m + 1]`; NaN if it is invalid."""
    log_prior = tensors.dense("log_prior", log_prior)
    most = log_prior.shape[-1] - 1
    n = scores.shape[-1]
    if n is not None and most > n:
        raise ValueError(
            f"log_prior={log_prior.shape}: of counts up to {most}, but there are only {n} classes. "
            "Shorten it."
        )
    counts = tf.range(most + 1, dtype=tf.float64)
    one_each = tf.zeros_like(scores[..., :1]) + tf.zeros_like(counts)
    log_prior = tensors.broadcast("log_prior", log_prior, tf.float64, one_each)
    impossible = (counts > coins.size_of(where)[..., None]) & (log_prior > -float("inf"))
    right = tf.math.is_finite(tf.reduce_max(log_prior, axis=-1)) & ~tf.reduce_any(
        impossible | tf.math.is_nan(log_prior), axis=-1
    )
    if (culprit := tensors.first_wrong(right)) is not None:
        raise ValueError(
            f"log_prior{culprit}: no distribution of counts up to the number of classes that take part. "
            "Correct it."
        )
    return tf.where(right[..., None], log_prior, tf.constant(float("nan"), tf.float64))


@tf.function(jit_compile=True, autograph=False)
def _log_z_by_count(scores: tf.Tensor, most: int, where: tf.Tensor) -> tf.Tensor:
    """Returns `log Z_k` of the counts `0..most`, an int; see `log_z_by_count`."""
    counts = tf.range(most + 1, dtype=tf.float64)
    size = coins.size_of(where)[..., None]

    def visit(
        circle: coins.Circle, away: tf.Tensor, ratio: tf.Tensor, covered: tf.Tensor, values: tf.Tensor
    ) -> tf.Tensor:
        circle_log_z = coins.log_z(circle, scores, where) - tf.zeros_like(circle.k)
        others = circle_log_z[..., None] + tf.math.log(ratio) - circle.shift[..., None] * away
        return tf.where(covered, others, values)

    values = tf.zeros(tf.concat([tf.shape(scores)[:-1], [most + 1]], axis=0), tf.float64)
    values = _over_counts(scores, most, where, visit, values)
    total = tf.reduce_sum(tf.where(where, scores, 0.0), axis=-1, keepdims=True)
    values = tf.where(counts == size, total, tf.where(counts == 0.0, tf.zeros_like(values), values))
    values = tf.where(counts > size, tf.constant(-float("inf"), tf.float64), values)
    return values + n_choose_k.nan_if_invalid(scores, where)[..., None]


def _mixed(scores: tf.Tensor, weights: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Returns the sum of the marginals of all counts, weighted `[..., m + 1]`; not differentiable."""

    @tf.custom_gradient
    def value(scores: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        def gradient(_: tf.Tensor) -> tf.Tensor:
            raise LookupError("marginals: those of several counts have no gradient. Stop it there.")

        return _mixed_marginals(tf.stop_gradient(scores), tf.stop_gradient(weights), where), gradient

    return value(scores, tf.cast(weights, tf.float64))


@tf.function(jit_compile=True, autograph=False)
def _mixed_marginals(scores: tf.Tensor, weights: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    most = weights.shape[-1] - 1
    counts = tf.range(most + 1, dtype=tf.float64)

    def visit(
        circle: coins.Circle, away: tf.Tensor, ratio: tf.Tensor, covered: tf.Tensor, total: tf.Tensor
    ) -> tf.Tensor:
        each = tf.where(covered, weights / tf.where(covered, ratio, 1.0), 0.0)
        cosine, sine = _turned(circle, away)
        along = tf.reduce_sum(each[..., None, :] * cosine, axis=-1)
        across = tf.reduce_sum(each[..., None, :] * sine, axis=-1)
        real = circle.real * along + circle.imaginary * across
        imaginary = circle.imaginary * along - circle.real * across
        return total + coins.shares(circle._replace(real=real, imaginary=imaginary))

    total = _over_counts(scores, most, where, visit, tf.zeros_like(scores))
    all_of_them = tf.where((counts == coins.size_of(where)[..., None]) & (counts > 0.0), weights, 0.0)
    total += tf.where(where, tf.reduce_sum(all_of_them, axis=-1, keepdims=True), 0.0)
    return total + n_choose_k.nan_if_invalid(scores, where)[..., None]


def _turned(circle: coins.Circle, away: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns cosine and sine of the rotation of a circle's nodes for other counts, `[..., L, m + 1]`."""
    turned = circle.angles[..., None] * away[..., None, :]
    return tf.cos(turned), tf.sin(turned)


def _over_counts(
    scores: tf.Tensor, most: int, where: tf.Tensor, visit: Callable, state: tf.Tensor
) -> tf.Tensor:
    """Visits circles until each count strictly between 0 and the size is near the middle of one.

    `visit(circle, away, ratio, covered, state)` returns the next state. Its arguments are a `coins.Circle`;
    the difference of each count from the circle's, the ratio of their probabilities, and which counts the
    circle covers, all `[..., m + 1]`; and the state, a tensor.
    """
    counts = tf.range(most + 1, dtype=tf.float64)
    size = coins.size_of(where)
    end = tf.minimum(size, float(most + 1))  # of the requested counts
    # The caller sets invalid instances to NaN; their search must end.
    can_be_judged = tf.math.is_finite(n_choose_k.nan_if_invalid(scores, where))
    scores = tf.where(can_be_judged[..., None], scores, 0.0)

    def draw(first: tf.Tensor, reach: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Visits the circle whose count is `reach` above `first`, the lowest missing count."""
        wanted = first < end
        middle = tf.minimum(first + reach, size - 1.0)
        circle = coins.around(scores, tf.where(wanted, middle, 0.5 * tf.maximum(size, 1.0)), where)
        away = counts - circle.k[..., None]
        cosine, sine = _turned(circle, away)
        ratio = tf.reduce_sum(circle.real[..., None] * cosine + circle.imaginary[..., None] * sine, axis=-2)
        # Farther away is the next copy of the distribution.
        near = tf.abs(away) <= 3.0 * tf.sqrt(circle.variance)[..., None] + 1.0
        sound = near & (ratio >= _LEAST)
        holds_first = tf.reduce_any(sound & (counts == first[..., None]), axis=-1) & wanted
        lost = wanted & ~holds_first & (reach == 0.0)  # there is no nearer circle
        ratio = tf.where(sound, ratio, float("nan"))
        covered = sound & holds_first[..., None] & (counts >= first[..., None]) & (counts < end[..., None])
        covered |= lost[..., None] & (counts == first[..., None])
        last = tf.reduce_max(tf.where(covered, counts, -1.0), axis=-1)
        state = visit(circle, away, ratio, covered, state)
        reach = tf.where(holds_first, last - middle, tf.floor(reach / 2.0))
        return tf.where(holds_first | lost, last + 1.0, first), tf.maximum(reach, 0.0), state

    start = (tf.ones_like(size), tf.zeros_like(size), state)
    return tf.while_loop(lambda first, *_: tf.reduce_any(first < end), draw, start)[2]

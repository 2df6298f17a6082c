r"""n-choose-k models: the probability of a set of `k` classes among all sets of `k` classes.

$$p(c \mid k) = \frac{1}{Z_k(s)} \exp \sum_{j \in c} s_j, \quad
Z_k(s) = \sum_{|c| = k} \exp \sum_{j \in c} s_j$$

`Z_k` sums over all sets of `k` classes and is computed in `O(n)`. A shift `t` of all scores changes it by a
known factor. It is chosen so that independent coins with `p_j = sigmoid(s_j + t)` show `k` heads on average.
Then

$$\log Z_k = \log P(k) - t k + \sum_j \log(1 + e^{s_j + t})$$

where `P(k)`, the probability of `k` heads, is near the peak of its distribution, so nothing overflows or
cancels. It is the mean of `e^(-ikw) prod_j (1 + p_j (e^(iw) - 1))` over a circle. The trapezoid rule computes
it to the last digits with at most 28 pairs of nodes for any `n`: with `v = sum p_j (1 - p_j)` the modulus is
at most `exp(-2 v sin^2(w / 2))`, so only nodes where that exceeds `e^-40` count. They are close enough to
keep the copies of the distribution, with standard deviation `sqrt(v)`, at least 12 standard deviations apart.

Common arguments:
  scores: float16, bfloat16, float32 or float64 `[..., n]`, of at most 1e12.
  k: the number of chosen classes: an int, or integers `[...]`, in `0..n`; for a masked list, from 0 to the
    number of classes that take part.
  where: optional bool, broadcastable to `[..., n]`: the classes that take part.

The computation is in float64. Results have the dtype of float64 scores, and float32 otherwise. The result of
an instance is NaN if a score is not finite or exceeds 1e12.

Common errors:
  ValueError: shapes or dtypes do not fit, there is no class, or (in eager mode, otherwise the result is NaN)
    `k` is outside `0..n`.

References:
  Swersky, Tarlow, Adams, Zemel, Frey (2012), "Probabilistic n-choose-k models for classification and
  ranking", eq. 1; Chen, Dempster, Liu (1994), "Weighted finite population sampling to maximize entropy", for
  the shift.
"""

from collections.abc import Callable

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class.losses.ops import poisson_binomial as coins
from rank4class.losses.ops import tensors

_LARGEST = 1e12  # larger scores leave float64 too few digits for the shift
TINY = 1e-8  # smaller marginals have lost half of float64's digits


def log_z(scores: TensorLike, k: TensorLike, *, where: TensorLike | None = None) -> tf.Tensor:
    r"""Returns the logarithm of the summed weights of all sets of `k` classes, `[...]`.

    $$\log Z_k(s) = \log \sum_{|c| = k} \exp \sum_{j \in c} s_j$$

    Its gradient is `marginals`. It takes `O(n)` for any `k`.

    >>> log_z([[0.0, 0.0, 0.0, 0.0]], 2).numpy().round(4)  # log 6
    array([1.7918], dtype=float32)
    """
    scores, where, k, dtype = _checked(scores, k, where)

    @tf.custom_gradient
    def value(scores: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return upstream[..., None] * coin_marginals(scores, k, where)

        return _log_z(tf.stop_gradient(scores), k, where), gradient

    return tf.cast(value(scores), dtype)


def marginals(scores: TensorLike, k: TensorLike, *, where: TensorLike | None = None) -> tf.Tensor:
    r"""Returns the probability that each class is among the `k` chosen, `[..., n]`; 0 for masked classes.

    $$\pi_j = p(j \in c \mid k) = \frac{\partial \log Z_k}{\partial s_j}$$

    It takes `O(n)`, and so does its gradient, the product with the covariance of the chosen classes. The
    relative error is below 1e-7.

    >>> marginals([[9.0, 0.0, 0.0]], 2).numpy().round(4)
    array([[0.9999, 0.5   , 0.5   ]], dtype=float32)
    """
    scores, where, k, dtype = _checked(scores, k, where)
    shares = coin_marginals(scores, k, where)
    is_tiny = shares < TINY
    logs = tiny_log_marginals(scores, k, where, tf.reduce_any(is_tiny))
    return tf.cast(tf.where(is_tiny, tf.exp(logs), shares), dtype)


def tiny_log_marginals(scores: tf.Tensor, k: tf.Tensor, where: tf.Tensor, are_needed: tf.Tensor) -> tf.Tensor:
    r"""Returns the logarithms of `marginals` below `TINY`, without the last factor, which is nearly 1.

    $$\pi_j(k) = e^{s_j} \frac{Z_{k-1}}{Z_k} (1 - \pi_j(k - 1)), \quad \pi_j(k - 1) \le \pi_j(k)$$

    The circle of `k` adds terms of the size of the coins, in whose sum a far smaller marginal cancels.
    Unless `are_needed`, a bool, other numbers are returned, in no time. Masked classes have minus infinity.
    """
    fewer = tf.maximum(k - 1.0, 0.0)

    @tf.custom_gradient  # XLA does not compile TensorFlow's gradient of `tf.cond`
    def log_ratio(scores: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        scores = tf.stop_gradient(scores)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            slope = lambda: _shares(scores, fewer, where) - _shares(scores, k, where)  # noqa: E731
            return upstream[..., None] * tf.cond(are_needed, slope, lambda: tf.zeros_like(scores))

        value = lambda: _log_z(scores, fewer, where) - _log_z(scores, k, where)  # noqa: E731
        return tf.cond(are_needed, value, lambda: tf.zeros_like(k)), gradient

    logs = tf.minimum(scores + log_ratio(scores)[..., None], 0.0)  # other classes must not overflow
    return tf.where(where & (k > 0.0)[..., None], logs, -float("inf"))


def log_likelihood(scores: TensorLike, chosen: TensorLike, *, where: TensorLike | None = None) -> tf.Tensor:
    r"""Returns the log-probability of a set among all sets of its size, `[...]`.

    $$\log p(c \mid k) = \sum_{j \in c} s_j - \log Z_k(s), \quad k = |c|$$

    Args:
      chosen: bool `[..., n]`, the classes of the set; masked classes do not count.

    >>> log_likelihood([[0.0, 0.0, 0.0]], [[True, False, True]]).numpy().round(4)  # one of three
    array([-1.0986], dtype=float32)
    """
    scores, where, dtype = checked(scores, where)
    chosen = where & tensors.broadcast("chosen", chosen, tf.bool, scores)
    k = tf.math.count_nonzero(chosen, axis=-1, dtype=tf.int32)
    total = tf.reduce_sum(tf.where(chosen, scores, 0.0), axis=-1)
    return tf.cast(tf.minimum(total - log_z(scores, k, where=where), 0.0), dtype)


# XLA fuses thousands of small operations into few passes over the classes, without tensors of all nodes.


@tf.function(jit_compile=True, autograph=False)
def _log_z(scores: tf.Tensor, k: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    inner, edge = _inner(k, where)
    value = coins.log_z(coins.around(scores, inner, where), scores, where)
    total = tf.reduce_sum(tf.where(where, scores, 0.0), axis=-1)
    value = tf.where(edge, tf.where(k == 0.0, tf.zeros_like(total), total), value)
    return value + _nan_if_invalid(scores, where, k)


def coin_marginals(scores: tf.Tensor, k: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Returns `marginals` of arguments as in `tiny_log_marginals`, with an absolute error of about 1e-16."""

    @tf.custom_gradient
    def value(scores: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        return _shares(tf.stop_gradient(scores), k, where), lambda upstream: slope(scores, upstream)

    @tf.custom_gradient
    def slope(scores: tf.Tensor, upstream: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        def gradient(_: tf.Tensor) -> tf.Tensor:
            raise LookupError("marginals: can be differentiated only once. Stop the gradient of the first.")

        return _covariance(tf.stop_gradient(scores), k, where, tf.stop_gradient(upstream)), gradient

    return value(scores)


@tf.function(jit_compile=True, autograph=False)
def _shares(scores: tf.Tensor, k: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    inner, edge = _inner(k, where)
    shares = coins.shares(coins.around(scores, inner, where))
    all_or_none = tf.where((k > 0.0)[..., None] & where, tf.ones_like(shares), 0.0)
    shares = tf.where(edge[..., None], all_or_none, tf.clip_by_value(shares, 0.0, 1.0))
    return shares + _nan_if_invalid(scores, where, k)[..., None]


@tf.function(jit_compile=True, autograph=False)
def _covariance(scores: tf.Tensor, k: tf.Tensor, where: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
    """Returns the covariance matrix of the chosen classes times a vector `[..., n]`."""
    inner, edge = _inner(k, where)
    circle = coins.around(scores, inner, where)
    shares = coins.shares(circle)
    both = tf.zeros_like(shares)
    for node in range(circle.angles.shape[-1]):
        real, imaginary = coins.heads_share(circle, node)
        others_real = tf.reduce_sum(vector * real, axis=-1, keepdims=True) - vector * real
        others_imaginary = tf.reduce_sum(vector * imaginary, axis=-1, keepdims=True) - vector * imaginary
        both += circle.real[..., node, None] * (real * others_real - imaginary * others_imaginary)
        both -= circle.imaginary[..., node, None] * (real * others_imaginary + imaginary * others_real)
    mean = tf.reduce_sum(vector * shares, axis=-1, keepdims=True)
    product = tf.where(edge[..., None], tf.zeros_like(both), both + shares * (vector - mean))
    return product + _nan_if_invalid(scores, where, k)[..., None]


def checked(scores: TensorLike, where: TensorLike | None) -> tuple[tf.Tensor, tf.Tensor, tf.DType]:
    """Returns float64 scores, the mask `[..., n]` and the dtype of results; raises ValueError."""
    scores = tensors.dense("scores", scores)
    tensors.check_scores(scores)
    if scores.shape[-1] == 0:
        raise ValueError(f"scores={scores.shape}: no classes. Give at least one.")
    where = tensors.broadcast("where", True if where is None else where, tf.bool, scores)
    return tf.cast(scores, tf.float64), where, tf.float64 if scores.dtype == tf.float64 else tf.float32


@tf.autograph.experimental.do_not_convert
def _checked(
    scores: TensorLike, k: TensorLike, where: TensorLike | None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.DType]:
    """Returns float64 scores, the mask, `k` in float64 `[...]`, and the dtype of results."""
    scores, where, dtype = checked(scores, where)
    k = tensors.dense("k", k)
    if not k.dtype.is_integer:
        raise ValueError(f"k={k.dtype.name}: not integers. Cast it to int32.")
    k = tensors.widen(k)
    k = tensors.broadcast("k", k, k.dtype, scores[..., 0])
    size = tf.math.count_nonzero(where, axis=-1, dtype=k.dtype)
    if (culprit := tensors.first_wrong((k >= 0) & (k <= size))) is not None:
        place = tuple(culprit)
        raise ValueError(
            f"k{culprit}={int(k[place])}: outside 0..{int(size[place])}. Choose one of that range."
        )
    return scores, where, tf.cast(k, tf.float64), dtype


def nan_if_invalid(scores: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Returns 0, or NaN for an instance with a score that is not finite or too large, `[...]`."""
    sound = tf.reduce_all((tf.abs(scores) <= _LARGEST) | ~where, axis=-1)
    return tf.where(sound, tf.zeros_like(scores[..., 0]), float("nan"))


def _nan_if_invalid(scores: tf.Tensor, where: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    within = (k >= 0.0) & (k <= coins.size_of(where))
    return tf.where(within, nan_if_invalid(scores, where), float("nan"))


def _inner(k: tf.Tensor, where: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a `k` strictly between 0 and the size, and whether that replaced `k`."""
    size = coins.size_of(where)
    edge = (k <= 0.0) | (k >= size)
    return tf.where(edge, 0.5 * tf.maximum(size, 1.0), k), edge

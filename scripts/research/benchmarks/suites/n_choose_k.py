"""n-choose-k: the sum over all sets of k classes, value and gradient, against two other algorithms.

`log_z_by_count` computes `log Z` of all counts `0..k` in one call. "naive" is the dynamic program over the
classes, `O(n k)`, in the logarithm. "fft" multiplies the polynomials of the classes pairwise by Fourier
transforms, `O(n log^2 n)`, with the shift of `losses.ops.n_choose_k`, since it would overflow without one.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from rank4class.losses.ops import n_choose_k, poisson_binomial, set_sizes
from rank4class.scripts.research.benchmarks import suite

_MOST_STATES = 2e8  # numbers that the dynamic program keeps for its gradient


def _contenders(size: suite.Size) -> list[suite.Step]:
    batch, n, k = size
    naive = ("naive",) if batch * n * (k + 1.0) <= _MOST_STATES else ()
    names = ("log_z", "log_z_by_count")
    return [step for name in names for step in suite.with_and_without_xla(name, "softmax_ce", "fft", *naive)]


def _build(step: suite.Step, size: suite.Size) -> suite.Compiled:
    batch, n, k = size
    function = functools.partial(_mean, step.name, k) if step.name in _ALGORITHMS else suite.softmax_ce
    return suite.Compiled(suite.value_and_gradient(function), step.xla, *suite.scores_and_labels(batch, n))


def _mean(name: str, k: int, scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    del labels
    return tf.reduce_mean(_ALGORITHMS[name](scores, k))


def _errors(step: suite.Step, size: suite.Size) -> dict[str, float]:
    """Returns the relative errors of a step and of its baselines for one list; none if they are unknown."""
    _, n, k = size
    if n * (k + 1) > _MOST_STATES:
        return {}
    titles = {"error": step.name, **{f"error {name}": name for name in step.against if name in _ALGORITHMS}}
    return {title: _error(name, n, k) for title, name in titles.items()}


@functools.cache
def _error(name: str, n: int, k: int) -> float:
    scores = _one_list(n)
    return abs(float(np.ravel(_ALGORITHMS[name](scores, k)[0])[-1] / _exact(n, k) - 1.0))


def _one_list(n: int) -> tf.Tensor:
    return tf.cast(suite.scores_and_labels(1, n)[0], tf.float64)


@functools.lru_cache(maxsize=1)
def _exact(n: int, k: int) -> np.longdouble:
    """Returns `log Z_k` of `_one_list` by `by_class` in the processor's longest floats."""
    sums = np.full(k + 1, -np.inf, np.longdouble)
    sums[0] = 0.0
    for score in _one_list(n)[0].numpy():
        sums[1:] = np.logaddexp(sums[1:], sums[:-1] + score)
    return sums[k]


def by_class(scores: tf.Tensor, k: int) -> tf.Tensor:
    """Returns `log Z_k` class by class: a set of `i` classes contains the class or not.

    >>> by_class(tf.zeros([1, 4]), 2).numpy().round(4)
    array([1.7918])
    """
    scores = tf.cast(scores, tf.float64)
    none = tf.constant([[0.0] + [-1e300] * k], tf.float64)  # minus infinity has no gradient
    sums = tf.tile(none, [tf.shape(scores)[0], 1])

    def add_class(i: tf.Tensor, sums: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        more = tf.experimental.numpy.logaddexp(sums[:, :-1] + scores[:, i, None], sums[:, 1:])
        return i + 1, tf.concat([sums[:, :1], more], axis=1)

    n = scores.shape[1]
    return tf.while_loop(lambda i, _: i < n, add_class, (0, sums), maximum_iterations=n)[1][:, -1]


def by_polynomials(scores: tf.Tensor, k: int) -> tf.Tensor:
    """Returns `log Z_k` from the coefficient of `z^k` in the product of `q_j + p_j z`.

    >>> by_polynomials(tf.zeros([1, 4]), 2).numpy().round(4)
    array([1.7918])
    """
    scores = tf.cast(scores, tf.float64)
    heads = tf.fill(scores.shape[:1], tf.constant(k, tf.float64))
    shift = tf.stop_gradient(poisson_binomial.find_shift(scores, heads, tf.ones_like(scores, tf.bool)))
    shifted = scores + shift[:, None]
    padding = [[0, 0], [0, 2 ** math.ceil(math.log2(scores.shape[1])) - scores.shape[1]]]
    tails = tf.pad(tf.sigmoid(-shifted), padding, constant_values=1.0)
    factors = tf.stack([tails, tf.pad(tf.sigmoid(shifted), padding)], axis=-1)
    while factors.shape[1] > 1:
        length = 2 * factors.shape[2] - 1
        transformed = tf.signal.rfft(factors, [length + 1])  # even lengths are faster
        product = transformed[:, ::2] * transformed[:, 1::2]
        factors = tf.signal.irfft(product, [length + 1])[..., :length]
    rest = tf.reduce_sum(tf.math.softplus(shifted), axis=1) - k * shift
    return tf.math.log(factors[:, 0, k]) + rest


_ALGORITHMS: dict[str, Callable] = {
    "log_z": n_choose_k.log_z,
    "log_z_by_count": set_sizes.log_z_by_count,
    "naive": by_class,
    "fft": by_polynomials,
}

SUITE = suite.Suite(
    axes="BATCHxCLASSESxK",
    sizes=(
        *("64x28x3", "8x1000x100", "8x10000x10"),
        *(f"8x{n}x{n // 10}" for n in (10_000, 20_000, 40_000, 100_000)),
    ),
    contenders=_contenders,
    build=_build,
    computed=_errors,
)

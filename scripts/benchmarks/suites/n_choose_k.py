"""The benchmark's suite of n-choose-k: the sum over all sets of k classes against two other ways to it.

`log_z_by_count` finds `log Z` of all counts of `0..k` in one call.

"naive" is the dynamic programme over the classes, in the logarithm, `O(n k)`; "fft" multiplies the classes'
polynomials two by two, by Fourier transforms, `O(n log^2 n)`, of coins shifted as ours are, for in the linear
domain it would overflow.
"""

import functools
import math

import numpy as np
import tensorflow as tf

from rank4class.losses.ops import n_choose_k, set_sizes
from rank4class.scripts.benchmarks.suite import (
    Compiled,
    Step,
    Suite,
    scores_and_labels,
    softmax_ce,
    value_and_gradient,
)

_MOST_STATES = 2e8  # numbers that the programme keeps for its gradient


def _steps(size):
    batch, n, k = size
    if k > n:
        raise ValueError(f"a size of {n} classes has no {k} to choose")
    against = ["softmax_ce", "fft"]
    if batch * n * (k + 1.0) <= _MOST_STATES:
        against.append("naive")
    names = ("log_z", "log_z_by_count")
    return [Step(name, xla, tuple(against)) for name in names for xla in (False, True)]


def _build(step, size):
    batch, n, k = size
    scores, labels = scores_and_labels(batch, n)
    way = _WAYS.get(step.name)
    function = functools.partial(_mean, way, k) if way else softmax_ce
    return Compiled(value_and_gradient(function), step.xla, scores, labels)


def _error(step, size):
    """By how much a way's value for one list is wrong, against `programme` in longer floats."""
    _, n, k = size
    if step.name not in _WAYS or n * (k + 1) > _MOST_STATES:
        return None
    scores = tf.cast(scores_and_labels(1, n)[0], tf.float64)
    exact = _exact(scores[0].numpy().tobytes(), k)
    value = np.ravel(_WAYS[step.name](scores, k)[0])[-1]
    return abs(float(value / exact - 1.0))


@functools.lru_cache(maxsize=1)
def _exact(scores, k):
    """`programme` in the processor's longest floats, of the bytes of a list in float64."""
    sums = np.full(k + 1, -np.inf, np.longdouble)
    sums[0] = 0.0
    for score in np.frombuffer(scores):
        sums[1:] = np.logaddexp(sums[1:], sums[:-1] + score)
    return sums[k]


def _mean(log_z, k, scores, labels):
    del labels  # k says how many there are
    return tf.reduce_mean(log_z(scores, k))


def programme(scores, k):
    """`log Z_k` class by class: a set of `i` has the class, and `i - 1` of those before, or has it not.

    >>> programme(tf.zeros([1, 4]), 2).numpy().round(4)
    array([1.7918])
    """
    scores = tf.cast(scores, tf.float64)
    none = tf.constant([[0.0] + [-1e300] * k], tf.float64)  # minus infinity has no gradient
    sums = tf.tile(none, [tf.shape(scores)[0], 1])

    def one_more(i, sums):
        with_it = sums[:, :-1] + scores[:, i, None]
        without = sums[:, 1:]
        higher, lower = tf.maximum(with_it, without), tf.minimum(with_it, without)
        return i + 1, tf.concat([sums[:, :1], higher + tf.math.log1p(tf.exp(lower - higher))], axis=1)

    n = scores.shape[1]
    return tf.while_loop(lambda i, _: i < n, one_more, (0, sums), maximum_iterations=n)[1][:, -1]


def polynomials(scores, k):
    """`log Z_k` from the coefficient of `z^k` in the product of `q_j + p_j z`.

    >>> polynomials(tf.zeros([1, 4]), 2).numpy().round(4)
    array([1.7918])
    """
    scores = tf.cast(scores, tf.float64)
    shift = _shift(scores, k)
    shifted = scores + shift[:, None]
    spare = [[0, 0], [0, 2 ** math.ceil(math.log2(scores.shape[1])) - scores.shape[1]]]
    tails = tf.pad(tf.sigmoid(-shifted), spare, constant_values=1.0)
    factors = tf.stack([tails, tf.pad(tf.sigmoid(shifted), spare)], axis=-1)
    while factors.shape[1] > 1:
        length = 2 * factors.shape[2] - 1
        transformed = tf.signal.rfft(factors, [length + 1])  # of even lengths it is faster
        product = transformed[:, ::2] * transformed[:, 1::2]
        factors = tf.signal.irfft(product, [length + 1])[..., :length]
    rest = tf.reduce_sum(tf.math.softplus(shifted), axis=1) - k * shift
    return tf.math.log(factors[:, 0, k]) + rest


def _shift(scores, k):
    low, high = -tf.reduce_max(scores, axis=1) - 50.0, 50.0 - tf.reduce_min(scores, axis=1)
    for _ in range(60):
        middle = (low + high) / 2.0
        few = tf.reduce_sum(tf.sigmoid(scores + middle[:, None]), axis=1) < k
        low, high = tf.where(few, middle, low), tf.where(few, high, middle)
    return tf.stop_gradient(low)


_WAYS = {
    "log_z": n_choose_k.log_z,
    "log_z_by_count": set_sizes.log_z_by_count,
    "naive": programme,
    "fft": polynomials,
}

SUITE = Suite(
    axes="BATCHxCLASSESxK",
    sizes=(
        "64x28x3",
        "8x1000x100",
        "8x10000x10",
        *(f"8x{n}x{n // 10}" for n in (10_000, 20_000, 40_000, 100_000)),
    ),
    contenders=_steps,
    build=_build,
    error=_error,
)

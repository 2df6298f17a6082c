"""The Poisson binomial distribution, of the number of heads of independent coins; see `n_choose_k`.

Its probabilities are sums over nodes on a circle in the complex plane.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from rank4class.losses.ops import tensors

_SEARCH_STEPS = 200
_PAIRS = 28  # pairs of nodes
_NEGLIGIBLE = 40.0  # e^-40 does not matter in float64
_BLOCK = 512  # number of classes whose products are in memory at a time


class Circle(NamedTuple):
    """The nodes of a circle and their weights."""

    k: tf.Tensor  # the mean number of heads, `[...]`
    shift: tf.Tensor  # `t` of `n_choose_k`, `[...]`
    heads: tf.Tensor  # `p` of each coin, `[..., n]`
    tails: tf.Tensor  # `1 - p`
    variance: tf.Tensor  # of the number of heads, `[...]`
    angles: tf.Tensor  # of the nodes, `[..., L]`
    real: tf.Tensor  # the weight of each node with its mirror image, over `P(k)`, `[..., L]`
    imaginary: tf.Tensor
    log_p: tf.Tensor  # `log P(k)`, `[...]`


def around(scores: tf.Tensor, k: tf.Tensor, where: tf.Tensor) -> Circle:
    """Returns the `Circle` of a `k` strictly between 0 and the number of classes."""
    shift = find_shift(scores, k, where)
    shifted = tf.where(where & tf.math.is_finite(scores), scores + shift[..., None], -math.inf)
    heads = tf.sigmoid(shifted)
    tails = tf.sigmoid(-shifted)
    variance = tf.reduce_sum(heads * tails, axis=-1, keepdims=True)
    farthest = 2.0 * tf.math.asin(tf.sqrt(tf.minimum(_NEGLIGIBLE / (2.0 * variance), 1.0)))
    n = tensors.length(scores)
    # With more than n nodes the rule is exact. No node is at pi, where the factor of a fair coin is 0.
    pairs = min(_PAIRS, (n + 2) // 2) if isinstance(n, int) else _PAIRS
    half = tf.minimum(tf.floor(_PAIRS * math.pi / farthest), tf.cast((n + 2) // 2, tf.float64))
    node = tf.range(pairs, dtype=tf.float64)
    angles = math.pi * (node + 0.5) / half
    log_size, phase = _product(heads, tails, angles)
    phase -= k[..., None] * angles
    worth = tf.where(node < half, tf.exp(log_size) / half, 0.0)
    real = worth * tf.cos(phase)
    imaginary = worth * tf.sin(phase)
    p = tf.reduce_sum(real, axis=-1, keepdims=True)
    log_p = tf.math.log(p[..., 0])
    return Circle(k, shift, heads, tails, variance[..., 0], angles, real / p, imaginary / p, log_p)


def log_z(circle: Circle, scores: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Returns `log Z_k` for the `k` of the circle, `[...]`."""
    # Each term is small; the sum of all softplus minus c k would cancel.
    shifted = scores + circle.shift[..., None]
    terms = tf.math.softplus(shifted) - circle.heads * circle.shift[..., None]
    rest = tf.reduce_sum(tf.where(where, terms, 0.0), axis=-1)
    left = tf.reduce_sum(circle.heads, axis=-1) - circle.k
    return circle.log_p + rest + circle.shift * left


def find_shift(scores: tf.Tensor, k: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Returns a shift for which the mean number of heads is `k`, to a tenth of the standard deviation.

    It need not be exact: `Z_k` does not depend on it.
    """
    scores = tf.where(where & tf.math.is_finite(scores), scores, 0.0)
    size = tf.maximum(size_of(where), 1.0)
    odds = tf.math.log(k) - tf.math.log(size - k)
    high = odds - tf.reduce_min(tf.where(where, scores, math.inf), axis=-1)
    low = odds - tf.reduce_max(tf.where(where, scores, -math.inf), axis=-1)

    def improve(shift: tf.Tensor, low: tf.Tensor, high: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
        heads = tf.where(where, tf.sigmoid(scores + shift[..., None]), 0.0)
        missing = k - tf.reduce_sum(heads, axis=-1)
        variance = tf.reduce_sum(heads * (1.0 - heads), axis=-1)
        low = tf.where(missing > 0.0, shift, low)
        high = tf.where(missing < 0.0, shift, high)
        newton = shift + missing / variance
        better = tf.where((newton > low) & (newton < high), newton, (low + high) / 2.0)
        converged = tf.abs(missing) <= 0.1 * tf.maximum(tf.sqrt(variance), 1.0)
        return tf.where(converged, shift, better), low, high, ~converged

    shift = odds - tf.reduce_sum(tf.where(where, scores, 0.0), axis=-1) / size
    state = (shift, low, high, tf.ones_like(shift, tf.bool))
    searching = lambda *state: tf.reduce_any(state[-1])  # noqa: E731
    return tf.while_loop(searching, improve, state, maximum_iterations=_SEARCH_STEPS)[0]


def _product(heads: tf.Tensor, tails: tf.Tensor, angles: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Multiplies `tails + heads e^(i angle)` over the classes; returns log modulus and phase, `[..., L]`."""
    n = tensors.length(heads)
    blocks = (n + _BLOCK - 1) // _BLOCK
    width = min(n, _BLOCK) if isinstance(n, int) else tf.minimum(n, _BLOCK)
    pad = [[0, 0]] * (heads.shape.rank - 1) + [[0, blocks * width - n]]
    shape = tf.concat([tf.shape(heads)[:-1], [blocks, width]], axis=0)
    heads = tf.reshape(tf.pad(heads, pad), shape)
    tails = tf.reshape(tf.pad(tails, pad, constant_values=1.0), shape)
    cosine = tf.cos(angles)[..., None]
    sine = tf.sin(angles)[..., None]

    def multiply(i: tf.Tensor, real: tf.Tensor, imaginary: tf.Tensor) -> tuple[tf.Tensor, ...]:
        p = heads[..., i, :][..., None, :]
        q = tails[..., i, :][..., None, :]
        along = q + p * cosine
        across = p * sine
        return i + 1, real * along - imaginary * across, real * across + imaginary * along

    ones = tf.ones(tf.concat([tf.shape(angles), [width]], axis=0), tf.float64)
    state = (tf.constant(0), ones, tf.zeros_like(ones))
    _, real, imaginary = tf.while_loop(lambda i, *_: i < blocks, multiply, state)
    log_size = 0.5 * tf.reduce_sum(tf.math.log(real * real + imaginary * imaginary), axis=-1)
    return log_size, tf.reduce_sum(tf.math.atan2(imaginary, real), axis=-1)


def shares(circle: Circle) -> tf.Tensor:
    """Returns the probability that each class is among the `k` of the circle, `[..., n]`."""
    total = tf.zeros_like(circle.heads)
    for node in range(circle.angles.shape[-1]):
        along, across = heads_share(circle, node)
        total += circle.real[..., node, None] * along - circle.imaginary[..., node, None] * across
    return total


def heads_share(circle: Circle, node: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the share of each coin's heads in a node's product, real and imaginary part `[..., n]`."""
    heads = circle.heads
    tails = circle.tails
    cosine = tf.cos(circle.angles[..., node, None])
    sine = tf.sin(circle.angles[..., node, None])
    over = heads / (1.0 - 2.0 * heads * tails * (1.0 - cosine))
    return over * (heads + tails * cosine), over * tails * sine


def size_of(where: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(where, tf.float64), axis=-1)

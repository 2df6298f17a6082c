r"""n-choose-k models: how likely a set of `k` classes is among all sets of `k`.

$$p(c \mid k) = \frac{1}{Z_k(s)} \exp \sum_{j \in c} s_j, \quad
Z_k(s) = \sum_{|c| = k} \exp \sum_{j \in c} s_j$$

`Z_k` sums over all sets of `k`, and comes in `O(n)`. A shift `c` of all scores changes it by a known factor,
so they are shifted until independent coins of `p_j = sigmoid(s_j + c)` show `k` heads on average. Then

$$\log Z_k = \log P(k) - c k + \sum_j \log(1 + e^{s_j + c})$$

where `P(k)`, the probability that they show `k` heads, is near the peak of its law: nothing overflows, and
nothing cancels. It is the mean of `e^(-ikw) prod_j (1 + p_j (e^(iw) - 1))` over a circle, which the trapezoid
rule finds to the last digits with at most 28 pairs of nodes, whatever `n`: with `v = sum p_j (1 - p_j)` the
modulus is at most `exp(-2 v sin^2(w / 2))`, so nodes count only where that is more than `e^-40`, and they are
close enough there to keep the copies of the law, `sqrt(v)` wide, at least 12 widths apart.

Common arguments:
  scores: float16, bfloat16, float32 or float64 `[..., n]`, finite.
  k: how many classes are chosen: an int, or integers `[...]`, in `0..n`; of a masked list in 0 to the
    number of classes that take part.
  where: optional bool, broadcastable to `[..., n]`: the classes that take part.

What is computed is computed in float64, and returned in float64 where the scores have it, else in float32. An
instance with a score that is not finite has NaN.

Common errors:
  ValueError: shapes or dtypes do not fit, or (in eager mode, else the result is NaN) `k` is outside `0..n`.

References:
  Swersky, Tarlow, Adams, Zemel, Frey (2012), "Probabilistic n-choose-k models for classification and
  ranking", eq. 1; Chen, Dempster, Liu (1994), "Weighted finite population sampling to maximize entropy", for
  the shift.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from rank4class.losses import ranks

_SEARCH_STEPS = 200
_PAIRS = 28  # of nodes
_NOTHING = 40.0  # e to the minus 40 is nothing in float64
_BLOCK = 512  # classes whose products are held at a time
_TRIES = 8


def log_z(scores, k, *, where=None):
    r"""Logarithm of the sum over all sets of `k` classes of what they weigh.

    $$\log Z_k(s) = \log \sum_{|c| = k} \exp \sum_{j \in c} s_j$$

    Its gradient is `marginals`. `O(n)`, whatever `k`.

    Args:
      scores, k, where: see the module.

    Returns:
      float `[...]`.

    >>> log_z([[0.0, 0.0, 0.0, 0.0]], 2).numpy().round(4)  # log 6
    array([1.7918], dtype=float32)
    """
    scores, k, where, dtype = _checked(scores, k, where)

    @tf.custom_gradient
    def value(scores):
        def gradient(upstream):
            return upstream[..., None] * _marginals(scores, k, where)

        return _log_z(tf.stop_gradient(scores), k, where), gradient

    return tf.cast(value(scores), dtype)


def marginals(scores, k, *, where=None):
    r"""How likely each class is among the `k`.

    $$\pi_j = p(j \in c \mid k) = \frac{\partial \log Z_k}{\partial s_j}$$

    `O(n)`, and so is its gradient, the product with the covariance of what is chosen.

    Args:
      scores, k, where: see the module.

    Returns:
      float `[..., n]`, in `[0, 1]`, sums `k`; 0 for masked classes.

    >>> marginals([[0.0, 0.0, 0.0, 0.0]], 2).numpy()
    array([[0.5, 0.5, 0.5, 0.5]], dtype=float32)
    >>> marginals([[9.0, 0.0, 0.0]], 2).numpy().round(4)
    array([[0.9999, 0.5   , 0.5   ]], dtype=float32)
    """
    scores, k, where, dtype = _checked(scores, k, where)
    return tf.cast(_marginals(scores, k, where), dtype)


def sample(scores, k, seed, *, where=None):
    """Draws a set of `k` classes from the model, exactly.

    The coins of the module's text are tossed until they show `k` heads, which takes some `2.5 sqrt(v)` tries
    of `O(n)`.

    Args:
      scores, k, where: see the module.
      seed: int32 `[2]`; the same seed draws the same sets.

    Returns:
      bool `[..., n]`, `k` of each list True.

    >>> sample([[0.0, 50.0, 0.0, 50.0]], 2, [0, 0]).numpy()
    array([[False,  True, False,  True]])
    """
    scores, k, where, _ = _checked(scores, k, where)
    inner, _ = _inner(k, where)
    chances = tf.where(where, tf.sigmoid(scores + _shift(scores, inner, where)[..., None]), 0.0)
    chances = tf.where((k == _size(where))[..., None], tf.cast(where, tf.float64), chances)
    chances = tf.where((k == 0.0)[..., None], tf.zeros_like(chances), chances)
    shape = tf.concat([[_TRIES], tf.shape(chances)], axis=0)

    def toss(i, chosen, done):
        own = tf.random.experimental.stateless_fold_in(tf.convert_to_tensor(seed), i)
        heads = tf.random.stateless_uniform(shape, own, dtype=tf.float64) < chances
        fits = tf.reduce_sum(tf.cast(heads, tf.float64), axis=-1) == k
        first = tf.argmax(tf.cast(fits, tf.int32), axis=0)
        drawn = tf.reduce_any(heads & tf.one_hot(first, _TRIES, True, False, axis=0)[..., None], axis=0)
        fits = tf.reduce_any(fits, axis=0)
        return i + 1, tf.where((fits & ~done)[..., None], drawn, chosen), done | fits

    state = (
        tf.constant(0),
        tf.zeros(tf.shape(chances), tf.bool),
        ~tf.math.is_finite(k + _sound(scores, where)),
    )
    return tf.while_loop(lambda i, _, done: ~tf.reduce_all(done), toss, state)[1]


class _Circle(NamedTuple):
    """What a sum over the circle's nodes needs.

    Attributes:
      shift: `c`, `[...]`.
      heads, tails: `p` and `1 - p` of each coin, `[..., n]`.
      angles: of the nodes, `[..., L]`.
      real, imaginary: what each node and its mirror image are worth, over `P(k)`, `[..., L]`.
      log_p: `log P(k)`, `[...]`.
    """

    shift: tf.Tensor
    heads: tf.Tensor
    tails: tf.Tensor
    angles: tf.Tensor
    real: tf.Tensor
    imaginary: tf.Tensor
    log_p: tf.Tensor


# XLA keeps what would be thousands of small steps, and tensors of all nodes, in few passes over the classes.


@tf.function(jit_compile=True, autograph=False)
def _log_z(scores, k, where):
    inner, edge = _inner(k, where)
    circle = _circle(scores, inner, where)
    # Each term is small: the sum of all softplus less c k would cancel.
    shifted = scores + circle.shift[..., None]
    terms = tf.math.softplus(shifted) - circle.heads * circle.shift[..., None]
    rest = tf.reduce_sum(tf.where(where, terms, 0.0), axis=-1)
    left = tf.reduce_sum(circle.heads, axis=-1) - inner
    value = circle.log_p + rest + circle.shift * left
    total = tf.reduce_sum(tf.where(where, scores, 0.0), axis=-1)
    return tf.where(edge, tf.where(k == 0.0, tf.zeros_like(total), total), value) + _sound(scores, where, k)


def _marginals(scores, k, where):
    @tf.custom_gradient
    def value(scores):
        return _shares(tf.stop_gradient(scores), k, where), lambda upstream: slope(scores, upstream)

    @tf.custom_gradient
    def slope(scores, upstream):
        def gradient(_):
            raise LookupError("the marginals of an n-choose-k model can be differentiated only once")

        return _covariance(tf.stop_gradient(scores), k, where, tf.stop_gradient(upstream)), gradient

    return value(scores)


@tf.function(jit_compile=True, autograph=False)
def _shares(scores, k, where):
    inner, edge = _inner(k, where)
    shares = _sum_over_nodes(_circle(scores, inner, where))
    all_or_none = tf.where((k > 0.0)[..., None] & where, tf.ones_like(shares), 0.0)
    shares = tf.where(edge[..., None], all_or_none, tf.clip_by_value(shares, 0.0, 1.0))
    return shares + _sound(scores, where, k)[..., None]


@tf.function(jit_compile=True, autograph=False)
def _covariance(scores, k, where, vector):
    """The covariance of which classes are chosen, times a vector `[..., n]`."""
    inner, edge = _inner(k, where)
    circle = _circle(scores, inner, where)
    shares = _sum_over_nodes(circle)
    both = tf.zeros_like(shares)
    for node in range(circle.angles.shape[-1]):
        (real, imaginary), weight = _alone(circle, node), _of_node(circle, node)
        others_real = tf.reduce_sum(vector * real, axis=-1, keepdims=True) - vector * real
        others_imaginary = tf.reduce_sum(vector * imaginary, axis=-1, keepdims=True) - vector * imaginary
        both += weight[0] * (real * others_real - imaginary * others_imaginary)
        both -= weight[1] * (real * others_imaginary + imaginary * others_real)
    mean = tf.reduce_sum(vector * shares, axis=-1, keepdims=True)
    product = tf.where(edge[..., None], tf.zeros_like(both), both + shares * (vector - mean))
    return product + _sound(scores, where, k)[..., None]


def _checked(scores, k, where):
    """Returns scores and `k` in float64, the mask `[..., n]`, and the type of the result."""
    scores, k = tf.convert_to_tensor(scores), tf.convert_to_tensor(k)
    if not scores.dtype.is_floating or not scores.shape.rank:
        raise ValueError(f"scores must be floats of shape [..., n], got {scores.dtype.name} {scores.shape}")
    if not k.dtype.is_integer:
        raise ValueError(f"k must be integers, got {k.dtype.name}")
    if k.shape.rank and not k.shape.is_compatible_with(scores.shape[:-1]):
        raise ValueError(f"k of shape {k.shape} is neither a number nor one an instance, {scores.shape[:-1]}")
    dtype = tf.float64 if scores.dtype == tf.float64 else tf.float32
    where = True if where is None else where
    where = ranks.broadcast("where", tf.cast(where, tf.bool), scores)
    k = tf.broadcast_to(k, tf.shape(scores)[:-1])
    if tf.executing_eagerly():
        _check_k(k, where)
    return tf.cast(scores, tf.float64), tf.cast(k, tf.float64), where, dtype


def _check_k(k, where):
    size = tf.math.count_nonzero(where, axis=-1, dtype=k.dtype)
    wrong = (k < 0) | (k > size)
    if bool(tf.reduce_any(wrong)):
        culprit = tf.where(wrong)[0].numpy().tolist()
        place = tuple(culprit)
        raise ValueError(f"k {int(k[place])} of instance {culprit} is outside 0..{int(size[place])}")


def _size(where):
    return tf.reduce_sum(tf.cast(where, tf.float64), axis=-1)


def _sound(scores, where, k=None):
    """Returns 0, or NaN for an instance that cannot be judged, `[...]`."""
    sound = tf.reduce_all(tf.math.is_finite(scores) | ~where, axis=-1)
    if k is not None:
        sound &= (k >= 0.0) & (k <= _size(where))
    return tf.where(sound, tf.zeros_like(scores[..., 0]), float("nan"))


def _inner(k, where):
    """Returns a `k` between none and all, and whether it is another one than asked for."""
    size = _size(where)
    edge = (k <= 0.0) | (k >= size)
    return tf.where(edge, 0.5 * tf.maximum(size, 1.0), k), edge


def _shift(scores, k, where):
    """Finds the shift under which the coins show `k` heads on average, give or take a tenth of a width.

    It need not be exact: `Z_k` does not depend on it.
    """
    scores = tf.where(where & tf.math.is_finite(scores), scores, 0.0)
    size = tf.maximum(_size(where), 1.0)
    odds = tf.math.log(k) - tf.math.log(size - k)
    high = odds - tf.reduce_min(tf.where(where, scores, math.inf), axis=-1)
    low = odds - tf.reduce_max(tf.where(where, scores, -math.inf), axis=-1)

    def improve(shift, low, high, _):
        heads = tf.where(where, tf.sigmoid(scores + shift[..., None]), 0.0)
        missing = k - tf.reduce_sum(heads, axis=-1)
        variance = tf.reduce_sum(heads * (1.0 - heads), axis=-1)
        low, high = tf.where(missing > 0.0, shift, low), tf.where(missing < 0.0, shift, high)
        newton = shift + missing / variance
        better = tf.where((newton > low) & (newton < high), newton, (low + high) / 2.0)
        found = tf.abs(missing) <= 0.1 * tf.maximum(tf.sqrt(variance), 1.0)
        return tf.where(found, shift, better), low, high, ~found

    shift = odds - tf.reduce_sum(tf.where(where, scores, 0.0), axis=-1) / size
    state = (shift, low, high, tf.ones_like(shift, tf.bool))
    searching = lambda *state: tf.reduce_any(state[-1])  # noqa: E731
    return tf.while_loop(searching, improve, state, maximum_iterations=_SEARCH_STEPS)[0]


def _circle(scores, k, where):
    """Returns the `_Circle` of `k`, which lies between none and all."""
    shift = _shift(scores, k, where)
    shifted = tf.where(where & tf.math.is_finite(scores), scores + shift[..., None], -math.inf)
    heads, tails = tf.sigmoid(shifted), tf.sigmoid(-shifted)
    variance = tf.reduce_sum(heads * tails, axis=-1, keepdims=True)
    farthest = 2.0 * tf.math.asin(tf.sqrt(tf.minimum(_NOTHING / (2.0 * variance), 1.0)))
    n = ranks.length(scores)
    # With more than n nodes the rule is exact. None lies at pi, where the factor of a fair coin is 0.
    pairs = min(_PAIRS, (n + 2) // 2) if isinstance(n, int) else _PAIRS
    half = tf.minimum(tf.floor(_PAIRS * math.pi / farthest), tf.cast((n + 2) // 2, tf.float64))
    node = tf.range(pairs, dtype=tf.float64)
    angles = math.pi * (node + 0.5) / half
    log_size, phase = _product(heads, tails, angles)
    phase -= k[..., None] * angles
    worth = tf.where(node < half, tf.exp(log_size) / half, 0.0)
    real, imaginary = worth * tf.cos(phase), worth * tf.sin(phase)
    p = tf.reduce_sum(real, axis=-1, keepdims=True)
    return _Circle(shift, heads, tails, angles, real / p, imaginary / p, tf.math.log(p[..., 0]))


def _product(heads, tails, angles):
    """Multiplies `tails + heads e^(i angle)` over the classes; returns log modulus and phase, `[..., L]`."""
    n = ranks.length(heads)
    blocks = (n + _BLOCK - 1) // _BLOCK
    width = min(n, _BLOCK) if isinstance(n, int) else tf.minimum(n, _BLOCK)
    pad = [[0, 0]] * (heads.shape.rank - 1) + [[0, blocks * width - n]]
    shape = tf.concat([tf.shape(heads)[:-1], [blocks, width]], axis=0)
    heads = tf.reshape(tf.pad(heads, pad), shape)
    tails = tf.reshape(tf.pad(tails, pad, constant_values=1.0), shape)
    cosine, sine = tf.cos(angles)[..., None], tf.sin(angles)[..., None]

    def multiply(i, real, imaginary):
        p, q = heads[..., i, :][..., None, :], tails[..., i, :][..., None, :]
        along, across = q + p * cosine, p * sine
        return i + 1, real * along - imaginary * across, real * across + imaginary * along

    ones = tf.ones(tf.concat([tf.shape(angles), [width]], axis=0), tf.float64)
    state = (tf.constant(0), ones, tf.zeros_like(ones))
    _, real, imaginary = tf.while_loop(lambda i, *_: i < blocks, multiply, state)
    log_size = 0.5 * tf.reduce_sum(tf.math.log(real * real + imaginary * imaginary), axis=-1)
    return log_size, tf.reduce_sum(tf.math.atan2(imaginary, real), axis=-1)


def _of_node(circle, node):
    return circle.real[..., node, None], circle.imaginary[..., node, None]


def _alone(circle, node):
    """Each coin's share of a node's product that goes with heads, real and imaginary part `[..., n]`."""
    heads, tails = circle.heads, circle.tails
    cosine, sine = tf.cos(circle.angles[..., node, None]), tf.sin(circle.angles[..., node, None])
    over = heads / (1.0 - 2.0 * heads * tails * (1.0 - cosine))
    return over * (heads + tails * cosine), over * tails * sine


def _sum_over_nodes(circle):
    shares = tf.zeros_like(circle.heads)
    for node in range(circle.angles.shape[-1]):
        (real, imaginary), weight = _alone(circle, node), _of_node(circle, node)
        shares += weight[0] * real - weight[1] * imaginary
    return shares

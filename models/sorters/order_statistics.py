"""Mathematics of sorted lists: standardization, and ranks from comparisons.

Scores and ranks are float32 `[N, n]`; `where` is bool `[N, n]`, or None.
"""

from collections.abc import Callable

import tensorflow as tf

from rank4class import scan


def standardize(scores: tf.Tensor, where: tf.Tensor | None = None) -> tf.Tensor:
    """Shifts and scales lists to mean 0 and variance 1, without masked classes; equal scores become zeros.

    >>> standardize(tf.constant([[1e4, 1e4 + 2.0], [7.0, 7.0]])).numpy()
    array([[-1.,  1.],
           [ 0.,  0.]], dtype=float32)
    """
    size = list_size(scores, where)
    unmasked = scores if where is None else tf.where(where, scores, tf.float32.max)
    # Equal scores differ from their lowest by exactly 0, but not from their rounded mean.
    lowest = tf.stop_gradient(tf.reduce_min(unmasked, axis=1, keepdims=True))
    shifted = scores - lowest if where is None else tf.where(where, scores - lowest, 0.0)
    centered = shifted - tf.reduce_sum(shifted, axis=1, keepdims=True) / size
    centered = centered if where is None else tf.where(where, centered, 0.0)
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(centered), axis=1, keepdims=True))
    differ = largest > 0.0
    centered /= tf.where(differ, largest, 1.0)  # avoids overflow and underflow of the squares
    variance = tf.reduce_sum(tf.square(centered), axis=1, keepdims=True) / size
    return centered / tf.sqrt(tf.where(differ, variance, 1.0))


def list_size(scores: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
    """Returns the number of unmasked classes: a scalar, or `[..., 1]`, at least 1, if there is a mask."""
    if where is None:
        return tf.cast(tf.shape(scores)[-1], tf.float32)
    return tf.maximum(1.0, tf.reduce_sum(tf.cast(where, tf.float32), axis=-1, keepdims=True))


def descending(scores: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
    """Returns the order from the highest score to the lowest, with masked classes at the end."""
    keys = scores if where is None else tf.where(where, scores, -float("inf"))
    return tf.argsort(keys, axis=1, direction="DESCENDING", stable=True)


def rank_sorted(
    scores: tf.Tensor,
    where: tf.Tensor | None,
    sorted_ranks: Callable[[tf.Tensor, tf.Tensor | None], tf.Tensor],
) -> tf.Tensor:
    """Ranks lists by a function of the sorted scores: the result does not depend on the original order.

    `sorted_ranks` takes scores from high to low, with masked ones at the end, and their mask or None. Equal
    scores have equal ranks.
    """
    order = descending(scores, where)
    sorted_scores = tf.gather(scores, order, batch_dims=1)
    sorted_where = None if where is None else tf.gather(where, order, batch_dims=1)
    ranks = sorted_ranks(sorted_scores, sorted_where)
    # Rounding must not separate ties: each gets the value of the first one, and keeps its gradient.
    first = _first_of_run(gaps(-sorted_scores, sorted_where) == 0.0)
    ranks += tf.stop_gradient(tf.gather(ranks, first, batch_dims=1) - ranks)
    return tf.gather(ranks, tf.argsort(order, axis=1), batch_dims=1)


_FAR = 1e6  # in ranks; beyond the reach of any comparison


def gaps(ascending: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
    """Returns the distances of neighbors, `[N, n - 1]`; masked classes are far from all others."""
    distances = ascending[:, 1:] - ascending[:, :-1]
    return distances if where is None else tf.where(where[:, 1:], distances, _FAR)


def _first_of_run(same: tf.Tensor) -> tf.Tensor:
    """Returns the first index of each run, int32 `[N, n]`; `same`, `[N, n - 1]`, marks equal neighbors."""
    index = tf.range(1, tf.shape(same)[1] + 1)
    starts = tf.pad(tf.where(same, 0, index), [[0, 0], [1, 0]])
    return scan.running(tf.maximum, starts)


def ranks_of_decays(decays: tf.Tensor) -> tf.Tensor:
    r"""Returns soft ranks of sorted lists from the decay of comparisons between neighbors.

    $$r_i = i + \frac{1}{2} (B_i - A_i), \quad A_i = d_i (A_{i-1} + 1), \quad B_i = d_{i+1} (B_{i+1} + 1)$$

    >>> ranks_of_decays(tf.constant([[0.0, 1.0]])).numpy()  # the second and the third are equal
    array([[1. , 2.5, 2.5]], dtype=float32)
    """
    above = _discounted(decays)
    below = tf.reverse(_discounted(tf.reverse(decays, [1])), [1])
    rank = 1.0 + tf.range(tf.shape(above)[1], dtype=tf.float32)
    return rank + 0.5 * (below - above)


def _discounted(decays: tf.Tensor) -> tf.Tensor:
    """Returns `A` of `A_i = d_i (A_{i-1} + 1)` from `A_0 = 0`, `[N, n]`."""
    factors = tf.pad(decays, [[0, 0], [1, 0]])
    return linear_recurrence(factors, factors)


@tf.custom_gradient
def linear_recurrence(factors: tf.Tensor, terms: tf.Tensor) -> tf.Tensor:
    """Returns `x` of `x_i = f_i x_{i-1} + t_i`, all `[N, n]`.

    Its gradient is such a recurrence from the end, so no intermediate steps are stored.
    """
    compose = lambda old, new: (new[0] * old[0], new[0] * old[1] + new[1])  # noqa: E731
    _, values = scan.running(compose, (factors, terms))

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        following = tf.pad(factors[:, 1:], [[0, 0], [0, 1]])
        grad_terms = tf.reverse(linear_recurrence(tf.reverse(following, [1]), tf.reverse(upstream, [1])), [1])
        before = tf.pad(values[:, :-1], [[0, 0], [1, 0]])
        return grad_terms * before, grad_terms

    return values, gradient

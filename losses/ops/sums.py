r"""Sums over the classes of an instance with exact derivatives in `O(n)`: the core of losses of class ids.

With one relevant class `y`, a sum over pairs of classes is a sum over the `n - 1` pairs that contain `y`.
Two sums carry most losses: `margin_sum` over the margins `m_j = s_j - s_y`, and `item_sum` over the classes.

A term maps margins (or scores) to losses and to a function that returns their derivatives. All terms but
`squared` are 0 with derivative 0 at minus infinity, the margin of a class that takes no part.
"""

from collections.abc import Callable

import tensorflow as tf

from rank4class import compat
from rank4class.losses.ops import log_space, ranks, tensors

Term = Callable[[tf.Tensor], tuple[tf.Tensor, Callable]]


def logistic(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    return log_space.softplus(x), lambda: tf.sigmoid(x)


def hinge(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    losses = tf.nn.relu(1.0 + x)
    return losses, lambda: tf.cast(losses > 0.0, x.dtype)


def soft_zero_one(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    p = tf.sigmoid(x)
    return p, lambda: p - tf.square(p)


def squared(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    return tf.square(x), lambda: 2.0 * x


def one(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    return tf.cast(x > -float("inf"), x.dtype), lambda: tf.zeros_like(x)


def margin_sum(
    term: Term,
    scores: tf.Tensor,
    labels: tf.Tensor,
    where: tf.Tensor | None,
    pair_weights: tf.Tensor | None = None,
) -> tf.Tensor:
    r"""Returns `\sum_{j \ne y} w_j f(m_j)`, `[...]`; the weights `[..., n]` count as constants."""

    @tf.custom_gradient
    def total(scores: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        margins = scores - ranks.true_score(scores, labels)[..., None]
        margins = tf.where(ranks.others(scores, labels, where), margins, -float("inf"))
        losses, slope = term(margins)
        value = tf.reduce_sum(losses if pair_weights is None else losses * pair_weights, axis=-1)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([value]):  # the memory of the losses is free by now
                scale = upstream[..., None]
                each = slope() * (scale if pair_weights is None else scale * pair_weights)
                grad_true = -tf.reduce_sum(each, axis=-1, keepdims=True)
            with tf.control_dependencies([grad_true]):  # and that of the slopes here
                return tf.where(ranks.others(scores, labels), each, grad_true)

        return value, gradient

    return total(scores)


def margin_sums_of_relevant(
    term: Term,
    scores: tf.Tensor,
    relevant: tf.Tensor,
    competing: tf.Tensor,
    levels: tf.Tensor | None = None,
    pair_weights: tf.Tensor | None = None,
) -> tf.Tensor:
    r"""Returns $\sum_{j \ne i} f(s_j - s_i)$ for each relevant class `i`, and 0 for the others, `[..., n]`.

    The sum is over the competing classes; with `levels`, over those of a lower level than the relevant one.
    It takes `O(n)` for each relevant class of a batch, but under XLA as if all classes were relevant.
    All tensors are `[..., n]`, except the weights, `[..., i, j]`.
    """
    matrices = (
        x if x is None else tf.reshape(x, [-1, tensors.length(x)])
        for x in (scores, relevant, competing, levels)
    )
    scores_of, relevant_of, competing_of, levels_of = matrices
    if compat.in_xla():  # TPUs need static shapes
        every = tf.range(tf.size(relevant_of, tf.int64))
        places = tf.transpose(tf.unravel_index(every, tf.shape(relevant_of, tf.int64)))
    else:
        places = tf.where(relevant_of)
    lists, classes = tf.unstack(places, axis=1)
    others = tf.gather(competing_of, lists) & tf.gather_nd(relevant_of, places)[:, None]
    if levels_of is not None:
        others &= tf.gather(levels_of, lists) < tf.gather_nd(levels_of, places)[:, None]
    if pair_weights is not None:
        n = tf.shape(scores)[-1]
        pair_weights = tf.gather_nd(tf.reshape(pair_weights, [-1, n, n]), places)
    sums = margin_sum(term, tf.gather(scores_of, lists), classes, others, pair_weights)
    sums = tf.scatter_nd(places, sums, tf.shape(scores_of, tf.int64))
    return tf.reshape(sums, tf.shape(scores))


def item_sum(
    term: Term, scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None, *, scale: float, target: float
) -> tf.Tensor:
    r"""Returns `f(a (s_y - M)) + \sum_{j \ne y} f(s_j)`, `[...]`; `a` is the scale, `M` the target."""

    @tf.custom_gradient
    def total(scores: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        is_other = ranks.others(scores, labels)
        replaced = scale * (ranks.true_score(scores, labels) - target)
        losses, slope = term(tf.where(is_other, scores, replaced[..., None]))
        value = tf.reduce_sum(losses if where is None else tf.where(where, losses, 0.0), axis=-1)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([value]):
                each = upstream[..., None] * slope()
                if where is not None:
                    each = tf.where(where, each, 0.0)
                true = scale * ranks.true_score(each, labels)
                return tf.where(ranks.others(scores, labels), each, true[..., None])

        return value, gradient

    return total(scores)

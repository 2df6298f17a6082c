r"""Exact losses for integer labels, in `O(n)` time and memory.

With one relevant class an instance, a sum over pairs of classes is a sum over the `n - 1` pairs
that the true class `y` is in, so each loss is a function of the margins `m_j = s_j - s_y`.

Every function takes `scores` float32 `[..., n]`, `labels` integer `[...]` inside the classes and
`where` bool `[..., n]` or None, and returns `[...]`. `functional.py` is the public face: it checks
the input and says what each loss means.
"""

import tensorflow as tf

from rank4class.losses import ranks


def softmax(scores, labels, where, *, temperature):
    if where is not None:
        # A list without its true class is left as it is: its loss becomes 0 below, and stays finite.
        keep = where | ~_takes_part(labels, where)[..., None]
        scores = tf.where(keep, scores, -float("inf"))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores / temperature)
    return _zero_without_relevant(losses, labels, where)


def pairwise_logistic(scores, labels, where, *, temperature, normalize):
    others = ranks.others(scores, labels, where)
    pair_losses = tf.where(others, tf.nn.softplus(_margins(scores, labels) / temperature), 0.0)
    total = _zero_without_relevant(tf.reduce_sum(pair_losses, axis=-1), labels, where)
    if normalize == "list":
        return tf.math.divide_no_nan(total, list_size(scores, where))
    if normalize == "pairs":
        return tf.math.divide_no_nan(total, list_size(scores, where) - 1.0)
    return total


def approx_ndcg(scores, labels, where, *, temperature):
    others = ranks.others(scores, labels, where)
    soft_rank = ranks.sigmoid_rank(_margins(scores, labels), others, temperature)
    return _zero_without_relevant(-tf.math.log(2.0) / tf.math.log1p(soft_rank), labels, where)


def mse(scores, labels, where):
    others = ranks.others(scores, labels)
    return _list_mean(tf.square(scores - tf.where(others, 0.0, 1.0)), where)


def rescaled_mse(scores, labels, where, *, kappa, target):
    others = ranks.others(scores, labels)
    return _list_mean(tf.where(others, tf.square(scores), kappa * tf.square(scores - target)), where)


def list_size(scores, where):
    """Returns how many classes take part in each list: a scalar, or `[...]` where a mask is given."""
    if where is None:
        return tf.cast(tf.shape(scores)[-1], scores.dtype)
    return tf.reduce_sum(tf.cast(where, scores.dtype), axis=-1)


def _margins(scores, labels):
    return scores - ranks.true_score(scores, labels)[..., None]


def _takes_part(labels, where):
    return tf.gather(where, labels, batch_dims=labels.shape.rank)


def _zero_without_relevant(losses, labels, where):
    """A list whose one relevant class is masked has nothing to rank: its loss is 0."""
    return losses if where is None else tf.where(_takes_part(labels, where), losses, 0.0)


def _list_mean(item_losses, where):
    if where is not None:
        item_losses = tf.where(where, item_losses, 0.0)
    return tf.math.divide_no_nan(tf.reduce_sum(item_losses, axis=-1), list_size(item_losses, where))

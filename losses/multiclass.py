r"""Exact losses for integer labels, in `O(n)` time and memory.

With one relevant class an instance, a sum over pairs of classes is a sum over the `n - 1` pairs
that the true class `y` is in, so each loss is a sum of one term a class. Two such sums carry the
whole family, each with its derivative written by hand: `_margin_sum` over the margins
`m_j = s_j - s_y`, and `_item_sum` over the classes themselves.

Every function takes `scores` float32 `[..., n]`, `labels` integer `[...]` inside the classes and
`where` bool `[..., n]` or None, and returns `[...]`. `functional.py` is the public face: it checks
the input and says what each loss means.
"""

import tensorflow as tf

from rank4class.losses import lambda_weights, projections, ranks
from rank4class.losses.gains import discount
from rank4class.losses.n_choose_k import log_z


def softmax(scores, labels, where, *, temperature):
    if where is not None:
        # A list without its true class is left as it is: its loss becomes 0 below, and stays finite.
        keep = where | ~_takes_part(labels, where)[..., None]
        scores = tf.where(keep, scores, -float("inf"))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores / temperature)
    return _zero_without_relevant(losses, labels, where)


def n_choose_k(scores, labels, where, *, temperature, levels):
    del levels  # one class stands in one level
    return softmax(scores, labels, where, temperature=temperature)


def top_k_gain(scores, labels, where, *, temperature, k):
    """How likely the true class is not among the first k: the others hold k - 1 where it is."""
    scores = tf.cast(scores / temperature, tf.float64)
    others = ranks.others(scores, labels, where)
    all_classes = tf.ones_like(others) if where is None else where
    k = tf.minimum(k, tf.math.count_nonzero(all_classes, axis=-1, dtype=tf.int32))
    held = tf.maximum(k - 1, 0)
    with_it = ranks.true_score(scores, labels) + log_z(scores, held, where=others)
    losses = tf.cast(log_z(scores, k, where=all_classes) - with_it, tf.float32)
    return _zero_without_relevant(tf.maximum(losses, 0.0), labels, where)


def calibrated_softmax(scores, labels, where, *, temperature, virtual_label):
    """A class of score 0 joins every list: log(1 + sum e^s) is softplus(logsumexp s)."""
    scores /= temperature
    if where is not None:
        scores = tf.where(where, scores, -1e30)  # a finite stand-in: minus infinity has no gradient
    total = tf.reduce_logsumexp(scores, axis=-1)
    losses = (1.0 + virtual_label) * tf.nn.softplus(total) - ranks.true_score(scores, labels)
    if where is None:
        return losses
    # Without its true class a list keeps what the joining class costs.
    without = virtual_label * tf.nn.softplus(total)
    return tf.where(_takes_part(labels, where), losses, without)


def pairwise(term, scores, labels, where, *, temperature, normalize, lambda_weight):
    """Any pairwise loss: `term` gives a pair's loss and slope from its margin."""
    pair_weights = lambda_weights.of_true_class(lambda_weight, scores, labels, where)
    total = _margin_sum(term, scores / temperature, labels, where, pair_weights)
    total = _zero_without_relevant(total, labels, where)
    size = ranks.list_size(scores, where)
    return normalized(total, normalize, size, num_pairs=size - 1.0)


def pairwise_mse(scores, labels, where, *, temperature, normalize):
    r"""`\sum_{i \ne j} (u_i - u_j)^2 = 2n \sum_i (u_i - \bar u)^2` of the distances `u = s - t`."""
    scores /= temperature
    size = ranks.list_size(scores, where)
    if where is None:
        total = tf.reduce_sum(scores, axis=-1) - 1.0
    else:
        taking_part = tf.where(where, scores, 0.0)
        total = tf.reduce_sum(taking_part, axis=-1) - tf.cast(_takes_part(labels, where), scores.dtype)
    mean = tf.math.divide_no_nan(total, size)
    squares = _item_sum(squared, scores - mean[..., None], labels, where, scale=1.0, target=1.0)
    return normalized(2.0 * size * squares, normalize, size, num_pairs=size * (size - 1.0))


def approx_ndcg(scores, labels, where, *, temperature, rank_fn):
    rank = _soft_rank(scores, labels, where, temperature, rank_fn)
    return _zero_without_relevant(-discount(rank), labels, where)


def approx_mrr(scores, labels, where, *, temperature, rank_fn):
    rank = _soft_rank(scores, labels, where, temperature, rank_fn)
    return _zero_without_relevant(-1.0 / rank, labels, where)


def rankmax(scores, labels, where, *, temperature, k, max_relevant):
    del max_relevant  # it is one
    scores /= temperature
    if k == 1:
        losses = tf.math.log1p(_margin_sum(hinge, scores, labels, where))
    else:
        losses = _rankmax(scores if where is None else projections.behind_all(scores, where), labels, k)
        losses = unless_unsound(losses, scores)
    losses = _zero_without_relevant(losses, labels, where)
    return losses if where is None else tf.where(ranks.list_size(scores, where) > k, losses, 0.0)


def warp(scores, labels, where, *, temperature, max_relevant):
    del max_relevant  # it is one
    scores /= temperature
    margins = scores - ranks.true_score(scores, labels)[..., None]
    violates = ranks.others(scores, labels, where) & (margins > -1.0)
    violators = tf.reduce_sum(tf.cast(violates, tf.float32), axis=-1)
    total = _margin_sum(hinge, scores, labels, where)
    return _zero_without_relevant(rank_weight(violators) * total, labels, where)


def rank_weight(violators):
    """The harmonic number of the violators over the violators: WARP's weight of one of them; constant."""
    harmonic = tf.math.digamma(violators + 1.0) - tf.math.digamma(1.0)
    return tf.stop_gradient(tf.math.divide_no_nan(harmonic, violators))


def mse(scores, labels, where):
    return _list_mean_of(squared, scores, labels, where, scale=1.0, target=1.0)


def rescaled_mse(scores, labels, where, *, kappa, target):
    return _list_mean_of(squared, scores, labels, where, scale=kappa**0.5, target=target)


def sigmoid_cross_entropy(scores, labels, where, *, temperature):
    return _list_mean_of(logistic, scores / temperature, labels, where, scale=-1.0, target=0.0)


def unless_unsound(losses, scores):
    """The loss of a list with NaN or infinity is NaN: a search for the highest may pass over it."""
    return tf.where(tf.reduce_all(tf.math.is_finite(scores), axis=-1), losses, float("nan"))


def normalized(total, normalize, size, num_pairs):
    """Divides a sum over pairs of classes as its `normalize` says (see `functional.pairwise_logistic`)."""
    by = {"list": size, "pairs": num_pairs, "none": 1.0}[normalize]
    return tf.math.divide_no_nan(total, by)


# A term maps margins (or scores) to their losses and, when called for, the losses' derivatives. All but
# `squared` are 0 with derivative 0 at minus infinity, the margin of a class that does not compete.


def logistic(x):
    return tf.nn.softplus(x), lambda: tf.sigmoid(x)


def hinge(x):
    losses = tf.nn.relu(1.0 + x)
    return losses, lambda: tf.cast(losses > 0.0, x.dtype)


def soft_zero_one(x):
    p = tf.sigmoid(x)
    return p, lambda: p - tf.square(p)


def squared(x):
    return tf.square(x), lambda: 2.0 * x


def _margin_sum(term, scores, labels, where, pair_weights=None):
    r"""`\sum_{j \ne y} w_j f(m_j)`; the weights count as constants."""

    @tf.custom_gradient
    def total(scores):
        margins = scores - ranks.true_score(scores, labels)[..., None]
        margins = tf.where(ranks.others(scores, labels, where), margins, -float("inf"))
        losses, slope = term(margins)
        value = tf.reduce_sum(losses if pair_weights is None else losses * pair_weights, axis=-1)

        def gradient(upstream):
            with tf.control_dependencies([value]):  # by now the losses' memory is free again
                scale = upstream[..., None]
                each = slope() * (scale if pair_weights is None else scale * pair_weights)
                of_true = -tf.reduce_sum(each, axis=-1, keepdims=True)
            with tf.control_dependencies([of_true]):  # and here the slopes'
                return tf.where(ranks.others(scores, labels), each, of_true)

        return value, gradient

    return total(scores)


def _rankmax(scores, labels, k):
    """`-log` of the true class's share; 0 where it is held at 1."""

    @tf.custom_gradient
    def loss(scores):
        scores -= ranks.true_score(scores, labels)[..., None]  # near the level there is nothing to round
        level, rest, held, last = projections.adaptive_level(scores, labels, k)
        own = tf.maximum(1.0, -level)
        rest = tf.maximum(own, rest)
        places = k - held
        is_held = own * places >= rest
        value = tf.where(is_held, 0.0, tf.math.log(rest / places) - tf.math.log(own))

        def gradient(upstream):
            upstream = tf.where(is_held, 0.0, upstream)
            above = scores - level[..., None]
            inside = (above > 0.0) & (above * places[..., None] <= rest[..., None])
            each = tf.where(inside, (upstream / rest)[..., None], 0.0)
            # The level moves with the lower of the true and the k-th score, against all that lies above it.
            lift = upstream / own - tf.reduce_sum(each, axis=-1)
            true = tf.one_hot(labels, tf.shape(scores)[-1]) * (upstream / own)[..., None]
            return each - true + projections.at_lowest(scores, labels, last, lift)

        return value, gradient

    return loss(scores)


def _item_sum(term, scores, labels, where, *, scale, target):
    r"""`f(a (s_y - M)) + \sum_{j \ne y} f(s_j)`, over the classes that take part."""

    @tf.custom_gradient
    def total(scores):
        is_other = ranks.others(scores, labels)
        replaced = scale * (ranks.true_score(scores, labels) - target)
        losses, slope = term(tf.where(is_other, scores, replaced[..., None]))
        value = tf.reduce_sum(losses if where is None else tf.where(where, losses, 0.0), axis=-1)

        def gradient(upstream):
            with tf.control_dependencies([value]):
                each = upstream[..., None] * slope()
                if where is not None:
                    each = tf.where(where, each, 0.0)
                true = scale * ranks.true_score(each, labels)
                return tf.where(ranks.others(scores, labels), each, true[..., None])

        return value, gradient

    return total(scores)


def _list_mean_of(term, scores, labels, where, *, scale, target):
    total = _item_sum(term, scores, labels, where, scale=scale, target=target)
    return tf.math.divide_no_nan(total, ranks.list_size(scores, where))


def _soft_rank(scores, labels, where, temperature, rank_fn):
    if rank_fn is None:
        return 1.0 + _margin_sum(soft_zero_one, scores / temperature, labels, where)
    return ranks.true_score(rank_fn(scores / temperature, where), labels)


def _takes_part(labels, where):
    return ranks.true_score(where, labels)


def _zero_without_relevant(losses, labels, where):
    """A list whose one relevant class is masked has nothing to rank: its loss is 0."""
    return losses if where is None else tf.where(_takes_part(labels, where), losses, 0.0)

"""Losses for dense labels: multi-label, graded, masked lists.

Every function takes `scores` and `labels` float32 `[..., n]` and `where` bool `[..., n]`, and returns
`[...]`. The values are TF-Ranking's. Its code computes the losses of each class by itself; the others are
ours, for the contract is stricter than its forms: one value an instance, extra batch dimensions, a masked
list that equals the shorter list (masked classes count in its ListMLE and, by a little, in its softmax),
draws that hang on a seed (it shuffles ties without one), a gradient where scores are equal (its pairwise
logistic loss has none) and no instance that touches another's loss (its unique softmax lets NaN through).

Pairwise forms and `ranks.sigmoid_ranks` take `O(n^2)` time and memory, all others `O(n log n)`.
"""

import tensorflow as tf
from tensorflow_ranking.python import losses_impl

from rank4class.losses import above, gumbel, lambda_weights, multiclass, projections, ranks, relevant
from rank4class.losses.gains import discount, exponential_gains, over_ideal
from rank4class.losses.n_choose_k import log_likelihood, marginals

_MASKED = -1e30  # minus infinity has no gradient
_NO_GAIN = 1e-24


def softmax(scores, labels, where, *, temperature):
    return _softmax(scores / temperature, labels, where)


def rankmax(scores, labels, where, *, temperature, k, max_relevant):
    scores = tf.where(where, scores / temperature, _MASKED)
    own, gains = _relevant(scores, labels, max_relevant)
    each = _rankmax(scores, own, k)
    losses = tf.reduce_sum(gains * each, axis=-1)
    losses = tf.where(ranks.list_size(scores, where) > k, losses, 0.0)
    return multiclass.unless_unsound(losses, scores)


def sparsemax(scores, labels, where, *, temperature):
    """Class ids come as one-hot labels: the projection is what it costs."""

    @tf.custom_gradient
    def loss(scores):
        shares = projections.sparsemax(scores)
        total = tf.reduce_sum(labels, axis=-1)
        behind = tf.reduce_max(scores, axis=-1, keepdims=True) - scores
        mean = tf.reduce_sum(shares * (behind + 0.5 * shares), axis=-1, keepdims=True)
        value = tf.reduce_sum(tf.where(labels > 0.0, labels * (behind - mean + 0.5), 0.0), axis=-1)

        def gradient(upstream):
            return upstream[..., None] * (total[..., None] * shares - labels)

        return value, gradient

    return loss(projections.behind_all(scores / temperature, where))


def warp(scores, labels, where, *, temperature, max_relevant):
    """The violators of a relevant class are irrelevant ones within a margin of it."""
    scores = tf.where(where, scores / temperature, _MASKED)
    own, gains = _relevant(scores, labels, max_relevant)
    irrelevant = tf.where(where & (labels == 0.0), scores, -float("inf"))
    total, violators = _within_margin(irrelevant, own)
    losses = tf.reduce_sum(gains * multiclass.rank_weight(violators) * total, axis=-1)
    return multiclass.unless_unsound(losses, scores)


def n_choose_k(scores, labels, where, *, temperature, levels):
    """The highest level chooses its classes first, then the next among those that are left."""
    scores, left, total = tf.cast(scores / temperature, tf.float64), where, 0.0
    for level in range(levels - 1, 0, -1):
        chosen = left & (labels == level)
        total -= tf.cast(log_likelihood(scores, chosen, where=left), tf.float32)
        left &= ~chosen
    sound = tf.reduce_all(are_levels(labels, levels), axis=-1)
    return tf.where(sound, total, float("nan"))


def are_levels(labels, levels):
    """Returns whether labels are whole numbers in `0..levels - 1`, bool `[..., n]`."""
    return (labels == tf.math.floor(labels)) & (labels >= 0.0) & (labels < levels)


def top_k_gain(scores, labels, where, *, temperature, k):
    size = tf.math.count_nonzero(where, axis=-1, dtype=tf.int32)
    scores = tf.cast(scores / temperature, tf.float64)
    shares = marginals(scores, tf.minimum(k, size), where=where)
    labels = tf.cast(labels, tf.float64)
    most = tf.reduce_sum(tf.math.top_k(labels, k).values, axis=-1)
    gain = tf.math.divide_no_nan(tf.reduce_sum(labels * shares, axis=-1), most)
    gain = tf.where(most > 0.0, tf.clip_by_value(gain, _NO_GAIN, 1.0), 1.0)
    return multiclass.unless_unsound(-tf.cast(tf.math.log(gain), tf.float32), scores)


def calibrated_softmax(scores, labels, where, *, temperature, virtual_label):
    """A class of score 0 and a label of its own joins every list."""

    def join(tensor, value):
        joining = tf.fill(tf.concat([tf.shape(tensor)[:-1], [1]], axis=0), value)
        return tf.concat([tensor, joining], axis=-1)

    virtual_label = tf.cast(virtual_label, tf.float32)
    return _softmax(join(scores / temperature, 0.0), join(labels, virtual_label), join(where, True))


def unique_softmax(scores, labels, where, *, temperature):
    gains = tf.math.expm1(labels * tf.math.log(2.0))
    return tf.reduce_sum(
        gains * tf.nn.softplus(_logsumexp_below(scores / temperature, labels, where)), axis=-1
    )


def pairwise(term, scores, labels, where, *, temperature, normalize, lambda_weight):
    """Any pairwise loss: `term` gives a pair's loss from its margin (see `multiclass.py`)."""
    higher = _higher_pairs(labels, where)
    margins = (scores[..., None, :] - scores[..., :, None]) / temperature
    pair_losses, _ = term(tf.where(higher, margins, -float("inf")))
    pair_weights = lambda_weights.of_pairs(lambda_weight, scores, labels, where)
    if pair_weights is not None:
        pair_losses *= pair_weights
    total = tf.reduce_sum(pair_losses, axis=[-2, -1])
    num_pairs = tf.reduce_sum(tf.cast(higher, scores.dtype), axis=[-2, -1])
    return multiclass.normalized(total, normalize, ranks.list_size(scores, where), num_pairs)


def pairwise_mse(scores, labels, where, *, temperature, normalize):
    total = _tf_ranking(losses_impl.PairwiseMSELoss(None), scores / temperature, labels, where)
    size = ranks.list_size(scores, where)
    return multiclass.normalized(total, normalize, size, num_pairs=size * (size - 1.0))


def yeti_logistic(scores, labels, where, *, temperature, normalize):
    """The pairs are the neighbours in the order of the scores."""
    first_masked = tf.where(where, scores, -float("inf"))
    order = tf.argsort(first_masked, axis=-1, direction="DESCENDING", stable=True)
    scores, labels, where_in_order = (ranks.take(x, order) for x in (scores, labels, where))
    gain_gap = tf.pow(2.0, labels[..., :-1]) - tf.pow(2.0, labels[..., 1:])
    margins = tf.sign(gain_gap) * (scores[..., 1:] - scores[..., :-1]) / temperature
    counts = (gain_gap != 0.0) & where_in_order[..., 1:]
    discount_gap = 1.0 - tf.math.log(2.0) / tf.math.log(3.0)  # between rank 1 and rank 2
    size = ranks.list_size(scores, where)
    pair_losses = tf.abs(gain_gap) * tf.nn.softplus(tf.where(counts, margins, -float("inf")))
    total = size * discount_gap * tf.reduce_sum(pair_losses, axis=-1)
    num_pairs = tf.reduce_sum(tf.cast(counts, scores.dtype), axis=-1)
    return multiclass.normalized(total, normalize, size, num_pairs)


def approx_ndcg(scores, labels, where, *, temperature, rank_fn):
    soft_ranks = (rank_fn or ranks.sigmoid_ranks)(scores / temperature, where)
    gains = over_ideal(exponential_gains(labels), discount)
    return -tf.reduce_sum(gains * discount(soft_ranks), axis=-1)


def approx_mrr(scores, labels, where, *, temperature, rank_fn):
    soft_ranks = (rank_fn or ranks.sigmoid_ranks)(scores / temperature, where)
    total = tf.reduce_sum(labels / soft_ranks, axis=-1)
    return -tf.math.divide_no_nan(total, tf.reduce_sum(labels, axis=-1))


def list_mle(scores, labels, where, *, temperature, seed, top_k=None):
    """Classes of equal label stand in an order drawn from the seed."""
    place = tf.argsort(gumbel.noise(tf.shape(scores), seed), axis=-1)
    shuffled = ranks.take(tf.where(where, labels, -float("inf")), place)
    order = ranks.take(place, tf.argsort(shuffled, axis=-1, direction="DESCENDING", stable=True))
    losses = _plackett_luce(ranks.take(scores / temperature, order), ranks.take(where, order), top_k)
    return _zero_without_relevant(losses, labels)


def coupled_rank_distil(scores, labels, where, *, temperature, seed, samples, top_k):
    """The labels are a teacher's scores: their noisy order is a draw from its Plackett-Luce law."""
    shape = tf.concat([[samples], tf.shape(scores)], axis=0)
    noisy = tf.where(where, labels + gumbel.noise(shape, seed), -float("inf"))
    order = tf.argsort(noisy, axis=-1, direction="DESCENDING", stable=True)
    repeat = [tf.broadcast_to(x, shape) for x in (scores / temperature, where)]
    losses = _plackett_luce(ranks.take(repeat[0], order), ranks.take(repeat[1], order), top_k)
    return _zero_without_relevant(tf.reduce_mean(losses, axis=0), labels)


def mse(scores, labels, where):
    return _item_mean(_tf_ranking(losses_impl.MeanSquaredLoss(None), scores, labels, where), where)


def rescaled_mse(scores, labels, where, *, kappa, target):
    """Not in TF-Ranking; a graded label scales the target, and its weight grows from 1 to `kappa`."""
    weights = 1.0 + (kappa - 1.0) * labels
    item_losses = tf.where(where, weights * tf.square(scores - target * labels), 0.0)
    return _item_mean(tf.reduce_sum(item_losses, axis=-1), where)


def sigmoid_cross_entropy(scores, labels, where, *, temperature):
    impl = losses_impl.SigmoidCrossEntropyLoss(None)
    return _item_mean(_tf_ranking(impl, scores / temperature, labels, where), where)


def ordinal(scores, labels, where, *, use_fraction_label):
    impl = losses_impl.OrdinalLoss(None, scores.shape[-1], use_fraction_label=use_fraction_label)
    return _item_mean(_tf_ranking(impl, scores, labels, where), where)


def click_em(scores, labels, where, *, exam_loss_weight, rel_loss_weight):
    impl = losses_impl.ClickEMLoss(None, exam_loss_weight=exam_loss_weight, rel_loss_weight=rel_loss_weight)
    return _item_mean(_tf_ranking(impl, scores, labels, where), where)


def mixture_em(scores, labels, where, *, alpha):
    return _tf_ranking(losses_impl.MixtureEMLoss(None, alpha=alpha), scores, labels, where)


def _relevant(scores, labels, most):
    """Returns the scores of the relevant classes, from the highest, and their labels.

    Args:
      scores, labels: `[..., n]`.
      most: `m`, how many a list has at most; the labels of one with more are NaN. None is `n`.

    Returns:
      Two float32 `[..., m]`; behind the last the lowest score goes on, with the label 0.
    """
    own, gains = relevant.falling(scores, labels, most)
    lowest = tf.reduce_min(tf.where(gains > 0.0, own, float("inf")), axis=-1, keepdims=True)
    lowest = tf.where(tf.math.is_finite(lowest), lowest, 0.0)
    too_many = relevant.too_many(labels, most)[..., None]
    return tf.where(gains > 0.0, own, lowest), tf.where(too_many, float("nan"), gains)


def _within_margin(scores, own):
    """Returns by how much classes come within 1 of each relevant one, together, and how many they are."""
    origin = own[..., :1]
    return above.excess(scores, own - origin - 1.0, origin)


def _rankmax(scores, own, k):
    """`-log` of the share that each relevant class has in its own projection; 0 where it is held at 1.

    Args:
      scores: `[..., n]`.
      own: of the relevant classes, falling, `[..., m]`.
      k: int.

    Returns:
      float32 `[..., m]`.
    """
    if k == 1:
        total, _ = _within_margin(scores, own)
        return tf.math.log(tf.maximum(total, 1.0))
    # See `projections.adaptive_level`; a lower class has a lower level, and holds fewer.
    top, last, _, is_behind = projections.first(scores, k)
    own -= last
    level = tf.minimum(own, 0.0) - 1.0
    behind, _ = above.excess(tf.where(is_behind, scores, -float("inf")), level, last)
    lead = top - last
    led = tf.cumsum(lead, axis=-1, reverse=True)
    held = above.count(projections.places(k) * lead - led, behind)
    places = tf.cast(k - held, scores.dtype)
    rest = behind + ranks.take(led, held) - places * level
    share = (own - level) * places / tf.maximum(rest, own - level)
    return tf.where(share < 1.0, -tf.math.log(share), 0.0)


def _softmax(scores, labels, where):
    log_shares = tf.nn.log_softmax(tf.where(where, scores, _MASKED))
    return -tf.reduce_sum(tf.math.multiply_no_nan(log_shares, labels), axis=-1)


def _higher_pairs(labels, where):
    """Marks the pairs `[..., i, j]` of participating classes where `i` has the higher label."""
    return (labels[..., :, None] > labels[..., None, :]) & where[..., :, None] & where[..., None, :]


def _logsumexp_below(scores, labels, where):
    """For every class, logsumexp over the margins of the classes of lower label; no class is -1e30."""
    margins = scores[..., None, :] - scores[..., :, None]
    return tf.reduce_logsumexp(tf.where(_higher_pairs(labels, where), margins, _MASKED), axis=-1)


def _plackett_luce(scores, where, top_k):
    """Negative log likelihood of the order that the classes stand in, the masked ones last."""
    still_there = tf.math.cumulative_logsumexp(tf.where(where, scores, _MASKED), axis=-1, reverse=True)
    counts = where
    if top_k is not None:
        counts &= tf.range(tf.shape(scores)[-1]) < top_k
    return tf.reduce_sum(tf.where(counts, still_there - scores, 0.0), axis=-1)


def _tf_ranking(impl, scores, labels, where):
    """Sums TF-Ranking's unreduced loss over everything but the instances."""
    n = ranks.length(labels)
    heads = scores.shape[labels.shape.rank :]
    losses, weights = impl.compute_unreduced_loss(
        tf.reshape(labels, [-1, n]), tf.reshape(scores, [-1, n, *heads]), mask=tf.reshape(where, [-1, n])
    )
    losses *= weights
    summed = tf.reduce_sum(losses, axis=list(range(1, losses.shape.rank)))
    return tf.reshape(summed, tf.shape(labels)[:-1])


def _item_mean(total, where):
    return tf.math.divide_no_nan(total, ranks.list_size(total, where))


def _zero_without_relevant(losses, labels):
    return tf.where(tf.reduce_any(labels > 0.0, axis=-1), losses, 0.0)

"""Losses for dense labels (multi-label, graded, masked lists), computed by TF-Ranking.

Every function takes `scores` and `labels` float32 `[..., n]` and `where` bool `[..., n]`, and returns
`[...]`. Pairwise forms take `O(n^2)` time and memory. What is added to TF-Ranking is the contract:
one value an instance, extra batch dimensions, and a masked list that equals the shorter list.
"""

import tensorflow as tf
from tensorflow_ranking.python import losses_impl

from rank4class.losses import multiclass


def softmax(scores, labels, where, *, temperature):
    return _tf_ranking(losses_impl.SoftmaxLoss(None), scores / temperature, labels, where)


def pairwise_logistic(scores, labels, where, *, temperature, normalize):
    total = _tf_ranking(_PairwiseLogisticLoss(None), scores / temperature, labels, where)
    if normalize == "list":
        return tf.math.divide_no_nan(total, multiclass.list_size(scores, where))
    if normalize == "pairs":
        return tf.math.divide_no_nan(total, _num_pairs(labels, where))
    return total


def approx_ndcg(scores, labels, where, *, temperature):
    return _tf_ranking(losses_impl.ApproxNDCGLoss(None), scores / temperature, labels, where)


def mse(scores, labels, where):
    total = _tf_ranking(losses_impl.MeanSquaredLoss(None), scores, labels, where)
    return tf.math.divide_no_nan(total, multiclass.list_size(scores, where))


def rescaled_mse(scores, labels, where, *, kappa, target):
    """Not in TF-Ranking; a graded label scales the target, and its weight grows from 1 to `kappa`."""
    weights = 1.0 + (kappa - 1.0) * labels
    item_losses = tf.where(where, weights * tf.square(scores - target * labels), 0.0)
    total = tf.reduce_sum(item_losses, axis=-1)
    return tf.math.divide_no_nan(total, multiclass.list_size(scores, where))


class _PairwiseLogisticLoss(losses_impl.PairwiseLogisticLoss):
    """With the gradient that softplus has for equal scores too: TF-Ranking's own form has none there."""

    def _pairwise_loss(self, pairwise_logits):
        return tf.nn.softplus(-pairwise_logits)


def _tf_ranking(impl, scores, labels, where):
    """Sums TF-Ranking's unreduced loss over everything but the instances."""
    batch_shape, n = tf.shape(scores)[:-1], scores.shape[-1] or tf.shape(scores)[-1]
    flat = [tf.reshape(x, [-1, n]) for x in (labels, scores, where)]
    losses, weights = impl.compute_unreduced_loss(flat[0], flat[1], mask=flat[2])
    losses *= weights
    return tf.reshape(tf.reduce_sum(losses, axis=list(range(1, losses.shape.rank))), batch_shape)


def _num_pairs(labels, where):
    higher = labels[..., :, None] > labels[..., None, :]
    both = where[..., :, None] & where[..., None, :]
    return tf.reduce_sum(tf.cast(higher & both, labels.dtype), axis=[-2, -1])

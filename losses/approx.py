"""Metrics with soft ranks: NDCG and the reciprocal rank."""

import functools
from collections.abc import Callable

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class.losses import base
from rank4class.losses.ops import gains, ranks, sums

__all__ = ["ApproxMRR", "ApproxNDCG", "approx_mrr", "approx_ndcg"]


def approx_ndcg(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 0.1,
    rank_fn: Callable | None = None,
) -> tf.Tensor:
    r"""Negative NDCG with soft ranks, in `[-1, 0)` for ranks from 1 on; 0 if no class is relevant.

    $$\ell = -\frac{1}{\log_2(1 + r)}, \quad r = 1 + \sum_{j \ne y} \frac{1}{1 + e^{-m_j / \tau}}$$

    Dense labels have gains `2^t - 1`.

    Args:
      temperature: `tau > 0`; as it falls, the loss tends to negative NDCG.
      rank_fn: another rank function `rank_fn(scores / tau, where) -> ranks`, both `[..., n]`, such as
        `ranks.all_ranks` (the loss is then negative NDCG itself) or a learned sorter. `where` is bool
        `[..., n]` or None. None uses `ranks.sigmoid_ranks`, in `O(n)` for class ids.

    >>> approx_ndcg([[0., 0., 0.]], [2]).numpy().round(4)  # rank 2: -1 / log2(3)
    array([-0.6309], dtype=float32)
    >>> approx_ndcg([[3., 1., 2.]], [2], rank_fn=ranks.all_ranks).numpy().round(4)
    array([-0.6309], dtype=float32)

    References:
      Qin, Liu, Li (2010); Rank4Class, eq. 4.
    """
    options = {"temperature": temperature, "rank_fn": rank_fn}
    forms = (functools.partial(_of_ids, lambda rank: -gains.discount(rank)), _approx_ndcg_of_dense)
    return base.evaluate(*forms, scores, labels, where, weights, **options)


def _of_ids(
    loss: Callable,
    scores: tf.Tensor,
    labels: tf.Tensor,
    where: tf.Tensor | None,
    temperature: float,
    rank_fn: Callable | None,
) -> tf.Tensor:
    """Returns a loss of the true class's rank."""
    if rank_fn is None:
        rank = 1.0 + sums.margin_sum(sums.soft_zero_one, scores / temperature, labels, where)
    else:
        rank = ranks.true_score(rank_fn(scores / temperature, where), labels)
    return base.zero_without_relevant(loss(rank), labels, where)


def _approx_ndcg_of_dense(
    scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor, temperature: float, rank_fn: Callable | None
) -> tf.Tensor:
    soft_ranks = (rank_fn or ranks.sigmoid_ranks)(scores / temperature, where)
    normalized_gains = gains.over_ideal(gains.exponential_gains(labels), gains.discount)
    return -tf.reduce_sum(normalized_gains * gains.discount(soft_ranks), axis=-1)


@base.register
class ApproxNDCG(base.RankingLoss, function=approx_ndcg):
    """`approx_ndcg` as a Keras loss."""


def approx_mrr(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 0.1,
    rank_fn: Callable | None = None,
) -> tf.Tensor:
    r"""Negative reciprocal rank with soft ranks, in `[-1, 0)` for ranks from 1 on; 0 if no class is relevant.

    $$\ell = -\frac{1}{r}, \quad r = 1 + \sum_{j \ne y} \frac{1}{1 + e^{-m_j / \tau}}$$

    Dense labels average over the relevant classes, weighted by label. For the options see `approx_ndcg`.

    >>> approx_mrr([[0., 0., 0.]], [2]).numpy()
    array([-0.5], dtype=float32)

    References:
      Qin, Liu, Li (2010).
    """
    options = {"temperature": temperature, "rank_fn": rank_fn}
    forms = (functools.partial(_of_ids, lambda rank: -1.0 / rank), _approx_mrr_of_dense)
    return base.evaluate(*forms, scores, labels, where, weights, **options)


def _approx_mrr_of_dense(
    scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor, temperature: float, rank_fn: Callable | None
) -> tf.Tensor:
    soft_ranks = (rank_fn or ranks.sigmoid_ranks)(scores / temperature, where)
    total = tf.reduce_sum(labels / soft_ranks, axis=-1)
    return -tf.math.divide_no_nan(total, tf.reduce_sum(labels, axis=-1))


@base.register
class ApproxMRR(base.RankingLoss, function=approx_mrr):
    """`approx_mrr` as a Keras loss."""

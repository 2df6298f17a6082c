"""Metrics with soft ranks: NDCG and the reciprocal rank."""

from collections.abc import Callable

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses import base
from rank4class.losses.ops import gains, ranks, sums, tensors

__all__ = ["ApproxMRR", "ApproxNDCG", "approx_mrr", "approx_ndcg"]


@tf.autograph.experimental.do_not_convert
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
    of_ids = _of_true_rank(lambda rank: -gains.discount(rank), temperature, rank_fn)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        soft_ranks = (rank_fn or ranks.sigmoid_ranks)(scores / temperature, where)
        normalized_gains = gains.over_ideal(gains.exponential_gains(labels), gains.discount)
        return -tf.reduce_sum(normalized_gains * gains.discount(soft_ranks), axis=-1)

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


def _of_true_rank(loss: Callable, temperature: float, rank_fn: Callable | None) -> Callable:
    """Returns the form of class ids for a loss of the true class's rank; checks the options."""
    arguments.check_positive(temperature=temperature)
    if rank_fn is not None:
        tensors.check_rank_fn(rank_fn)

    def of_ids(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        if rank_fn is None:
            rank = 1.0 + sums.margin_sum(sums.soft_zero_one, scores / temperature, labels, where)
            return base.zero_without_relevant(loss(rank), labels, where)
        rank = ranks.true_score(rank_fn(scores / temperature, where), labels)
        losses = base.zero_without_relevant(loss(rank), labels, where)
        return base.nan_unless_finite(losses, scores)  # exact ranks ignore NaN

    return of_ids


@base.register
class ApproxNDCG(base.RankingLoss, function=approx_ndcg):
    """`approx_ndcg` as a Keras loss."""


@tf.autograph.experimental.do_not_convert
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
    of_ids = _of_true_rank(lambda rank: -1.0 / rank, temperature, rank_fn)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        soft_ranks = (rank_fn or ranks.sigmoid_ranks)(scores / temperature, where)
        total = tf.reduce_sum(labels / soft_ranks, axis=-1)
        return -tf.math.divide_no_nan(total, tf.reduce_sum(labels, axis=-1))

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


@base.register
class ApproxMRR(base.RankingLoss, function=approx_mrr):
    """`approx_mrr` as a Keras loss."""

"""Metrics with soft ranks."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses import base
from rank4class.losses.ops import gains, ranks, sums, tensors

__all__ = ["ApproxMRR", "ApproxMetric", "ApproxNDCG", "approx_metric", "approx_mrr", "approx_ndcg"]


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

    Dense labels have gains `2^t - 1`, and take `O(k n)` for `k` relevant classes, under XLA `O(n^2)`.

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
    return _approximate(_NDCG, None, scores, labels, where, weights, temperature, rank_fn)


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
    return _approximate(_MRR, None, scores, labels, where, weights, temperature, rank_fn)


def approx_metric(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    metric: str = "ndcg@5",
    temperature: float = 0.1,
    rank_fn: Callable | None = None,
) -> tf.Tensor:
    r"""The negative of any of the metrics NDCG, MRR, MAP, recall and precision, with soft ranks.

    The factor of a class among the first K is $\sigma((s_j - c) / \tau)$, with `c` in the middle of the K-th
    and the next score. As `tau` falls, the loss tends to the negative metric. "ndcg" is `approx_ndcg`, and
    "mrr" is `approx_mrr`.

    Args:
      metric: "ndcg", "mrr" or "map", or one of "ndcg@K", "map@K", "recall@K" and "precision@K". With fewer
        than `K` other classes, all count: recall and precision are then constant, without a gradient.
      temperature, rank_fn: see `approx_ndcg`.

    >>> approx_metric([[3., 1., 2.]], [2], metric="recall@2", temperature=0.01).numpy()
    array([-1.], dtype=float32)
    >>> approx_metric([[3., 1., 2., 0.]], [[1., 0., 0., 1.]], metric="map", rank_fn=ranks.all_ranks).numpy()
    array([-0.75], dtype=float32)

    References:
      Jagerman, Wang, Zhuang, Qin, Bendersky, Najork (2022), "Rax: composable learning-to-rank using JAX".
    """
    name, at, k = metric.partition("@")
    formulas = _OF_FIRST if at else _OF_ALL
    if name not in formulas or (at and (not k.isdecimal() or k.startswith("0"))):
        names = ", ".join([*_OF_ALL, *(f"{name}@K" for name in _OF_FIRST)])
        raise ValueError(f"metric={metric!r}: unknown. There are: {names}.")
    return _approximate(
        formulas[name], int(k) if at else None, scores, labels, where, weights, temperature, rank_fn
    )


class _Formula(NamedTuple):
    """A metric of soft ranks and of `k`, the number of first classes that count, or None for all."""

    of_rank: Callable  # from the rank of the only relevant class, `[...]`, to its value
    # From labels, ranks, a function to the ranks among the relevant classes, and `k` to values, `[..., n]`,
    # whose sum is that of the list.
    of_dense: Callable


def _ndcg_of_dense(labels: tf.Tensor, rank: tf.Tensor, among: Callable, k: int | None) -> tf.Tensor:
    def counted(rank: tf.Tensor) -> tf.Tensor:
        """Returns the discount of exact ranks, of the first K alone."""
        return gains.discount(rank) if k is None else tf.where(rank <= k, gains.discount(rank), 0.0)

    return gains.over_ideal(gains.exponential_gains(labels), counted) * gains.discount(rank)


def _mrr_of_dense(labels: tf.Tensor, rank: tf.Tensor, among: Callable, k: int | None) -> tf.Tensor:
    return tf.math.divide_no_nan(labels / rank, tf.reduce_sum(labels, axis=-1, keepdims=True))


def _recall_of_dense(labels: tf.Tensor, rank: tf.Tensor, among: Callable, k: int | None) -> tf.Tensor:
    share = tf.cast(labels > 0.0, rank.dtype)
    return tf.math.divide_no_nan(share, tf.reduce_sum(share, axis=-1, keepdims=True))


def _map_of_dense(labels: tf.Tensor, rank: tf.Tensor, among: Callable, k: int | None) -> tf.Tensor:
    # The relevant classes up to each one are its rank among them.
    return _recall_of_dense(labels, rank, among, k) * (among() / rank)


def _precision_of_dense(labels: tf.Tensor, rank: tf.Tensor, among: Callable, k: int) -> tf.Tensor:
    return tf.cast(labels > 0.0, rank.dtype) / k


_NDCG = _Formula(lambda rank, k: gains.discount(rank), _ndcg_of_dense)
_MRR = _Formula(lambda rank, k: 1.0 / rank, _mrr_of_dense)
_MAP = _Formula(lambda rank, k: 1.0 / rank, _map_of_dense)
_RECALL = _Formula(lambda rank, k: tf.ones_like(rank), _recall_of_dense)
_PRECISION = _Formula(lambda rank, k: tf.ones_like(rank) / k, _precision_of_dense)
_OF_ALL = {"ndcg": _NDCG, "mrr": _MRR, "map": _MAP}
_OF_FIRST = {"ndcg": _NDCG, "map": _MAP, "recall": _RECALL, "precision": _PRECISION}


@tf.autograph.experimental.do_not_convert
def _approximate(
    formula: _Formula,
    k: int | None,
    scores: TensorLike,
    labels: TensorLike,
    where: TensorLike | None,
    weights: TensorLike | None,
    temperature: float,
    rank_fn: Callable | None,
) -> tf.Tensor:
    """Returns the negative metric of a formula, with soft ranks; see `approx_metric`."""
    arguments.check_positive(temperature=temperature)
    if rank_fn is not None:
        tensors.check_rank_fn(rank_fn)

    def in_top(scores: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        """Returns soft indicators of the first K classes, `[..., n]`."""
        assert k is not None
        competing = scores if where is None else tf.where(where, scores, ranks.MASKED)
        if (competing.shape[-1] or k) <= k:  # all count: minus infinity is the next score
            paddings = [[0, 0]] * (competing.shape.rank - 1) + [[0, k]]
            competing = tf.pad(competing, paddings, constant_values=ranks.MASKED)
        middle = tf.reduce_mean(tf.math.top_k(competing, k + 1).values[..., -2:], axis=-1, keepdims=True)
        return tf.sigmoid((scores - middle) / temperature)

    def of_ids(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        if rank_fn is None:
            rank = 1.0 + sums.margin_sum(sums.soft_zero_one, scores / temperature, labels, where)
        else:
            rank = ranks.true_score(rank_fn(scores / temperature, where), labels)
        losses = -formula.of_rank(rank, k)
        if k is not None:
            losses *= ranks.true_score(in_top(scores, where), labels)
        losses = base.zero_without_relevant(losses, labels, where)
        return losses if rank_fn is None else base.nan_unless_finite(losses, scores)  # exact ranks ignore NaN

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        relevant = labels > 0.0

        def rank_of(where: tf.Tensor) -> tf.Tensor:
            """Returns the ranks of at least the relevant classes, `[..., n]`."""
            if rank_fn is not None:
                return rank_fn(scores / temperature, where)
            return 1.0 + sums.margin_sums_of_relevant(
                sums.soft_zero_one, scores / temperature, relevant, where
            )

        values = formula.of_dense(labels, rank_of(where), lambda: rank_of(relevant), k)
        if k is not None:
            values *= in_top(scores, where)
        return -tf.reduce_sum(values, axis=-1)

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


ApproxNDCG = base.keras_loss("ApproxNDCG", approx_ndcg)
ApproxMRR = base.keras_loss("ApproxMRR", approx_mrr)
ApproxMetric = base.keras_loss("ApproxMetric", approx_metric)

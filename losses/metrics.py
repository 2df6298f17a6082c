"""Ranking metrics of single-label problems as pure functions, one value in `[0, 1]` an instance.

Each is a function of the rank of the true class, `ranks.hard_rank`, which states the rule for ties
(against the true class) and for scores that are not finite (rank infinity, the worst value).
`metric(scores, labels, *, where=None)` takes `scores` `[..., n]` and integer `labels` `[...]`; the
function of the rank alone is there as `*_of_rank`, for whoever holds ranks already.
"""

import tensorflow as tf

from rank4class.losses import ranks


def top_k_accuracy(scores, labels, k, *, where=None):
    r"""Top-K accuracy, `[rank <= K]`.

    Args:
      scores, labels, where: see the module.
      k: `K`, less than the number of classes: among `n` classes the top `n` are always right.

    Returns:
      float32 `[...]`, 0 or 1.

    Raises:
      ValueError: `k` outside `1..n-1`.

    >>> top_k_accuracy([[3., 1., 2.], [3., 1., 2.]], [2, 1], k=2).numpy()
    array([1., 0.], dtype=float32)

    References:
      Rank4Class, eq. 1.
    """
    check_k(k, tf.convert_to_tensor(scores).shape[-1])
    return top_k_accuracy_of_rank(ranks.hard_rank(scores, labels, where), k)


def top_k_error(scores, labels, k, *, where=None):
    """Top-K error, `1 - ` top-K accuracy; see `top_k_accuracy`.

    >>> top_k_error([[3., 1., 2.], [3., 1., 2.]], [2, 1], k=2).numpy()
    array([0., 1.], dtype=float32)
    """
    return 1.0 - top_k_accuracy(scores, labels, k, where=where)


def ndcg(scores, labels, k=None, *, where=None):
    r"""NDCG@K for one relevant class.

    $$\text{NDCG@}K = [\text{rank} \le K] / \log_2(1 + \text{rank})$$

    Args:
      scores, labels, where: see the module.
      k: `K` of at least 1; None counts the whole list.

    Returns:
      float32 `[...]`, in `[0, 1]`.

    Raises:
      ValueError: `k` less than 1.

    >>> ndcg([[3., 1., 2.], [3., 1., 2.]], [2, 1], k=2).numpy().round(4)  # 1 / log2(3), beyond K
    array([0.6309, 0.    ], dtype=float32)

    References:
      Rank4Class, eq. 2.
    """
    if k is not None and k < 1:
        raise ValueError(f"NDCG@K needs K of at least 1, got {k}")
    return ndcg_of_rank(ranks.hard_rank(scores, labels, where), k)


def mrr(scores, labels, *, where=None):
    """Reciprocal rank, `1 / rank`.

    Args:
      scores, labels, where: see the module.

    Returns:
      float32 `[...]`, in `[0, 1]`.

    >>> mrr([[3., 1., 2.]], [2]).numpy()
    array([0.5], dtype=float32)
    """
    return mrr_of_rank(ranks.hard_rank(scores, labels, where))


def top_k_accuracy_of_rank(rank, k):
    return tf.cast(rank <= k, tf.float32)


def top_k_error_of_rank(rank, k):
    return 1.0 - top_k_accuracy_of_rank(rank, k)


def ndcg_of_rank(rank, k=None):
    counted = tf.math.is_finite(rank) if k is None else rank <= k
    return tf.where(counted, tf.math.log(2.0) / tf.math.log1p(rank), 0.0)


def mrr_of_rank(rank):
    return 1.0 / rank


def check_k(k, num_classes):
    """Raises ValueError where top-K of so many classes says nothing."""
    if k < 1 or (num_classes is not None and k >= num_classes):
        raise ValueError(f"top-{k} says nothing about {num_classes} classes: K must lie in 1..n-1")

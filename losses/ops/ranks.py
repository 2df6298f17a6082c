"""Ranks from 1, the best: exact ranks for metrics and soft ranks for losses.

A rank function takes scores, float32 `[..., n]`, and optionally `where`, bool `[..., n]`, the classes that
take part. It returns float32 `[..., n]`, in which masked classes rank behind all others.
"""

import tensorflow as tf

from rank4class import compat, scan
from rank4class.losses.ops import label_checks, tensors

MASKED = -1e30  # in place of minus infinity, which has no gradient
_serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


def others(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None = None) -> tf.Tensor:
    """Returns which classes take part and are not the labeled one, bool `[..., n]`."""
    competes = tf.one_hot(labels, tf.shape(scores)[-1], on_value=False, off_value=True, dtype=tf.bool)
    competes = tf.ensure_shape(competes, scores.shape)
    return competes if where is None else competes & where


def true_score(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns `[...]`: the score of each instance's labeled class (ids outside `0..n-1` are clipped)."""
    last = tf.shape(scores)[-1] - 1
    inside = tf.clip_by_value(labels, 0, tf.cast(last, labels.dtype))
    return tf.gather(scores, inside, batch_dims=labels.shape.rank)


def take(lists: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Gathers `[..., m]` from lists `[..., n]` at the indices `[..., m]` of each list."""
    return tf.gather(lists, indices, batch_dims=indices.shape.rank - 1)


def put(values: tf.Tensor, indices: tf.Tensor, lists: tf.Tensor) -> tf.Tensor:
    """Returns zeros of the shape of lists `[..., n]`, plus values `[..., m]` at the indices of each list."""
    n = tf.shape(lists)[-1]
    rows = tf.reshape(indices, [-1, tf.shape(indices)[-1]])
    places = rows + n * tf.range(tf.shape(rows)[0])[:, None]
    flat = tf.scatter_nd(tf.reshape(places, [-1, 1]), tf.reshape(values, [-1]), [tf.size(lists)])
    return tf.reshape(flat, tf.shape(lists))


def list_size(scores: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
    """Returns the number of classes that take part: a scalar, or `[...]` if there is a mask."""
    if where is None:
        return tf.cast(tf.shape(scores)[-1], scores.dtype)
    return tf.reduce_sum(tf.cast(where, scores.dtype), axis=-1)


def tie_range(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Returns the first and the last rank that the true class can have among its ties, float32 `[...]`.

    $$\text{last}(y) = 1 + |\{j \ne y : s_j \ge s_y\}|$$

    Both are infinite for an instance with a score that is not finite, or a label that is masked or outside
    the classes, so that every metric takes its worst value.

    >>> first, last = tie_range(tf.constant([[3., 1., 1., 1.]]), tf.constant([2]), None)
    >>> first.numpy(), last.numpy()
    (array([2.], dtype=float32), array([4.], dtype=float32))
    """
    if scores.dtype != tf.float64:
        scores = tf.cast(scores, tf.float32)
    tensors.check_ids(labels, scores)
    labels = tensors.widen(labels)
    competes = others(scores, labels, where)
    true = true_score(scores, labels)[..., None]
    finite = tf.math.is_finite(scores) if where is None else tf.math.is_finite(scores) | ~where
    valid = tf.reduce_all(finite, axis=-1) & label_checks.known(labels, tensors.length(scores))
    if where is not None:
        valid &= true_score(where, labels)
    ahead = (competes & (scores > true), competes & (scores >= true))
    limits = (1.0 + tf.reduce_sum(tf.cast(x, tf.float32), axis=-1) for x in ahead)
    return tuple(tf.where(valid, rank, float("inf")) for rank in limits)


@_serializable
def all_ranks(scores: tf.Tensor, where: tf.Tensor | None = None) -> tf.Tensor:
    """Returns the rank of every class: one plus the number of classes with a higher score. `O(n log n)`.

    >>> all_ranks(tf.constant([[5., 7., 7., 1.]])).numpy()
    array([[3., 1., 1., 4.]], dtype=float32)
    """
    if where is not None:
        scores = tf.where(where, scores, -float("inf"))
    n = tf.shape(scores)[-1]
    flat = tf.reshape(scores, [-1, n])
    in_order, order = tf.math.top_k(flat, n)
    # All members of a run of equal scores have the index of its first member.
    place = tf.broadcast_to(tf.range(n), tf.shape(flat))
    starts = _starts_run(in_order)
    first = tf.cond(
        tf.reduce_all(starts), lambda: place, lambda: scan.running(tf.maximum, tf.where(starts, place, 0))
    )
    # The order is a permutation of all scores: to invert it is faster than to scatter.
    from_sorted = tf.math.invert_permutation(
        tf.reshape(order + n * tf.range(tf.shape(flat)[0])[:, None], [-1])
    )
    ranks = 1.0 + tf.cast(tf.gather(tf.reshape(first, [-1]), from_sorted), tf.float32)
    return tf.ensure_shape(tf.reshape(ranks, tf.shape(scores)), scores.shape)


@_serializable
def mean_ranks(scores: tf.Tensor, where: tf.Tensor | None = None) -> tf.Tensor:
    """Returns the rank of every class, where ties share the mean of their ranks. `O(n log n)`.

    >>> mean_ranks(tf.constant([[5., 7., 7., 1.]])).numpy()
    array([[3. , 1.5, 1.5, 4. ]], dtype=float32)
    """
    size = tf.cast(list_size(scores, where), tf.float32)
    size = size if where is None else size[..., None]
    shared = 0.5 * (all_ranks(scores, where) + size + 1.0 - all_ranks(-scores, where))
    return shared if where is None else tf.where(where, shared, size + 1.0)


def number_runs(in_order: tf.Tensor) -> tf.Tensor:
    """Numbers the runs of equal neighbors in sorted lists, `[N, n]`, each with another number.

    >>> number_runs(tf.constant([[9., 7., 7.], [7., 7., 1.]])).numpy()
    array([[0, 1, 1],
           [3, 3, 4]], dtype=int32)
    """
    run = scan.running(tf.add, tf.cast(_starts_run(in_order), tf.int32)) - 1
    lists, n = tf.unstack(tf.shape(in_order))
    return run + n * tf.range(lists)[:, None]


@_serializable
def sigmoid_ranks(scores: tf.Tensor, where: tf.Tensor | None = None) -> tf.Tensor:
    r"""Returns soft ranks, with sigmoids in place of comparisons.

    $$r_i = 1 + \sum_{j \ne i} \frac{1}{1 + e^{s_i - s_j}}$$

    Takes `O(n^2)` time and memory. Divide the scores by a lower temperature to come closer to the exact
    ranks. Masked classes get a rank among the others.

    References:
      Qin, Liu, Li (2010), "A general approximation framework for direct optimization of
      information retrieval measures"; Rank4Class, eq. 4.

    >>> sigmoid_ranks(tf.constant([[0., 9., -9.]])).numpy().round(3)
    array([[2., 1., 3.]], dtype=float32)
    """
    ahead = tf.sigmoid(scores[..., None, :] - scores[..., :, None])
    if where is not None:
        ahead = tf.where(where[..., None, :], ahead, 0.0)
        tie_with_itself = 0.5 * tf.cast(where, scores.dtype)
    else:
        tie_with_itself = 0.5
    return 1.0 - tie_with_itself + tf.reduce_sum(ahead, axis=-1)


@_serializable
def neural_sort_ranks(scores: tf.Tensor, where: tf.Tensor | None = None) -> tf.Tensor:
    r"""Returns soft ranks from NeuralSort's relaxed permutation matrix.

    $$P_{ij} = \operatorname{softmax}_j \Big( (n + 1 - 2i) s_j - \sum_k |s_j - s_k| \Big), \quad
    r_j = \sum_i i P_{ij}$$

    Takes `O(n^2)` time and memory. Divide the scores by a lower temperature to come closer to the exact ranks
    of different scores. The ranks of a list sum to `1 + ... + n`; a single one may be outside `1..n`.
    A class far in front of a long list has a rank near 0, so that a loss such as `approx_ndcg` may fall below
    -1 and push the class back.

    References:
      Grover, Wang, Zweig, Ermon (2019), "Stochastic optimization of sorting networks via continuous
      relaxations", eq. 5.

    >>> neural_sort_ranks(tf.constant([[0., 9., -9.]])).numpy().round(3)
    array([[2., 1., 3.]], dtype=float32)
    """
    gaps = tf.abs(scores[..., :, None] - scores[..., None, :])
    gaps = gaps if where is None else tf.where(where[..., None, :], gaps, 0.0)
    size = list_size(scores, where)
    place = 1.0 + tf.range(tf.shape(scores)[-1], dtype=scores.dtype)
    slope = size[..., None] + 1.0 - 2.0 * place
    logits = slope[..., :, None] * scores[..., None, :] - tf.reduce_sum(gaps, axis=-1)[..., None, :]
    return _ranks_of_places(logits, where)


@_serializable
def soft_sort_ranks(scores: tf.Tensor, where: tf.Tensor | None = None) -> tf.Tensor:
    r"""Returns soft ranks from SoftSort's relaxed permutation matrix.

    $$P_{ij} = \operatorname{softmax}_j(-|s_{(i)} - s_j|), \quad r_j = \sum_i i P_{ij}$$

    where `s_(i)` is the i-th highest score. `O(n^2)`; see `neural_sort_ranks` for the temperature and sum.

    References:
      Prillo, Eisenschlos (2020), "SoftSort: a continuous relaxation for the argsort operator", eq. 2.

    >>> soft_sort_ranks(tf.constant([[0., 99., -99.]])).numpy()
    array([[2., 1., 3.]], dtype=float32)
    """
    taking_part = scores
    if where is not None:  # masked classes come at the end, equal to the last
        last = tf.reduce_min(tf.where(where, scores, scores.dtype.max), axis=-1, keepdims=True)
        taking_part = tf.where(where, scores, last)
    in_order = tf.sort(taking_part, axis=-1, direction="DESCENDING")
    return _ranks_of_places(-tf.abs(in_order[..., :, None] - scores[..., None, :]), where)


def _ranks_of_places(logits: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
    """Returns the mean rank of each class, `[..., n]`, from logits of ranks and classes, `[..., n, n]`."""
    n = tf.shape(logits)[-1]
    if where is not None:
        logits = tf.where(where[..., None, :], logits, MASKED)
    shares = tf.nn.softmax(logits)
    place = 1.0 + tf.range(n, dtype=logits.dtype)
    if where is None:
        return tf.einsum("...ij,i->...j", shares, place)
    size = list_size(shares[..., 0, :], where)[..., None]
    class_ranks = tf.einsum("...ij,...i->...j", shares, tf.where(place <= size, place, 0.0))
    return tf.where(where, class_ranks, size + 1.0)


def _starts_run(in_order: tf.Tensor) -> tf.Tensor:
    new = in_order[:, 1:] != in_order[:, :-1]
    return tf.concat([tf.ones_like(in_order[:, :1], tf.bool), new], axis=1)


def running_sum(values: tf.Tensor, reverse: bool = False) -> tf.Tensor:
    """Returns the sum of the values up to each index or, in reverse, from it on: `[..., n]`.

    >>> running_sum(tf.constant([[1.0, 2.0, 3.0]]), reverse=True).numpy()
    array([[6., 5., 3.]], dtype=float32)
    """
    if not compat.in_xla():
        return tf.cumsum(values, axis=-1, reverse=reverse)
    return scan.running(tf.add, values[..., ::-1])[..., ::-1] if reverse else scan.running(tf.add, values)

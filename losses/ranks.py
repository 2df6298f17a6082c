"""Ranks, hard (what metrics count) and soft (what losses follow); 1 is the best."""

import numbers
from collections.abc import Mapping

import tensorflow as tf

_serializable = tf.keras.utils.register_keras_serializable(package="rank4class")


def others(scores, labels, where=None):
    """Marks the classes that compete with the true one.

    Args:
      scores: `[..., n]`, one score a class.
      labels: `[...]` integer class ids.
      where: optional bool `[..., n]`, True for the classes that take part.

    Returns:
      bool `[..., n]`: True for every participating class but the labelled one.
    """
    competes = tf.one_hot(labels, tf.shape(scores)[-1], on_value=False, off_value=True, dtype=tf.bool)
    competes = tf.ensure_shape(competes, scores.shape)
    return competes if where is None else competes & where


def widen(labels):
    """Returns class ids as int32 or int64: smaller integers could not count a thousand classes."""
    if labels.dtype in (tf.int32, tf.int64):
        return labels
    return tf.cast(labels, tf.int64 if labels.dtype in (tf.uint32, tf.uint64) else tf.int32)


def true_score(scores, labels):
    """Returns `[...]`: the score of each instance's labelled class (ids outside `0..n-1` are clipped)."""
    last = tf.shape(scores)[-1] - 1
    inside = tf.clip_by_value(labels, 0, tf.cast(last, labels.dtype))
    return tf.gather(scores, inside, batch_dims=labels.shape.rank)


def length(lists):
    """Returns the length of the last axis: an int, or a tensor where only a step tells."""
    return lists.shape[-1] or tf.shape(lists)[-1]


def dense(name, values):
    """Returns numbers as a dense tensor; raises ValueError, naming the argument, where they are none.

    >>> dense("scores", {"scores": tf.zeros([2, 3]), "log_counts": tf.zeros([2, 4])})
    Traceback (most recent call last):
    ...
    ValueError: scores=dict of scores, log_counts: one tensor is needed. Pass one value of the dict.
    """
    if isinstance(values, tf.RaggedTensor):
        raise ValueError(
            f"{name}=RaggedTensor {values.shape}: all lists need one length. Pass {name}.to_tensor(), and to "
            f"losses.functional, losses.metrics or `of_scores` where=tf.sequence_mask({name}.row_lengths())."
        )
    if isinstance(values, tf.SparseTensor):
        raise ValueError(
            f"{name}=SparseTensor {values.shape}: a dense tensor is needed. Pass tf.sparse.to_dense({name})."
        )
    if isinstance(values, Mapping):
        keys = ", ".join(map(str, values))
        raise ValueError(f"{name}=dict of {keys}: one tensor is needed. Pass one value of the dict.")
    if values is None:
        raise ValueError(f"{name}=None: a tensor is needed. Pass one.")
    try:
        tensor = tf.convert_to_tensor(values)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name}={type(values).__name__}: it is no dense tensor ({error}). Give all lists one length."
        ) from error
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool):
        raise ValueError(
            f"{name}={tensor.dtype.name} {tensor.shape}: numbers are needed. Give classes ids from 0."
        )
    return tensor


def broadcast(name, values, dtype, to):
    """Returns values of a dtype in a tensor's shape; raises ValueError, naming them, where they do not fit.

    >>> broadcast("where", [True, False], tf.bool, tf.zeros([3, 2])).shape
    TensorShape([3, 2])
    """
    tensor = tf.cast(dense(name, values), dtype)
    try:
        fits = tf.broadcast_static_shape(tensor.shape, to.shape).is_compatible_with(to.shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name} of shape {tensor.shape} cannot be broadcast to {to.shape}")
    return tf.broadcast_to(tensor, tf.shape(to))


def check_count(name, value, least=1):
    """Raises ValueError, naming it, where a value is no whole number of at least so many."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} {value!r} is not a whole number of at least {least}")


def check_rank_fn(rank_fn):
    """Raises ValueError where a rank function is none."""
    if hasattr(rank_fn, "places"):
        raise ValueError(
            f"rank_fn is the sorter {rank_fn.name!r}, whose ranks are in (0, 1]: give its .places"
        )
    if not callable(rank_fn):
        raise ValueError(
            f"rank_fn {rank_fn!r} is no function, such as sorters.get('equivariant').places; one of your own "
            "is saved and loaded with a loss if it is registered: tf.keras.utils.register_keras_serializable"
        )


def take(lists, places):
    """Returns `[..., m]`: of each list `[..., n]` what stands at its places `[..., m]`."""
    return tf.gather(lists, places, batch_dims=places.shape.rank - 1)


def list_size(scores, where):
    """Returns how many classes take part in each list: a scalar, or `[...]` where a mask is given."""
    if where is None:
        return tf.cast(tf.shape(scores)[-1], scores.dtype)
    return tf.reduce_sum(tf.cast(where, scores.dtype), axis=-1)


def hard_rank(scores, labels, where=None):
    r"""Rank of the true class.

    $$\text{rank}(y) = 1 + |\{j \ne y : s_j \ge s_y\}|$$

    Ties are broken against the true class, so that the figure repeats and a constant scorer looks
    as bad as it is. An instance with a non-finite score, or a label outside the classes or masked, has
    rank infinity: every metric of it then takes its worst value.

    Args:
      scores: float `[..., n]`.
      labels: integer `[...]`.
      where: optional bool `[..., n]`, the classes that take part.

    Returns:
      float32 `[...]`, in `1..n` or infinity.

    Raises:
      ValueError: the labels are not integers, or not one an instance.

    >>> hard_rank([[3., 1., 2.], [0., 0., 0.]], [2, 0]).numpy()
    array([2., 3.], dtype=float32)
    """
    return tie_range(scores, labels, where)[1]


def tie_range(scores, labels, where=None):
    """First and last place that the true class may take among its ties.

    Args:
      scores, labels, where: see `hard_rank`.

    Returns:
      Two float32 `[...]`, in `1..n` or both infinity; equal where nothing ties with the true class.

    >>> first, last = tie_range([[3., 1., 1., 1.]], [2])
    >>> first.numpy(), last.numpy()
    (array([2.], dtype=float32), array([4.], dtype=float32))
    """
    scores, labels = dense("scores", scores), dense("labels", labels)
    if scores.dtype != tf.float64:
        scores = tf.cast(scores, tf.float32)
    if not labels.dtype.is_integer:
        raise ValueError(f"class ids must be integers, got {labels.dtype.name}")
    if not labels.shape.is_compatible_with(scores.shape[:-1]):
        raise ValueError(f"class ids of shape {labels.shape} do not fit scores of shape {scores.shape}")
    labels = widen(labels)
    if where is not None:
        where = broadcast("where", where, tf.bool, scores)
    competes = others(scores, labels, where)
    true = true_score(scores, labels)[..., None]
    sound = tf.math.is_finite(scores) if where is None else tf.math.is_finite(scores) | ~where
    known = (labels >= 0) & (labels < tf.cast(tf.shape(scores)[-1], labels.dtype))
    valid = tf.reduce_all(sound, axis=-1) & known
    if where is not None:
        valid &= true_score(where, labels)
    ahead = (competes & (scores > true), competes & (scores >= true))
    places = (1.0 + tf.reduce_sum(tf.cast(x, tf.float32), axis=-1) for x in ahead)
    return tuple(tf.where(valid, place, float("inf")) for place in places)


@_serializable
def all_ranks(scores, where=None):
    """Rank of every class: one more than the number of classes that score higher.

    Takes `O(n log n)`; classes of equal score have equal ranks.

    Args:
      scores: float32 `[..., n]`.
      where: optional bool `[..., n]`; a class that takes no part ranks behind all that do.

    Returns:
      float32 `[..., n]`, in `1..n`.

    >>> all_ranks(tf.constant([[5., 7., 7., 1.]])).numpy()
    array([[3., 1., 1., 4.]], dtype=float32)
    """
    if where is not None:
        scores = tf.where(where, scores, -float("inf"))
    n = tf.shape(scores)[-1]
    flat = tf.reshape(scores, [-1, n])
    order = tf.argsort(flat, axis=-1, direction="DESCENDING", stable=True)
    in_order = tf.gather(flat, order, batch_dims=1)
    # Every place in a run of equal scores counts as the run's first.
    place = tf.broadcast_to(tf.range(n), tf.shape(flat))
    first = running(tf.maximum, tf.where(_starts_run(in_order), place, 0))
    row = tf.broadcast_to(tf.range(tf.shape(flat)[0])[:, None], tf.shape(flat))
    ranks = tf.scatter_nd(tf.stack([row, order], axis=-1), first, tf.shape(flat))
    return tf.ensure_shape(1.0 + tf.cast(tf.reshape(ranks, tf.shape(scores)), tf.float32), scores.shape)


@_serializable
def mean_ranks(scores, where=None):
    """Rank of every class, ties sharing the mean of their places. `O(n log n)`.

    Args:
      scores, where: see `all_ranks`.

    Returns:
      float32 `[..., n]`, in `1..n`.

    >>> mean_ranks(tf.constant([[5., 7., 7., 1.]])).numpy()
    array([[3. , 1.5, 1.5, 4. ]], dtype=float32)
    """
    size = list_size(scores, where)
    size = size if where is None else size[..., None]
    return 0.5 * (all_ranks(scores, where) + size + 1.0 - all_ranks(-scores, where))


def number_runs(in_order):
    """Numbers the runs of equal neighbours in sorted lists.

    Args:
      in_order: `[N, n]`.

    Returns:
      int32 `[N, n]`: the same number for every member of a run, another one for every run and list.

    >>> number_runs(tf.constant([[9., 7., 7.], [7., 7., 1.]])).numpy()
    array([[0, 1, 1],
           [3, 3, 4]], dtype=int32)
    """
    run = running(tf.add, tf.cast(_starts_run(in_order), tf.int32)) - 1
    lists, n = tf.unstack(tf.shape(in_order))
    return run + n * tf.range(lists)[:, None]


@_serializable
def sigmoid_ranks(scores, where=None):
    r"""Soft rank of every class: comparisons replaced by sigmoids.

    $$r_i = 1 + \sum_{j \ne i} \frac{1}{1 + e^{s_i - s_j}}$$

    Takes `O(n^2)` time and memory. The lower the temperature that the scores are divided by, the
    nearer the ranks are to the hard ones.

    Args:
      scores: float32 `[..., n]`.
      where: optional bool `[..., n]`, the classes that take part.

    Returns:
      float32 `[..., n]`, in `[1, n]`.

    References:
      Qin, Liu, Li (2010), "A general approximation framework for direct optimization of
      information retrieval measures"; Rank4Class, eq. 4.

    >>> sigmoid_ranks(tf.constant([[0., 9., -9.]])).numpy().round(3)
    array([[2., 1., 3.]], dtype=float32)
    """
    ahead = tf.sigmoid(scores[..., None, :] - scores[..., :, None])
    if where is not None:
        ahead = tf.where(where[..., None, :], ahead, 0.0)
        own = 0.5 * tf.cast(where, scores.dtype)
    else:
        own = 0.5
    return 1.0 - own + tf.reduce_sum(ahead, axis=-1)


@_serializable
def neural_sort_ranks(scores, where=None):
    r"""Soft rank of every class from NeuralSort's relaxed permutation matrix.

    $$P_{ij} = \operatorname{softmax}_j \Big( (n + 1 - 2i) s_j - \sum_k |s_j - s_k| \Big), \quad
    r_j = \sum_i i P_{ij}$$

    Takes `O(n^2)` time and memory. The lower the temperature that the scores are divided by, the nearer the
    ranks are to the hard ones of scores that differ. A list's ranks sum to `1 + ... + n`, and one of them
    alone may be outside `1..n`.

    Args:
      scores: float32 `[..., n]`.
      where: optional bool `[..., n]`; a class that takes no part ranks behind all that do.

    Returns:
      float32 `[..., n]`.

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
def soft_sort_ranks(scores, where=None):
    r"""Soft rank of every class from SoftSort's relaxed permutation matrix.

    $$P_{ij} = \operatorname{softmax}_j(-|s_{(i)} - s_j|), \quad r_j = \sum_i i P_{ij}$$

    with `s_(i)` the i-th highest score. `O(n^2)`; see `neural_sort_ranks` for what both have in common.

    Args:
      scores, where: see `neural_sort_ranks`.

    Returns:
      float32 `[..., n]`.

    References:
      Prillo, Eisenschlos (2020), "SoftSort: a continuous relaxation for the argsort operator", eq. 2.

    >>> soft_sort_ranks(tf.constant([[0., 99., -99.]])).numpy()
    array([[2., 1., 3.]], dtype=float32)
    """
    taking_part = scores
    if where is not None:  # the others stand at the end, with the last
        last = tf.reduce_min(tf.where(where, scores, scores.dtype.max), axis=-1, keepdims=True)
        taking_part = tf.where(where, scores, last)
    in_order = tf.sort(taking_part, axis=-1, direction="DESCENDING")
    return _ranks_of_places(-tf.abs(in_order[..., :, None] - scores[..., None, :]), where)


def _ranks_of_places(logits, where):
    """Returns the mean place of each class, `[..., n]`, where one takes a place by softmax, `[..., n, n]`."""
    n = tf.shape(logits)[-1]
    if where is not None:
        logits = tf.where(where[..., None, :], logits, -1e30)
    shares = tf.nn.softmax(logits)
    place = 1.0 + tf.range(n, dtype=logits.dtype)
    if where is None:
        return tf.einsum("...ij,i->...j", shares, place)
    size = list_size(shares[..., 0, :], where)[..., None]
    own = tf.einsum("...ij,...i->...j", shares, tf.where(place <= size, place, 0.0))
    return tf.where(where, own, size + 1.0)


def _starts_run(in_order):
    new = in_order[:, 1:] != in_order[:, :-1]
    return tf.concat([tf.ones_like(in_order[:, :1], tf.bool), new], axis=1)


def running(combine, values):
    """Runs an associative function along the lists, in `log n` steps.

    XLA takes `O(n^2)` for TensorFlow's own running sums on CPUs, and these lose less to rounding.

    Args:
      combine: such as `tf.add`.
      values: `[..., n]`.

    Returns:
      `[..., n]`: of each place, what those up to it make together.

    >>> running(tf.add, tf.constant([[1, 2, 3]])).numpy()
    array([[1, 3, 6]], dtype=int32)
    """
    reach = 1
    while reach < (values.shape[-1] or 2**31):
        grown = combine(values[..., reach:], values[..., :-reach])
        values = tf.concat([values[..., :reach], grown], axis=-1)
        reach *= 2
    return values

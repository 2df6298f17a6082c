r"""Losses on a given rank function, of whole batches: a metric of ranks with soft ranks in their place.

A list is not an instance's classes here, it runs over the instances of the batch, which have to be many
enough to rank. The functions still return one value an instance, and their mean over the batch is the
batch's.

Common arguments:
  rank_fn: function of scores `[..., m]` and a mask like them or None to ranks `[..., m]`, 1 the best, that of
    a learned sorter (`sorters.get(...).places`), `ranks.sigmoid_ranks`, `ranks.soft_sort_ranks`, ...
  l1: weight of the mean absolute error of the scores as they are, which may run beside a loss until the
    scores are such as the sorter knows; 0 leaves it out.
  weights: optional, broadcastable to the losses; multiplies them. An instance that is to be left out of the
    others' lists too is left out by `where`.

Common errors:
  ValueError: shapes do not fit, or `rank_fn` is no function.

References:
  Engilberge, Chevallier, Perez, Cord (2019), "SoDeep: a sorting deep net to learn ranking loss surrogates".
"""

import tensorflow as tf

from rank4class.losses import label_checks, ranks

FORMS = ("ranks", "precision")


def spearman(scores, labels, *, where=None, weights=None, rank_fn=None, l1=0.0):
    r"""One less Spearman's rank correlation of scores and targets, over the batch.

    $$\ell_i = \frac{6}{m^2 - 1} (r(s)_i - r(t)_i)^2$$

    whose mean over the `m` instances is $1 - \rho$ with exact ranks, where no targets tie.

    Args:
      scores: float `[B]`.
      labels: float `[B]`, the targets, of any scale; ties have the mean of their ranks.
      where: optional bool `[B]`, the instances that take part.
      rank_fn, weights, l1: see the module.

    Returns:
      float32 `[B]`, 0 for an instance that takes no part.

    >>> spearman([0.1, 0.3, 0.2], [5.0, 9.0, 1.0], rank_fn=ranks.all_ranks).numpy()  # mean 1 - 0.5
    array([0.75, 0.  , 0.75], dtype=float32)

    References:
      SoDeep, eq. 4, which leaves out the factor.
    """
    scores, labels, where = _checked(scores, labels, where, rank=1)
    size = ranks.list_size(scores, where)
    off = tf.square(_ranks(rank_fn, scores, where) - ranks.mean_ranks(labels, where))
    losses = tf.math.divide_no_nan(6.0 * off, tf.square(size) - 1.0) + l1 * tf.abs(scores - labels)
    losses = tf.where(tf.reduce_all(tf.math.is_finite(labels)), losses, float("nan"))
    return _finished(losses, scores, where, weights)


def mean_average_precision(scores, labels, *, where=None, weights=None, rank_fn=None, form="ranks", l1=0.0):
    r"""Ranks of each class's instances among the batch, after which mean average precision goes.

    $$\ell_i = \sum_{c: t_{ic} = 1} \frac{r_c(s)_i}{m_c}$$

    in the form "ranks", the paper's, and in the form "precision"

    $$\ell_i = -\frac{B}{C} \sum_{c: t_{ic} = 1} \frac{1}{P_c} \frac{r^+_c(s)_i}{r_c(s)_i}$$

    with $r_c$ the rank among the batch by the scores of class `c`, $r^+_c$ that among the $P_c$ instances of
    the class alone, and `C` the number of classes with any: its mean over the batch is minus the mean average
    precision where the ranks are exact.

    Args:
      scores: float `[B, n]`.
      labels: integer `[B]`, or `[B, n]`, of which what is above 0 counts as 1.
      where: optional bool, broadcastable to `[B, n]`, what takes part.
      form: "ranks" or "precision".
      rank_fn, weights, l1: see the module; the error is that against labels of 0 and 1.

    Returns:
      float32 `[B]`.

    >>> scores, labels = [[0.9], [0.1], [0.5]], [[1.0], [1.0], [0.0]]
    >>> mean_average_precision(scores, labels, rank_fn=ranks.all_ranks).numpy().round(3)
    array([0.333, 1.   , 0.   ], dtype=float32)
    >>> exact = mean_average_precision(scores, labels, rank_fn=ranks.all_ranks, form="precision")
    >>> exact.numpy().mean().round(4)  # (1 / 1 + 2 / 3) / 2
    -0.8333

    References:
      SoDeep, eq. 7.
    """
    if form not in FORMS:
        raise ValueError(f"form {form!r} is unknown; there are: {', '.join(FORMS)}")
    scores = ranks.dense("scores", scores)
    labels = ranks.dense("labels", labels)
    sound = True
    if labels.shape.rank == 1:
        n = ranks.length(scores)
        labels = label_checks.ids(labels, n)
        sound = label_checks.known(labels, n)
        labels = tf.one_hot(labels, n)
    scores, labels, where = _checked(scores, labels, where, rank=2)
    labels = label_checks.gains(labels, tf.shape(scores), where)
    sound &= tf.reduce_all(label_checks.sound(labels, where), axis=1)
    positive = labels > 0.0 if where is None else (labels > 0.0) & where
    of_class, own = tf.transpose(scores), tf.transpose(positive)
    all_ranks = _ranks(rank_fn, of_class, None if where is None else tf.transpose(where))
    if form == "ranks":
        taking_part = None if where is None else tf.transpose(where)
        share = tf.math.divide_no_nan(all_ranks, _column(ranks.list_size(of_class, taking_part)))
        values = tf.where(own, share, 0.0)
    else:
        own_ranks = _ranks(rank_fn, of_class, own)
        found = tf.reduce_sum(tf.cast(own, tf.float32), axis=1, keepdims=True)
        classes = tf.reduce_sum(tf.cast(found > 0.0, tf.float32))
        scale = tf.cast(tf.shape(scores)[0], tf.float32) / tf.maximum(1.0, classes)
        precisions = tf.where(own, own_ranks, 0.0) / tf.where(own, all_ranks, 1.0)
        values = -scale * tf.math.divide_no_nan(precisions, found)
    losses = tf.reduce_sum(values, axis=0)
    errors = tf.abs(scores - tf.cast(labels > 0.0, tf.float32))
    losses += l1 * tf.reduce_mean(errors if where is None else tf.where(where, errors, 0.0), axis=1)
    losses = tf.where(sound, losses, float("nan"))
    return _finished(losses, scores, where, weights)


def recall_triplet(scores, *, where=None, weights=None, rank_fn=None, margin=1.0):
    r"""How far the hardest other item comes before an instance's own, by ranks, in both directions.

    $$\ell_i = \frac{1}{B} \max(0, \mu + r_{ii} - \min_{j \ne i} r_{ij})$$

    and the same over the columns, added.

    Args:
      scores: float `[B, B]`, of each query (row) and each item (column); the pairs stand on the diagonal.
      where: optional bool `[B, B]`, what takes part: a query's other true items should not, and where its own
        does not, its row and column have no loss.
      margin: in places, at least 0; with 1 the loss of exact ranks is 0 where the pairs are first.
      rank_fn, weights: see the module.

    Returns:
      float32 `[B]`.

    Raises:
      ValueError: also where the scores are no square.

    >>> scores = [[0.9, 0.1, 0.2], [0.3, 0.5, 0.8], [0.1, 0.0, 0.9]]
    >>> recall_triplet(scores, rank_fn=ranks.all_ranks).numpy().round(4)  # second in its row
    array([0.    , 0.6667, 0.    ], dtype=float32)

    References:
      SoDeep, eq. 9 and 10.
    """
    if not margin >= 0.0:
        raise ValueError(f"margin {margin} is negative")
    scores, _, where = _checked(scores, None, where, rank=2)
    if not scores.shape[:1].is_compatible_with(scores.shape[1:]):
        raise ValueError(f"scores of shape {scores.shape} are not one for each pair of B queries and B items")
    if not scores.shape.is_fully_defined():
        message = "scores are not one for each pair of B queries and B items"
        rows, columns = tf.unstack(tf.shape(scores))
        with tf.control_dependencies([tf.debugging.assert_equal(rows, columns, message)]):
            scores = tf.identity(scores)

    def of_rows(scores, where):
        places = _ranks(rank_fn, scores, where)
        other = ~tf.eye(tf.shape(scores)[0], dtype=tf.bool)
        other = other if where is None else other & where & tf.linalg.diag_part(where)[:, None]
        hardest = tf.reduce_min(tf.where(other, places, float("inf")), axis=1)
        there = tf.reduce_any(other, axis=1)
        hardest = tf.where(there, hardest, 0.0)
        return tf.where(there, tf.nn.relu(margin + tf.linalg.diag_part(places) - hardest), 0.0)

    by_columns = None if where is None else tf.transpose(where)
    total = of_rows(scores, where) + of_rows(tf.transpose(scores), by_columns)
    return _finished(total / tf.cast(tf.shape(scores)[0], tf.float32), scores, where, weights)


def _checked(scores, labels, where, rank):
    scores = ranks.dense("scores", scores)
    if not scores.dtype.is_floating or scores.shape.rank != rank:
        shape = ("[B]", "[B, n]")[rank - 1]
        raise ValueError(f"scores must be floats of shape {shape}, got {scores.dtype.name} {scores.shape}")
    scores = tf.cast(scores, tf.float32)
    if labels is not None:
        labels = tf.cast(ranks.dense("labels", labels), tf.float32)
        if not labels.shape.is_compatible_with(scores.shape):
            raise ValueError(f"labels of shape {labels.shape} do not fit scores of shape {scores.shape}")
    if where is not None:
        where = ranks.broadcast("where", where, tf.bool, scores)
        scores = tf.where(where, scores, 0.0)
        labels = labels if labels is None else tf.where(where, labels, 0.0)
    return scores, labels, where


def _ranks(rank_fn, scores, where):
    ranks.check_rank_fn(rank_fn)
    return rank_fn(scores, where)


def _column(size):
    return size if size.shape.rank == 0 else size[:, None]


def _finished(losses, scores, where, weights):
    """A rank function may pass over a score that is not finite: the loss of its batch is NaN."""
    if where is not None and where.shape.rank == 1:
        losses = tf.where(where, losses, 0.0)
    losses = tf.where(tf.reduce_all(tf.math.is_finite(scores)), losses, float("nan"))
    return losses if weights is None else losses * tf.cast(ranks.dense("weights", weights), tf.float32)

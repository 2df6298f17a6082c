"""Losses of a whole batch on a rank function: metrics with the ranks of that function.

The lists run over the instances of the batch instead of the classes of an instance; on several devices,
over those of each replica. The functions still return one value per instance, float32 `[B]`, whose mean is
the loss of the batch.

Common arguments:
  rank_fn: function from scores `[..., m]` and a mask of that shape or None to ranks `[..., m]`, 1 for the
    best: a learned sorter's (`sorters.get(...).rank_fn`), `ranks.sigmoid_ranks`, `ranks.soft_sort_ranks`, ...
  l1: weight of the mean absolute error of the scores, which can be added until the scores are in the range
    that the sorter was trained on; 0 omits it.
  weights: optional, broadcastable to the losses; multiplies them. To leave an instance out of the lists of
    the others too, use `where`.

Common errors:
  ValueError: shapes do not fit, or `rank_fn` is not a function.

References:
  Engilberge, Chevallier, Perez, Cord (2019), "SoDeep: a sorting deep net to learn ranking loss surrogates".
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses import base
from rank4class.losses.ops import label_checks, ranks, tensors

__all__ = [
    "MeanAveragePrecision",
    "Spearman",
    "mean_average_precision",
    "spearman",
]

FORMS = ("ranks", "precision")


@tf.autograph.experimental.do_not_convert
def spearman(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    rank_fn: Callable | None = None,
    l1: float = 0.0,
) -> tf.Tensor:
    r"""One minus Spearman's rank correlation of scores and targets over the batch.

    $$\ell_i = \frac{6}{m^2 - 1} (r(s)_i - r(t)_i)^2$$

    With exact ranks and no ties among the targets, its mean over the `m` instances is $1 - \rho$.

    Args:
      scores: float `[B]`.
      labels: float `[B]`, the targets, on any scale; ties get the mean of their ranks.
      where: optional bool `[B]`, the instances that take part; the others have the loss 0.

    >>> spearman([0.1, 0.3, 0.2], [5.0, 9.0, 1.0], rank_fn=ranks.all_ranks).numpy()  # mean 1 - 0.5
    array([0.75, 0.  , 0.75], dtype=float32)

    References:
      SoDeep, eq. 4, which omits the factor.
    """
    arguments.check_at_least(0, l1=l1)
    scores = tensors.dense("scores", scores)
    if not scores.dtype.is_floating or scores.shape.rank != 1:
        raise ValueError(f"scores={scores.dtype.name} {scores.shape}: not floats of shape [B]. Convert them.")
    scores = tf.cast(scores, tf.float32)
    labels = tf.cast(tensors.dense("labels", labels), tf.float64)  # float32 would round times and ids
    if not labels.shape.is_compatible_with(scores.shape):
        raise ValueError(
            f"labels={labels.shape}: do not fit scores of shape {scores.shape}. Give them that shape."
        )
    if where is not None:
        where = tensors.broadcast("where", where, tf.bool, scores)
        scores = tf.where(where, scores, 0.0)
        labels = tf.where(where, labels, tf.zeros_like(labels))
    size = ranks.list_size(scores, where)
    off = tf.square(_ranks(rank_fn, scores, where) - ranks.mean_ranks(labels, where))
    losses = tf.math.divide_no_nan(6.0 * off, tf.square(size) - 1.0)
    losses += l1 * tf.abs(scores - tf.cast(labels, tf.float32))
    losses = tf.where(tf.reduce_all(tf.math.is_finite(labels)), losses, float("nan"))
    return _finished(losses, scores, where, weights)


@base.register
class Spearman(base.RankingLoss, function=spearman):
    """`spearman` as a Keras loss: `y_true` and `y_pred` are `[B]` or `[B, 1]`."""

    of_classes = False

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> tf.Tensor:
        return self.of_scores(_one_each("scores", y_pred), _one_each("targets", y_true))


def _one_each(name: str, values: TensorLike) -> tf.Tensor:
    """Returns `[B]` of `[B]` or `[B, 1]`."""
    values = tensors.dense(name, values)
    if values.shape.rank != 1 and not values.shape.is_compatible_with([None, 1]):
        raise ValueError(f"{name}={values.shape}: not one per instance. Give the shape [B] or [B, 1].")
    return tf.reshape(values, [-1])


@tf.autograph.experimental.do_not_convert
def mean_average_precision(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    rank_fn: Callable | None = None,
    form: str = "ranks",
    l1: float = 0.0,
) -> tf.Tensor:
    r"""Ranks of each class's instances among the batch, which mean average precision is computed from.

    $$\ell_i = \sum_{c: t_{ic} = 1} \frac{r_c(s)_i}{m_c}$$

    in the form "ranks", the paper's, and

    $$\ell_i = -\frac{B}{C} \sum_{c: t_{ic} = 1} \frac{1}{P_c} \frac{r^+_c(s)_i}{r_c(s)_i}$$

    in the form "precision". $r_c$ is the rank among the batch by the scores of class `c`, $r^+_c$ the rank
    among the $P_c$ instances of the class alone, and `C` the number of classes with an instance. With exact
    ranks, the mean of "precision" over the batch is the negative mean average precision.

    Args:
      scores: float `[B, n]`.
      labels: integer `[B]`, or `[B, n]`, where values above 0 count as 1, also for `l1`.
      where: optional bool, broadcastable to `[B, n]`: the instances and classes that take part.
      form: "ranks" or "precision".

    >>> scores, labels = [[0.9], [0.1], [0.5]], [[1.0], [1.0], [0.0]]
    >>> mean_average_precision(scores, labels, rank_fn=ranks.all_ranks).numpy().round(3)
    array([0.333, 1.   , 0.   ], dtype=float32)
    >>> exact = mean_average_precision(scores, labels, rank_fn=ranks.all_ranks, form="precision")
    >>> print(exact.numpy().mean().round(4))  # (1 / 1 + 2 / 3) / 2
    -0.8333

    References:
      SoDeep, eq. 7.
    """
    arguments.check_choice(FORMS, form=form)
    arguments.check_at_least(0, l1=l1)
    scores, labels, where, are_ids = base.checked(scores, labels, where)
    if are_ids:
        n = tensors.length(scores)
        sound = label_checks.known(labels, n)
        labels = tf.one_hot(labels, n)
    else:
        sound = tf.reduce_all(label_checks.valid_gains(labels, where), axis=1)
    positive = labels > 0.0 if where is None else (labels > 0.0) & where
    of_class = tf.transpose(scores)
    in_class = tf.transpose(positive)
    taking_part = None if where is None else tf.transpose(where)
    all_ranks = _ranks(rank_fn, of_class, taking_part)
    if form == "ranks":
        size = ranks.list_size(of_class, taking_part)
        share = tf.math.divide_no_nan(all_ranks, size if where is None else size[:, None])
        values = tf.where(in_class, share, 0.0)
    else:
        ranks_in_class = _ranks(rank_fn, of_class, in_class)
        class_sizes = tf.reduce_sum(tf.cast(in_class, tf.float32), axis=1, keepdims=True)
        classes = tf.reduce_sum(tf.cast(class_sizes > 0.0, tf.float32))
        scale = tf.cast(tf.shape(scores)[0], tf.float32) / tf.maximum(1.0, classes)
        precisions = tf.where(in_class, ranks_in_class, 0.0) / tf.where(in_class, all_ranks, 1.0)
        values = -scale * tf.math.divide_no_nan(precisions, class_sizes)
    losses = tf.reduce_sum(values, axis=0)
    errors = tf.abs(scores - tf.cast(labels > 0.0, tf.float32))
    errors = errors if where is None else tf.where(where, errors, 0.0)
    losses += l1 * tf.math.divide_no_nan(tf.reduce_sum(errors, axis=1), ranks.list_size(scores, where))
    losses = tf.where(sound, losses, float("nan"))
    return _finished(losses, scores, where, weights)


def _ranks(rank_fn: Any, scores: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
    tensors.check_rank_fn(rank_fn)
    return rank_fn(scores, where)


def _finished(
    losses: tf.Tensor, scores: tf.Tensor, where: tf.Tensor | None, weights: TensorLike | None
) -> tf.Tensor:
    """Returns NaN for a batch with a score that is not finite, which a rank function may ignore."""
    if where is not None and where.shape.rank == 1:
        losses = tf.where(where, losses, 0.0)
    losses = tf.where(tf.reduce_all(tf.math.is_finite(scores)), losses, float("nan"))
    return base.weighted(losses, weights)


MeanAveragePrecision = base.keras_loss("MeanAveragePrecision", mean_average_precision)

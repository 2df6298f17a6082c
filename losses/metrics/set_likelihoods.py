"""Metrics of label sets and of a prior of the number of classes: see `losses.ops.set_sizes`.

Common arguments:
  scores: floats `[..., n]`.
  labels: one gain per class, `[..., n]`, where values above 0 are in the set; or class ids `[...]`.
  log_prior: see `losses.ops.set_sizes`.
  where: optional bool, broadcastable to `[..., n]`: the classes that take part.
"""

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class.losses.ops import label_checks, n_choose_k, set_sizes, tensors

__all__ = ["exact_match", "nll"]


def nll(
    scores: TensorLike, labels: TensorLike, log_prior: TensorLike, *, where: TensorLike | None = None
) -> tf.Tensor:
    r"""Returns the negative log-likelihood of the set, in nats, float32 `[...]`.

    $$-\log p(k) - \log p(c \mid k)$$

    It is infinite if the prior excludes the count, or if a score, a label or the prior is invalid (in eager
    mode an invalid prior raises ValueError, see `losses.ops.set_sizes`).

    References:
      Swersky, Tarlow, Adams, Zemel, Frey (2012), eq. 3, and section 5.1.

    >>> nll([[0.0, 0.0]], [[1.0, 0.0]], tf.math.log([[0.25, 0.5, 0.25]])).numpy().round(4)
    array([1.3863], dtype=float32)
    """
    scores, where, _ = n_choose_k.checked(scores, where)
    chosen, valid = _chosen(scores, labels, where)
    value = -tf.cast(set_sizes.log_likelihood(scores, chosen, log_prior, where=where), tf.float32)
    return tf.where(tf.math.is_nan(value) | ~valid, float("inf"), value)


def exact_match(
    scores: TensorLike, labels: TensorLike, log_prior: TensorLike, *, where: TensorLike | None = None
) -> tf.Tensor:
    """Returns whether the most probable set, over all sizes, is the true one, as float32 `[...]`, 0 or 1.

    It is 0 if a score, a label or the prior is invalid.

    >>> exact_match([[3.0, 1.0, 2.0]], [[1.0, 0.0, 1.0]], tf.math.log([[0.0, 0.2, 0.8]])).numpy()
    array([1.], dtype=float32)
    """
    scores, where, _ = n_choose_k.checked(scores, where)
    chosen, valid = _chosen(scores, labels, where)
    predicted = set_sizes.most_probable(scores, log_prior, where=where)
    # The likelihood of invalid input is not finite.
    likelihood = set_sizes.log_likelihood(scores, predicted, log_prior, where=where)
    same = tf.reduce_all(predicted == (chosen & where), axis=-1)
    return tf.cast(same & valid & tf.math.is_finite(likelihood), tf.float32)


def _chosen(scores: tf.Tensor, labels: TensorLike, where: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the classes of each set, bool `[..., n]`, and whether its labels are valid, bool `[...]`."""
    labels = tensors.dense("labels", labels)
    if labels.dtype.is_integer and labels.shape.rank == scores.shape.rank - 1:
        labels = tensors.widen(labels)
        n = tf.shape(scores)[-1]
        return tf.one_hot(labels, n, True, False), label_checks.known(labels, n)
    labels = tf.cast(labels, tf.float32)
    return labels > 0.0, tf.reduce_all(label_checks.valid_gains(labels, where), axis=-1)

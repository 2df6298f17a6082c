"""Metrics of sets: how well a model knows which classes an example has, and how many.

Unlike the ranking metrics they need the prior of the count beside the scores; see `counts`.

Common arguments:
  scores: floats `[..., n]`.
  labels: one gain a class, `[..., n]`, of which those above 0 make the set; or class ids `[...]`.
  log_prior: see `counts`.
  where: optional bool, broadcastable to `[..., n]`: the classes that take part.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from rank4class.losses import counts, label_checks, ranks


def nll(scores, labels, log_prior, *, where=None):
    r"""Negative log-likelihood of the set, in nats.

    $$-\log p(k) - \log p(c \mid k)$$

    Args:
      scores, labels, log_prior, where: see the module.

    Returns:
      float32 `[...]`, at least 0; infinite where the prior leaves such a count no chance, and where a score,
      a label or the prior is invalid (in eager mode the prior raises ValueError, see `counts`).

    References:
      Swersky, Tarlow, Adams, Zemel, Frey (2012), eq. 3, and section 5.1.

    >>> nll([[0.0, 0.0]], [[1.0, 0.0]], tf.math.log([[0.25, 0.5, 0.25]])).numpy().round(4)
    array([1.3863], dtype=float32)
    """
    scores = ranks.dense("scores", scores)
    chosen, valid = _chosen(scores, labels, where)
    value = -counts.log_likelihood(scores, chosen, log_prior, where=where)
    return tf.cast(tf.where(tf.math.is_nan(value) | ~valid, float("inf"), value), tf.float32)


def exact_match(scores, labels, log_prior, *, where=None):
    """Whether the most probable set, its size included, is the true one.

    Args:
      scores, labels, log_prior, where: see the module.

    Returns:
      float32 `[...]`, 0 or 1; 0 where a score, a label or the prior is invalid.

    >>> exact_match([[3.0, 1.0, 2.0]], [[1.0, 0.0, 1.0]], tf.math.log([[0.0, 0.2, 0.8]])).numpy()
    array([1.], dtype=float32)
    """
    scores = ranks.dense("scores", scores)
    chosen, valid = _chosen(scores, labels, where)
    chosen = chosen if where is None else chosen & where
    found = counts.most_probable(scores, log_prior, where=where)
    # Of what makes no sense the likelihood is not finite.
    likelihood = counts.log_likelihood(scores, found, log_prior, where=where)
    same = tf.reduce_all(found == chosen, axis=-1)
    return tf.cast(same & valid & tf.math.is_finite(likelihood), tf.float32)


def _chosen(scores, labels, where):
    """Returns the classes of each set, bool `[..., n]`, and whether its labels are ids or gains, `[...]`."""
    labels = ranks.dense("labels", labels)
    if labels.dtype.is_integer and labels.shape.rank == scores.shape.rank - 1:
        n = tf.shape(scores)[-1]
        return tf.one_hot(labels, n, True, False), label_checks.known(ranks.widen(labels), n)
    labels = tf.cast(labels, tf.float32)
    where = None if where is None else ranks.broadcast("where", where, tf.bool, labels)
    return labels > 0.0, tf.reduce_all(label_checks.sound(labels, where), axis=-1)


@dataclasses.dataclass(frozen=True)
class SetMetric:
    """A metric of sets with what is known of a ranking metric (`keras_metrics.RankingMetric`).

    Attributes:
      function: of `scores, labels, log_prior` and `where`, to one value an instance.
      percent: whether it is a share, which is reported in percent.
      higher_is_better: whether it is.
    """

    function: Callable
    percent: bool
    higher_is_better: bool

    def check_classes(self, num_classes):
        """A set of any number of classes can be judged."""

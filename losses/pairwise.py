"""Losses of pairs of classes: logistic, hinge, soft zero-one, squared error and YetiRank."""

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses import base, stochastic
from rank4class.losses.ops import log_space, pairs, ranks, sums

__all__ = [
    "PairwiseHinge",
    "PairwiseLogistic",
    "PairwiseMSE",
    "PairwiseSoftZeroOne",
    "YetiLogistic",
    "pairwise_hinge",
    "pairwise_logistic",
    "pairwise_mse",
    "pairwise_soft_zero_one",
    "yeti_logistic",
]


def pairwise_logistic(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    normalize: str = "list",
    lambda_weight: str = "none",
) -> tf.Tensor:
    r"""Pairwise logistic loss of every class below the true one.

    $$\ell = \frac{1}{z} \sum_{j \ne y} w_j \log(1 + e^{m_j / \tau}), \quad m_j = s_j - s_y$$

    Dense labels sum over all pairs of different labels, in `O(k n)` for `k` relevant classes. With a
    `lambda_weight` or under XLA that is `O(n^2)`.

    Convex in the scores.

    Args:
      normalize: `z`. "list" is `n`, as in TF-Ranking's default reduction: with many classes the gradient
        shrinks, so a larger learning rate is needed. "pairs" is the number of pairs (`n - 1` for one relevant
        class). "none" is 1, as in the paper's formula.
      lambda_weight: `w_j`. "none" is 1. "ndcg" and "mrr" are the change of the metric if the two classes
        of the pair swapped ranks (LambdaRank). "ndcg_loss2" is the bound of the LambdaLoss paper, the default
        NDCG weight of TF-Ranking. They multiply by `n`, take `O(n log n)`, and let no gradient through.

    >>> pairwise_logistic([[0., 0., 0., 0.]], [2], normalize="pairs").numpy().round(4)  # log 2
    array([0.6931], dtype=float32)

    References:
      Burges et al. (2005); Rank4Class, eq. 3; Burges (2010), "From RankNet to LambdaRank to
      LambdaMART"; Wang et al. (2018), "The LambdaLoss framework for ranking metric optimization".
    """
    return pairwise(sums.logistic, scores, labels, where, weights, temperature, normalize, lambda_weight)


def pairwise_hinge(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    normalize: str = "list",
    lambda_weight: str = "none",
) -> tf.Tensor:
    r"""Pairwise hinge loss of every class that is not below the true one by a margin of 1.

    $$\ell = \frac{1}{z} \sum_{j \ne y} w_j \max(0, 1 + m_j / \tau), \quad m_j = s_j - s_y$$

    For dense labels and the options see `pairwise_logistic`.

    Convex in the scores.

    >>> pairwise_hinge([[0., 0.5, -2.]], [0], normalize="none").numpy()  # the second class: 1 + 0.5
    array([1.5], dtype=float32)

    References:
      Joachims (2002), "Optimizing search engines using clickthrough data".
    """
    return pairwise(sums.hinge, scores, labels, where, weights, temperature, normalize, lambda_weight)


def pairwise_soft_zero_one(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    normalize: str = "list",
    lambda_weight: str = "none",
) -> tf.Tensor:
    r"""Soft number of the classes above the true one.

    $$\ell = \frac{1}{z} \sum_{j \ne y} \frac{w_j}{1 + e^{-m_j / \tau}}, \quad m_j = s_j - s_y$$

    For dense labels and the options see `pairwise_logistic`.

    >>> pairwise_soft_zero_one([[0., 0., 0., 0.]], [2], normalize="pairs").numpy()
    array([0.5], dtype=float32)
    """
    return pairwise(sums.soft_zero_one, scores, labels, where, weights, temperature, normalize, lambda_weight)


@tf.autograph.experimental.do_not_convert
def pairwise(
    term: sums.Term,
    scores: TensorLike,
    labels: TensorLike,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    normalize: str = "list",
    lambda_weight: str = "none",
) -> tf.Tensor:
    r"""Returns the loss of every class below the true one, by a term of its margin.

    $$\ell = \frac{1}{z} \sum_{j \ne y} w_j f(m_j / \tau), \quad m_j = s_j - s_y$$

    For dense labels and the options see `pairwise_logistic`.

    Args:
      term: `f`, a function from margins to their losses and to a function that returns the derivatives, as in
        `losses.ops.sums`. At minus infinity, the margin of a class that takes no part, both are 0.

    >>> pairwise(sums.hinge, [[0., 0.5, -2.]], [0], normalize="none").numpy()  # 1 + 0.5
    array([1.5], dtype=float32)
    """
    arguments.check_positive(temperature=temperature)
    arguments.check_choice(pairs.NORMALIZERS, normalize=normalize)
    arguments.check_choice(pairs.WEIGHTS, lambda_weight=lambda_weight)

    def of_ids(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        pair_weights = pairs.weights_of_true_class(lambda_weight, scores, labels, where)
        total = sums.margin_sum(term, scores / temperature, labels, where, pair_weights)
        total = base.zero_without_relevant(total, labels, where)
        size = ranks.list_size(scores, where)
        return pairs.normalized(total, normalize, size, num_pairs=size - 1.0)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        def of_pairs(term: sums.Term, pair_weights: tf.Tensor | None = None) -> tf.Tensor:
            logits = scores / temperature
            relevant = labels > 0.0
            each = sums.margin_sums_of_relevant(term, logits, relevant, where, labels, pair_weights)
            return tf.reduce_sum(each, axis=-1)

        total = of_pairs(term, pairs.weights(lambda_weight, scores, labels, where))
        size = ranks.list_size(scores, where)
        num_pairs = of_pairs(sums.one) if normalize == "pairs" else size
        return pairs.normalized(total, normalize, size, num_pairs)

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


@tf.autograph.experimental.do_not_convert
def pairwise_mse(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    normalize: str = "list",
) -> tf.Tensor:
    r"""Squared error of every difference between two scores.

    $$\ell = \frac{1}{z} \sum_{i \ne j} \big((s_i - s_j) / \tau - (t_i - t_j)\big)^2$$

    Unlike the mean squared error it does not change if all scores shift. Both forms of labels take `O(n)`:
    the sum is `2n` times the squared distance of `s - t` from its mean. For `normalize` see
    `pairwise_logistic`; there are `n (n - 1)` pairs.

    Convex in the scores.

    >>> pairwise_mse([[3., 0.]], [0], normalize="pairs").numpy()  # the difference is 3, not 1
    array([4.], dtype=float32)
    """
    arguments.check_positive(temperature=temperature)
    arguments.check_choice(pairs.NORMALIZERS, normalize=normalize)

    def below_highest(scores: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        """Returns exact differences: XLA may round a mean of far scores in several ways."""
        competing = scores if where is None else tf.where(where, scores, scores.dtype.min)
        highest = tf.stop_gradient(tf.reduce_max(competing, axis=-1, keepdims=True))
        apart = (scores - highest) / temperature
        return apart if where is None else tf.where(where, apart, 0.0)

    def of_ids(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        scores = below_highest(scores, where)
        size = ranks.list_size(scores, where)
        relevant = 1.0 if where is None else tf.cast(base.is_relevant(labels, where), scores.dtype)
        mean = tf.math.divide_no_nan(tf.reduce_sum(scores, axis=-1) - relevant, size)
        squares = sums.item_sum(sums.squared, scores - mean[..., None], labels, where, scale=1.0, target=1.0)
        return pairs.normalized(2.0 * size * squares, normalize, size, num_pairs=size * (size - 1.0))

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        size = ranks.list_size(scores, where)
        errors = below_highest(scores, where) - labels
        mean = tf.math.divide_no_nan(tf.reduce_sum(errors, axis=-1), size)
        squares = tf.reduce_sum(tf.where(where, tf.square(errors - mean[..., None]), 0.0), axis=-1)
        return pairs.normalized(2.0 * size * squares, normalize, size, num_pairs=size * (size - 1.0))

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


@tf.autograph.experimental.do_not_convert
def yeti_logistic(
    scores: TensorLike,
    labels: TensorLike,
    *,
    seed: TensorLike,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    samples: int = 8,
    gumbel_temperature: float = 1.0,
    normalize: str = "list",
) -> tf.Tensor:
    r"""YetiRank: pairwise logistic loss of neighbors in orders that are drawn from the model.

    $$\ell = \frac{n}{z S} \Big(1 - \frac{1}{\log_2 3}\Big) \sum_{i=1}^{S} \sum_{(a, b)}
    (2^{t_a} - 2^{t_b}) \log(1 + e^{(s^{(i)}_b - s^{(i)}_a) / \tau})$$

    over the pairs of neighbors, `t_a > t_b`, in the order of `s^{(i)}`, the i-th of `S` noisy copies of the
    scores.

    Args:
      gumbel_temperature: divides the noisy scores.
      normalize: see `pairwise_logistic`.

    >>> yeti_logistic([[9., 0., 0.]], [0], seed=[0, 0]).numpy() < 0.01
    array([ True])

    References:
      Lyzhin, Ustimenko, Gulin, Prokhorenkova (2022), "Which tricks are important for learning to
      rank?".
    """
    arguments.check_positive(temperature=temperature)
    arguments.check_choice(pairs.NORMALIZERS, normalize=normalize)

    def of_order(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        masked_last = tf.where(where, scores, -float("inf"))
        order = tf.argsort(masked_last, axis=-1, direction="DESCENDING", stable=True)
        scores, labels, where_in_order = (ranks.take(x, order) for x in (scores, labels, where))
        gain_gap = tf.pow(2.0, labels[..., :-1]) - tf.pow(2.0, labels[..., 1:])
        gain_gap = tf.where(labels[..., :-1] == labels[..., 1:], 0.0, gain_gap)  # gains may be infinite
        margins = tf.sign(gain_gap) * (scores[..., 1:] - scores[..., :-1]) / temperature
        counts = (gain_gap != 0.0) & where_in_order[..., 1:]
        discount_gap = 1.0 - tf.math.log(2.0) / tf.math.log(3.0)  # between rank 1 and rank 2
        size = ranks.list_size(scores, where)
        losses = tf.abs(gain_gap) * log_space.softplus(tf.where(counts, margins, -float("inf")))
        total = size * discount_gap * tf.reduce_sum(losses, axis=-1)
        num_pairs = tf.reduce_sum(tf.cast(counts, scores.dtype), axis=-1)
        return pairs.normalized(total, normalize, size, num_pairs)

    of_dense = stochastic.averaged(of_order, seed, samples, gumbel_temperature)
    return base.evaluate(None, of_dense, scores, labels, where, weights)


PairwiseLogistic = base.keras_loss("PairwiseLogistic", pairwise_logistic)
PairwiseHinge = base.keras_loss("PairwiseHinge", pairwise_hinge)
PairwiseSoftZeroOne = base.keras_loss("PairwiseSoftZeroOne", pairwise_soft_zero_one)
PairwiseMSE = base.keras_loss("PairwiseMSE", pairwise_mse)
YetiLogistic = base.keras_loss("YetiLogistic", yeti_logistic)

"""Losses of each class by itself: squared errors, sigmoid cross entropies, and mixtures of several scores."""

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses import base
from rank4class.losses.ops import log_space, ranks, sums, tensors

__all__ = [
    "ASL",
    "MSE",
    "ClickEM",
    "MixtureEM",
    "Ordinal",
    "RescaledMSE",
    "SigmoidCrossEntropy",
    "asl",
    "click_em",
    "mixture_em",
    "mse",
    "ordinal",
    "rescaled_mse",
    "sigmoid_cross_entropy",
]


def mse(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
) -> tf.Tensor:
    r"""Mean squared error against the one-hot label.

    $$\ell = \frac{1}{n} \sum_j (s_j - [j = y])^2$$

    Convex in the scores.

    >>> mse([[0., 0., 0., 2.]], [3]).numpy()
    array([0.25], dtype=float32)

    References:
      Hui, Belkin (2021), "Evaluation of neural architectures trained with square loss vs
      cross-entropy in classification tasks"; Rank4Class, appendix D.
    """
    return rescaled_mse(scores, labels, where=where, weights=weights, kappa=1.0, target=1.0)


def _mean_of_ids(
    term: sums.Term,
    scores: tf.Tensor,
    labels: tf.Tensor,
    where: tf.Tensor | None,
    *,
    scale: float,
    target: float,
) -> tf.Tensor:
    total = sums.item_sum(term, scores, labels, where, scale=scale, target=target)
    return tf.math.divide_no_nan(total, ranks.list_size(scores, where))


def _mean(losses: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """Returns the mean over the classes that take part."""
    total = tf.reduce_sum(tf.where(where, losses, 0.0), axis=-1)
    return tf.math.divide_no_nan(total, ranks.list_size(losses, where))


@tf.autograph.experimental.do_not_convert
def rescaled_mse(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    kappa: float = 15.0,
    target: float = 30.0,
) -> tf.Tensor:
    r"""Mean squared error with a larger target and weight for the true class.

    $$\ell = \frac{1}{n} \Big(\kappa (s_y - M)^2 + \sum_{j \ne y} s_j^2\Big)$$

    It is meant for many classes, where in the plain form the zeros outweigh the one true class. A graded
    label `t` has the target `t M` and the weight `1 + t (kappa - 1)`, at least 0 if `kappa >= 1` or `t <= 1`.

    Convex in the scores.

    Args:
      kappa: weight of the true class; the published value for ImageNet is 15.
      target: `M`, its target; the published value for ImageNet is 30.

    >>> rescaled_mse([[0., 2.]], [1], kappa=4.0, target=3.0).numpy()
    array([2.], dtype=float32)

    References:
      Hui, Belkin (2021), section 3; Rank4Class, appendix D.
    """
    arguments.check_positive(kappa=kappa)

    def of_ids(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        return _mean_of_ids(sums.squared, scores, labels, where, scale=kappa**0.5, target=target)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        return _mean((1.0 + (kappa - 1.0) * labels) * tf.square(scores - target * labels), where)

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


@tf.autograph.experimental.do_not_convert
def sigmoid_cross_entropy(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 1.0,
    label_smoothing: float = 0.0,
) -> tf.Tensor:
    r"""Mean cross entropy of one binary problem per class: is it the true one?

    $$\ell = \frac{1}{n} \Big(\log(1 + e^{-s_y / \tau}) + \sum_{j \ne y} \log(1 + e^{s_j / \tau})\Big)$$

    Dense labels are probabilities, in `[0, 1]`.

    Convex in the scores.

    Args:
      label_smoothing: `a`, in [0, 1): labels `t` become `(1 - a) t + a / 2`, as in
        `tf.keras.losses.BinaryCrossentropy`.

    >>> sigmoid_cross_entropy([[0., 0., 0.]], [2]).numpy().round(4)  # log 2
    array([0.6931], dtype=float32)
    """
    arguments.check_positive(temperature=temperature)
    arguments.check_fraction(label_smoothing=label_smoothing)

    def of_ids(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        losses = _mean_of_ids(sums.logistic, scores / temperature, labels, where, scale=-1.0, target=0.0)
        if label_smoothing:  # a label `t` adds `-t s` to the loss of its class, and masked scores are 0
            change = ranks.true_score(scores, labels) - 0.5 * tf.reduce_sum(scores, axis=-1)
            mean_change = tf.math.divide_no_nan(change, ranks.list_size(scores, where))
            losses += label_smoothing / temperature * mean_change
        return losses

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        if label_smoothing:
            labels = (1.0 - label_smoothing) * labels + 0.5 * label_smoothing
        return _mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, scores / temperature), where)

    return base.evaluate(of_ids, of_dense, scores, labels, where, weights)


@tf.autograph.experimental.do_not_convert
def asl(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    margin: float = 0.05,
) -> tf.Tensor:
    r"""Asymmetric loss: sigmoid cross entropy in which easy irrelevant classes count less.

    $$\ell = -\frac{1}{n} \Big(\sum_{j \in P} (1 - q_j)^{\gamma_+} \log q_j
    + \sum_{j \notin P} p_j^{\gamma_-} \log(1 - p_j)\Big),
    \quad q_j = \sigma(s_j), \quad p_j = \max(q_j - m, 0)$$

    With `gamma_positive=0, gamma_negative=0, margin=0` it equals `sigmoid_cross_entropy`, and with equal
    gammas and no margin the focal loss. Dense labels are probabilities, in `[0, 1]`.

    Args:
      gamma_positive, gamma_negative: exponents of relevant and irrelevant classes, at least 0.
      margin: `m`, in [0, 1): irrelevant classes of a probability up to `m` cost nothing. Without a gradient
        the probability of a class that is wrongly labeled irrelevant may stay there.

    >>> asl([[0., 0.]], [[1., 0.]], gamma_negative=1.0, margin=0.0).numpy().round(4)  # 3/4 log 2
    array([0.5199], dtype=float32)

    References:
      Ridnik, Ben-Baruch, Zamir, Noy, Friedman, Protter, Zelnik-Manor (2021), "Asymmetric loss for multi-label
      classification". They sum over the classes.
    """
    arguments.check_at_least(0, gamma_positive=gamma_positive, gamma_negative=gamma_negative)
    arguments.check_fraction(margin=margin)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        log_q = -log_space.softplus(-scores)
        log_not_q = -log_space.softplus(scores)
        if margin:
            q = tf.sigmoid(scores)
            above = q > margin
            shifted = tf.where(above, q - margin, 0.5)  # 0.5 keeps the gradient of classes below finite
            log_p = tf.where(above, tf.math.log(shifted), -float("inf"))
            log_not_p = tf.where(above, tf.math.log1p(-shifted), 0.0)
        else:
            log_p = log_q
            log_not_p = log_not_q
        positive = tf.exp(gamma_positive * log_not_q) * log_q
        negative = tf.exp(gamma_negative * log_p) * log_not_p if gamma_negative else log_not_p
        return _mean(-(labels * positive + (1.0 - labels) * negative), where)

    return base.evaluate(None, of_dense, scores, labels, where, weights)


@tf.autograph.experimental.do_not_convert
def ordinal(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    use_fraction_label: bool = False,
) -> tf.Tensor:
    r"""Ordinal loss: one binary problem per level, is the label at least that high?

    $$\ell = \frac{1}{n} \sum_j \sum_{l=1}^{L} \text{CE}([t_j \ge l], \sigma(s_{jl}))$$

    It is for Keras models of `L` scores per class or item, whose sum ranks; the models of the
    commands have one score.

    Convex in the scores.

    Args:
      scores: float `[..., n, L]`, one score per level.
      use_fraction_label: whether a label between two levels counts for the upper one by its fraction.

    >>> ordinal([[[0., 0.], [0., 0.]]], [[2., 1.]]).numpy().round(4)  # 2 log 2
    array([1.3863], dtype=float32)

    References:
      TF-Ranking, `OrdinalLoss`.
    """

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        above = labels[..., None] - tf.range(tensors.length(scores), dtype=tf.float32)  # t - (l - 1)
        levels = tf.clip_by_value(above if use_fraction_label else tf.floor(above), 0.0, 1.0)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(levels, scores)
        return _mean(tf.reduce_sum(losses, axis=-1), where)

    return base.evaluate(None, of_dense, scores, labels, where, weights, heads=True)


@tf.autograph.experimental.do_not_convert
def mixture_em(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    alpha: float = 1.0,
) -> tf.Tensor:
    r"""Expectation maximization over a mixture of models: each list trains the models that explain it.

    $$\ell = \sum_h q_h \ell_h, \quad q_h \propto e^{-\alpha \ell_h}, \quad
    \ell_h = \sum_j \text{CE}(t_j, \sigma(s_{jh}))$$

    Dense labels are probabilities, in `[0, 1]`. No gradient flows through `q`. It is for Keras models of `H`
    scores per class or item; those of the commands have one.

    Args:
      scores: float `[..., n, H]`, one score per model.
      alpha: `alpha > 0`; larger values assign lists to models more sharply.

    >>> mixture_em([[[0., 0.], [0., 0.]]], [[1., 0.]]).numpy().round(4)  # 2 log 2
    array([1.3863], dtype=float32)

    References:
      Yan, Qin, Zhuang, Wang, Bendersky, Najork (2022), "Revisiting two-tower models for unbiased
      learning to rank"; TF-Ranking, `MixtureEMLoss`.
    """
    arguments.check_positive(alpha=alpha)

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        labels_of_models = tf.broadcast_to(labels[..., None], tf.shape(scores))
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels_of_models, scores)
        model_losses = tf.reduce_sum(tf.where(where[..., None], losses, 0.0), axis=-2)
        shares = tf.nn.softmax(-alpha * tf.stop_gradient(model_losses))
        has_relevant = tf.reduce_any(labels > 0.0, axis=-1)
        return tf.where(has_relevant, tf.reduce_sum(shares * model_losses, axis=-1), 0.0)

    return base.evaluate(None, of_dense, scores, labels, where, weights, heads=True)


@tf.autograph.experimental.do_not_convert
def click_em(
    scores: TensorLike,
    labels: TensorLike,
    *,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    exam_loss_weight: float = 1.0,
    rel_loss_weight: float = 1.0,
) -> tf.Tensor:
    """Expectation maximization for clicks: a clicked class was examined and is relevant.

    The loss is the mean over the classes of the cross entropy of the two scores against the posterior
    probabilities of examination and of relevance given the click. No gradient flows through the posteriors.
    It is for Keras models of two scores per item, such as one of its position and one of its features, of
    which the second ranks; the models of the commands have one score.

    Args:
      scores: float `[..., n, 2]`: the score of examination and the score of relevance.
      labels: clicks, at least 1 for a clicked class; or the id of the one clicked class.
      exam_loss_weight, rel_loss_weight: weights of the two parts.

    >>> click_em([[[0., 0.]]], [[1.]]).numpy().round(4)  # 2 log 2
    array([1.3863], dtype=float32)

    References:
      Wang, Golbandi, Bendersky, Metzler, Najork (2018), "Position bias estimation for unbiased
      learning to rank in personal search"; TF-Ranking, `ClickEMLoss`.
    """
    shape = tensors.dense("scores", scores).shape
    if shape[-1] not in (2, None):
        raise ValueError(f"scores={shape}: click_em needs two per class. Give the shape [..., n, 2].")

    def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        examined = scores[..., 0]
        relevant = scores[..., 1]

        def loss(scores: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
            # Without a click: log(p (1 - q) / (1 - p)), the log-odds given that not both are true.
            log_odds = scores - log_space.softplus(others)
            posterior = tf.stop_gradient(tf.where(labels >= 1.0, 1.0, tf.sigmoid(log_odds)))
            return tf.nn.sigmoid_cross_entropy_with_logits(posterior, scores)

        losses = exam_loss_weight * loss(examined, relevant) + rel_loss_weight * loss(relevant, examined)
        return _mean(losses, where)

    return base.evaluate(None, of_dense, scores, labels, where, weights, heads=True)


MSE = base.keras_loss("MSE", mse)
RescaledMSE = base.keras_loss("RescaledMSE", rescaled_mse)
SigmoidCrossEntropy = base.keras_loss("SigmoidCrossEntropy", sigmoid_cross_entropy, threshold=0.0)
ASL = base.keras_loss("ASL", asl, threshold=0.0)
Ordinal = base.keras_loss("Ordinal", ordinal, heads=True)
MixtureEM = base.keras_loss("MixtureEM", mixture_em, heads=True)
ClickEM = base.keras_loss("ClickEM", click_em, heads=True)

r"""Losses of other papers, to be measured: a loss that no measurement prefers is not part of the library.

    python -m rank4class train --import=rank4class.scripts.research.losses_tried --loss=poly1 \
        --config=digits_mlp --workdir=runs/poly1

Arguments are as in `losses.base`. Dense labels sum over the relevant classes, each times its label, in
`O(n^2)` time and memory. Let `p` be the softmax of the scores.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses import base, cross_entropy
from rank4class.losses.ops import n_choose_k as model
from rank4class.losses.ops import ranks

_STEPS = 10  # of the normalization of tempered probabilities


def _register(title: str) -> Callable:
    """Returns the decorator that makes a public loss, and its Keras class, of a form for class ids.

    A form takes float32 scores `[..., n]`, ids within the classes and a bool mask or None.
    """

    def decorate(form: Callable) -> Callable:
        @functools.wraps(form)
        @tf.autograph.experimental.do_not_convert
        def loss(
            scores: TensorLike,
            labels: TensorLike,
            *,
            where: TensorLike | None = None,
            weights: TensorLike | None = None,
            **options: Any,
        ) -> tf.Tensor:
            def of_ids(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
                return base.zero_without_relevant(form(scores, labels, where, **options), labels, where)

            def of_dense(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
                n = tf.shape(scores)[-1]
                square = tf.concat([tf.shape(scores), [n]], axis=0)
                lists, masks = (tf.broadcast_to(one[..., None, :], square) for one in (scores, where))
                losses = of_ids(lists, tf.broadcast_to(tf.range(n), tf.shape(scores)), masks)
                return tf.reduce_sum(tf.math.multiply_no_nan(losses, labels), axis=-1)

            return base.evaluate(of_ids, of_dense, scores, labels, where, weights)

        base.keras_loss(title, loss)
        return loss

    return decorate


def _shown(scores: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
    """Returns scores of which the masked ones are the lowest."""
    return scores if where is None else tf.where(where, scores, ranks.MASKED)


def _first(scores: tf.Tensor, k: int, where: tf.Tensor | None) -> tf.Tensor:
    """Returns the K highest scores, or all if there are fewer, in falling order."""
    return tf.math.top_k(_shown(scores, where), tf.minimum(k, tf.shape(scores)[-1])).values


@_register("Poly1")
def poly1(
    scores: tf.Tensor,
    labels: tf.Tensor,
    where: tf.Tensor | None,
    *,
    epsilon: float = 1.0,
) -> tf.Tensor:
    r"""Poly-1 loss, $-\log p_y + \epsilon (1 - p_y)$, with $\epsilon \ge -1$; 0 is softmax.

    >>> poly1([[0.0, 0.0, 0.0, 0.0]], [2]).numpy().round(4)  # log 4 + 3/4
    array([2.1363], dtype=float32)

    References:
      Leng, Tan, Liu, Cubuk, Shi, Cheng, Anguelov (2022), "PolyLoss", eq. 6.
    """
    arguments.check_at_least(-1.0, epsilon=epsilon)
    minus_log_p = cross_entropy.softmax_of_ids(scores, labels, where, temperature=1.0)
    return minus_log_p - epsilon * tf.math.expm1(-minus_log_p)


def _log_exp_t(x: tf.Tensor, t: float) -> tf.Tensor:
    """Returns the logarithm of the tempered exponential `(1 + (1 - t) x)^(1 / (1 - t))` of `x <= 0`."""
    return x if t == 1.0 else tf.math.log1p((1.0 - t) * x) / (1.0 - t)


def _log_t(log_u: tf.Tensor, t: float) -> tf.Tensor:
    """Returns the tempered logarithm `(u^(1 - t) - 1) / (1 - t)` of `u`, given its logarithm."""
    return log_u if t == 1.0 else tf.math.expm1((1.0 - t) * log_u) / (1.0 - t)


@_register("BiTempered")
def bi_tempered(
    scores: tf.Tensor,
    labels: tf.Tensor,
    where: tf.Tensor | None,
    *,
    t1: float = 0.8,
    t2: float = 1.2,
) -> tf.Tensor:
    r"""Bi-tempered logistic loss; softmax with both temperatures 1.

    $$\ell = -\log_{t_1} p_y - \frac{1}{2 - t_1} \Big(1 - \sum_j p_j^{2 - t_1}\Big), \quad
    p_j = \exp_{t_2}(s_j - \lambda), \quad \sum_j p_j = 1$$

    Args:
      t1: in [0, 1]; below 1 the loss is bounded.
      t2: at least 1; above 1 the probabilities have heavy tails.

    >>> bi_tempered([[0.0, 0.0, 0.0, 0.0]], [2], t1=0.0, t2=2.0).numpy()  # 3/4 - (1 - 1/4) / 2
    array([0.375], dtype=float32)

    References:
      Amid, Warmuth, Anil, Koren (2019), "Robust bi-tempered logistic loss based on Bregman divergences".
    """
    arguments.check_at_least(0.0, t1=t1)
    if t1 > 1.0:
        raise ValueError(f"t1={t1}: above 1. Choose one in [0, 1].")
    arguments.check_at_least(1.0, t2=t2)
    taking_part = tf.ones_like(scores) if where is None else tf.cast(where, scores.dtype)
    shown = _shown(scores, where)
    lead = shown - tf.reduce_max(shown, axis=-1, keepdims=True)

    def total(log_p: tf.Tensor, power: float) -> tf.Tensor:
        return tf.reduce_sum(taking_part * tf.exp(power * log_p), axis=-1, keepdims=True)

    def log_partition(x: tf.Tensor) -> tf.Tensor:
        return tf.math.log(tf.maximum(total(_log_exp_t(x, t2), 1.0), 1.0))

    still = tf.stop_gradient(lead)
    log_z = log_partition(still)
    for _ in range(_STEPS if t2 > 1.0 else 0):
        log_z = log_partition(still * tf.exp((1.0 - t2) * log_z))
    level = -_log_t(-log_z, t2)
    # A step of Newton's method, through which the gradient of the level flows.
    log_p = _log_exp_t(lead - level, t2)
    level += (total(log_p, 1.0) - 1.0) / tf.stop_gradient(tf.maximum(total(log_p, t2), 1e-30))
    log_p = _log_exp_t(lead - level, t2)
    return -_log_t(ranks.true_score(log_p, labels), t1) - (1.0 - total(log_p, 2.0 - t1)[..., 0]) / (2.0 - t1)


@_register("SmoothTopKSVM")
def smooth_top_k_svm(
    scores: tf.Tensor,
    labels: tf.Tensor,
    where: tf.Tensor | None,
    *,
    k: int = 5,
    smoothing: float = 1.0,
    margin: float = 1.0,
) -> tf.Tensor:
    r"""Smooth top-k SVM: sets of `k` classes without the true class against those with it.

    $$\ell = \tau \log \frac{\sum_{|c| = k} e^{(\alpha [y \notin c] + \sum_{j \in c} s_j / k) / \tau}}
    {\sum_{|c| = k, y \in c} e^{\sum_{j \in c} s_j / (k \tau)}}$$

    With `margin` 0 it is `tau` times `losses.top_k_gain` with the temperature `k tau`, and with `k = 1` also
    softmax. A list of at most `k` classes has the loss 0.

    Args:
      smoothing: `tau > 0`; as it falls, the loss tends to the top-k hinge loss.
      margin: `alpha`, at least 0.

    >>> smooth_top_k_svm([[0.0, 0.0, 0.0]], [2], k=2, margin=0.0).numpy().round(4)  # log 3/2
    array([0.4055], dtype=float32)

    References:
      Berrada, Zisserman, Kumar (2018), "Smooth loss functions for deep top-k classification", eq. 10.
    """
    arguments.check_integer(1, k=k)
    arguments.check_positive(smoothing=smoothing)
    arguments.check_at_least(0.0, margin=margin)
    scaled = tf.cast(scores / (k * smoothing), tf.float64)
    others = ranks.others(scores, labels, where)
    size = tf.math.count_nonzero(others, axis=-1, dtype=tf.int32)
    without = model.log_z(scaled, tf.minimum(k, size), where=others)
    fewer = model.log_z(scaled, tf.minimum(k - 1, size), where=others)
    excess = tf.cast(without - fewer - ranks.true_score(scaled, labels), tf.float32)
    losses = smoothing * tf.math.softplus(margin / smoothing + excess)
    return base.nan_unless_finite(tf.where(size >= k, losses, 0.0), scores)


@_register("DiffTopK")
def difftopk(
    scores: tf.Tensor,
    labels: tf.Tensor,
    where: tf.Tensor | None,
    *,
    k: int = 5,
    share: float = 0.5,
    sort_temperature: float = 2.0,
) -> tf.Tensor:
    r"""Top-k cross entropy, with the first `k` rows `P` of SoftSort's permutation matrix.

    $$\ell = -\log \min \Big(1, (1 - a) p_y + a \sum_{i \le k} P_{iy}\Big), \quad
    P_{ij} = \operatorname{softmax}_j(-|s_{(i)} - s_j| / \tau)$$

    With `k = 1` and `sort_temperature` 1 it is softmax.

    Args:
      share: `a`, in (0, 1), the probability that the first `k` are judged, and not the first alone.
      sort_temperature: `tau > 0`.

    >>> difftopk([[0.0, 0.0, 0.0, 0.0]], [2], k=2).numpy().round(4)  # log 8/3, of (1/4 + 2/4) / 2
    array([0.9808], dtype=float32)

    References:
      Petersen, Kuehne, Borgelt, Deussen (2022), "Differentiable top-k classification learning", section 3.
    """
    arguments.check_integer(1, k=k)
    arguments.check_fraction(False, share=share)
    arguments.check_positive(sort_temperature=sort_temperature)
    minus_log_p = cross_entropy.softmax_of_ids(scores, labels, where, temperature=1.0)
    first = _first(scores, k, where)
    shown = _shown(scores, where)
    rows = -tf.abs(first[..., None] - shown[..., None, :]) / sort_temperature
    true = -tf.abs(first - ranks.true_score(shown, labels)[..., None]) / sort_temperature
    log_among = tf.reduce_logsumexp(true - tf.reduce_logsumexp(rows, axis=-1), axis=-1)
    logs = [math.log1p(-share) - minus_log_p, math.log(share) + log_among]
    return tf.nn.relu(-tf.reduce_logsumexp(tf.stack(logs, axis=-1), axis=-1))


@_register("SLAtK")
def sl_at_k(
    scores: tf.Tensor,
    labels: tf.Tensor,
    where: tf.Tensor | None,
    *,
    k: int = 5,
    weight_temperature: float = 1.0,
) -> tf.Tensor:
    r"""Softmax loss at K, $-\sigma((s_y - s_{[K]}) / \tau) \log p_y$.

    No gradient flows through the K-th score. With fewer than `K` classes it is softmax.

    Args:
      weight_temperature: `tau > 0`; as it grows, the loss tends to half of softmax.

    >>> sl_at_k([[0.0, 0.0, 0.0, 0.0]], [2], k=2).numpy().round(4)  # log(4) / 2
    array([0.6931], dtype=float32)

    References:
      Yang, Chen, Zhang, Wu, Sun, Feng, Chen, Wang (2025), "Breaking the top-K barrier: advancing top-K
      ranking metrics optimization in recommender systems".
    """
    arguments.check_integer(1, k=k)
    arguments.check_positive(weight_temperature=weight_temperature)
    minus_log_p = cross_entropy.softmax_of_ids(scores, labels, where, temperature=1.0)
    first = tf.stop_gradient(_first(scores, k, where))
    lead = (ranks.true_score(scores, labels) - first[..., -1]) / weight_temperature
    size = ranks.list_size(scores, where)
    return minus_log_p * tf.where(size >= k, tf.sigmoid(lead), 1.0)


@_register("AngularMargin")
def angular_margin(
    scores: tf.Tensor,
    labels: tf.Tensor,
    where: tf.Tensor | None,
    *,
    scale: float = 10.0,
    angle: float = 0.0,
    cosine: float = 0.1,
) -> tf.Tensor:
    r"""Softmax of scores $s \cos \theta_i$ with a margin for the class $y$.

    $$\ell = -\log \frac{e^{t}}{e^{t} + \sum_{i \ne y} e^{s \cos \theta_i}}, \quad
    t = s (\cos(\theta_y + a) - c)$$

    An angle of more than $\pi - a$ has $\cos \theta_y - a \sin a$ in place of the cosine of the sum. It is
    CosFace with `angle` 0, ArcFace with `cosine` 0, and softmax with both.

    Args:
      scale: `s > 0`, the inverse of the temperature of interaction `cosine`.
      angle: `a` in `[0, 1)`, in radians.
      cosine: `c` in `[0, 1)`.

    >>> angular_margin([[0.0, 0.0]], [0], cosine=0.1).numpy().round(4)  # log(1 + e)
    array([1.3133], dtype=float32)

    References:
      Wang, Wang, Zhou, Ji, Gong, Zhou, Li, Liu (2018), "CosFace", eq. 4; Deng, Guo, Xue, Zafeiriou (2019),
      "ArcFace", eq. 3.
    """
    arguments.check_positive(scale=scale)
    arguments.check_fraction(angle=angle, cosine=cosine)
    true = ranks.true_score(scores, labels)
    near = tf.clip_by_value(true / scale, -1.0 + 1e-6, 1.0 - 1e-6)  # the sine has no gradient at 0
    turned = near * math.cos(angle) - tf.sqrt(1.0 - tf.square(near)) * math.sin(angle)
    turned = tf.where(near > -math.cos(angle), turned, near - angle * math.sin(angle))
    step = scale * (turned - near - cosine)
    shifted = scores + tf.one_hot(labels, tf.shape(scores)[-1], dtype=scores.dtype) * step[..., None]
    return cross_entropy.softmax_of_ids(shifted, labels, where, temperature=1.0)

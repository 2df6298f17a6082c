"""The ranking losses as pure functions: `loss(scores, labels, *, where=None, weights=None, ...)`.

The last axis of `scores` holds the classes. `labels` is either one integer class id an instance,
shape `[...]`, which takes an exact form of `O(n)` time and memory, or dense, shape `[..., n]`
(one-hot, multi-label or graded gains), which goes to TF-Ranking. Both give the same value for the
same problem, and every function returns one value an instance, float32 `[...]`.

Common arguments:
  scores: float16, bfloat16, float32 or float64 `[..., n]`; computed in float32.
  labels: integer `[...]` in `0..n-1`, or numeric `[..., n]`, finite and not negative.
  where: optional bool, broadcastable to `[..., n]`: the classes that take part. A masked list has
    the loss of the list without its masked classes; where no relevant class is left, a ranking
    loss is 0.
  weights: optional, broadcastable to `[...]`; multiplies each instance's loss.

Common errors:
  ValueError: shapes or dtypes do not fit, a knob has no meaning, or (in eager mode) a label is outside
    the classes or no gain. A compiled function cannot raise: there such an instance has the loss NaN.
"""

import tensorflow as tf

from rank4class.losses import gumbel, listwise, multiclass, ranks

NORMALIZERS = ("list", "pairs", "none")


def softmax(scores, labels, *, where=None, weights=None, temperature=1.0):
    r"""Softmax cross entropy.

    $$\ell = \log \sum_j e^{m_j / \tau}, \quad m_j = s_j - s_y$$

    Args:
      scores, labels, where, weights: see the module.
      temperature: `tau > 0`.

    Returns:
      float32 `[...]`, at least 0.

    >>> softmax([[0., 0., 0., 0.]], [2]).numpy().round(4)  # log 4
    array([1.3863], dtype=float32)

    References:
      Rank4Class, section 4.1.
    """
    return _evaluate(
        multiclass.softmax, listwise.softmax, scores, labels, where, weights, temperature=temperature
    )


def pairwise_logistic(scores, labels, *, where=None, weights=None, temperature=1.0, normalize="list"):
    r"""Pairwise logistic loss: every class below the true one, by a margin.

    $$\ell = \frac{1}{z} \sum_{j \ne y} \log(1 + e^{m_j / \tau}), \quad m_j = s_j - s_y$$

    Args:
      scores, labels, where, weights: see the module.
      temperature: `tau = 1 / sigma > 0`.
      normalize: `z`. "list" is `n`, what TF-Ranking's default reduction amounts to: with many
        classes the gradient shrinks, so it wants a larger learning rate. "pairs" is the number of
        pairs (`n - 1` for one relevant class), "none" is 1, the paper's formula.

    Returns:
      float32 `[...]`, at least 0.

    Raises:
      ValueError: unknown `normalize`.

    >>> pairwise_logistic([[0., 0., 0., 0.]], [2], normalize="pairs").numpy().round(4)  # log 2
    array([0.6931], dtype=float32)

    References:
      Burges et al. (2005); Rank4Class, eq. 3.
    """
    if normalize not in NORMALIZERS:
        raise ValueError(f"normalize={normalize!r} is not one of {', '.join(NORMALIZERS)}")
    return _evaluate(
        multiclass.pairwise_logistic,
        listwise.pairwise_logistic,
        scores,
        labels,
        where,
        weights,
        temperature=temperature,
        normalize=normalize,
    )


def approx_ndcg(scores, labels, *, where=None, weights=None, temperature=0.1):
    r"""Negative NDCG on sigmoid ranks.

    $$\ell = -\frac{1}{\log_2(1 + r)}, \quad r = 1 + \sum_{j \ne y} \frac{1}{1 + e^{-m_j / \tau}}$$

    Args:
      scores, labels, where, weights: see the module. Dense labels have gains `2^t - 1`.
      temperature: `tau > 0`; the loss tends to minus NDCG as it falls.

    Returns:
      float32 `[...]`, in `[-1, 0)`.

    >>> approx_ndcg([[0., 0., 0.]], [2]).numpy().round(4)  # rank 2: -1 / log2(3)
    array([-0.6309], dtype=float32)

    References:
      Qin, Liu, Li (2010); Rank4Class, eq. 4.
    """
    return _evaluate(
        multiclass.approx_ndcg,
        listwise.approx_ndcg,
        scores,
        labels,
        where,
        weights,
        temperature=temperature,
    )


def gumbel_approx_ndcg(
    scores,
    labels,
    *,
    seed,
    where=None,
    weights=None,
    temperature=0.1,
    samples=8,
    gumbel_temperature=1.0,
):
    r"""ApproxNDCG on scores with Gumbel noise, averaged over samples.

    $$\ell = \frac{1}{S} \sum_{i=1}^{S} \text{ApproxNDCG}((s + g_i) / \tau_g)$$

    Args:
      scores, labels, where, weights: see the module.
      seed: int32 `[2]`; the noise is a pure function of it.
      temperature: `tau > 0` of ApproxNDCG.
      samples: `S`; time and memory grow with it.
      gumbel_temperature: `tau_g > 0`.

    Returns:
      float32 `[...]`, in `[-1, 0)`.

    >>> gumbel_approx_ndcg([[9., 0., 0.]], [0], seed=[0, 0]).numpy().round(2)
    array([-1.], dtype=float32)

    References:
      Bruch, Han, Bendersky, Najork (2020); Rank4Class, section 5.1.
    """
    noise = {"samples": samples, "seed": seed, "temperature": gumbel_temperature}
    return _evaluate(
        gumbel.average(multiclass.approx_ndcg, **noise),
        gumbel.average(listwise.approx_ndcg, **noise),
        scores,
        labels,
        where,
        weights,
        temperature=temperature,
    )


def mse(scores, labels, *, where=None, weights=None):
    r"""Mean squared error against the one-hot label.

    $$\ell = \frac{1}{n} \sum_j (s_j - [j = y])^2$$

    Args:
      scores, labels, where, weights: see the module.

    Returns:
      float32 `[...]`, at least 0.

    >>> mse([[0., 0., 0., 2.]], [3]).numpy()
    array([0.25], dtype=float32)

    References:
      Hui, Belkin (2021), "Evaluation of neural architectures trained with square loss vs
      cross-entropy in classification tasks"; Rank4Class, appendix D.
    """
    return _evaluate(multiclass.mse, listwise.mse, scores, labels, where, weights)


def rescaled_mse(scores, labels, *, where=None, weights=None, kappa=15.0, target=30.0):
    r"""Mean squared error with a larger target and weight for the true class.

    $$\ell = \frac{1}{n} \Big(\kappa (s_y - M)^2 + \sum_{j \ne y} s_j^2\Big)$$

    Made for many classes, where the plain form drowns the one true class in zeros.

    Args:
      scores, labels, where, weights: see the module. A graded label `t` has target `t M` and
        weight `1 + t (kappa - 1)`.
      kappa: weight of the true class; 15 is the published value for ImageNet.
      target: `M`, its target; 30 is the published value for ImageNet.

    Returns:
      float32 `[...]`, at least 0.

    >>> rescaled_mse([[0., 2.]], [1], kappa=2.0, target=3.0).numpy()
    array([1.], dtype=float32)

    References:
      Hui, Belkin (2021), section 3; Rank4Class, appendix D.
    """
    return _evaluate(
        multiclass.rescaled_mse,
        listwise.rescaled_mse,
        scores,
        labels,
        where,
        weights,
        kappa=kappa,
        target=target,
    )


def _evaluate(integer_form, dense_form, scores, labels, where, weights, **knobs):
    """Checks the input, picks the form that fits the labels, and weighs its losses."""
    for name in ("temperature", "kappa"):
        if name in knobs and isinstance(knobs[name], (int, float)) and not knobs[name] > 0:
            raise ValueError(f"{name} {knobs[name]} is not positive")
    scores, labels = tf.convert_to_tensor(scores), tf.convert_to_tensor(labels)
    if not scores.dtype.is_floating or scores.shape.rank is None or scores.shape.rank < 1:
        raise ValueError(f"scores must be floats of shape [..., n], got {scores.dtype.name} {scores.shape}")
    scores = tf.cast(scores, tf.float32)
    if where is not None:
        where = tf.broadcast_to(tf.cast(where, tf.bool), tf.shape(scores))
        # A masked score may be anything; infinity or NaN would reach the gradient through 0 * NaN.
        scores = tf.where(where, scores, 0.0)

    if labels.shape.is_compatible_with(scores.shape[:-1]):
        losses = _on_integers(integer_form, scores, labels, where, knobs)
    elif labels.shape.is_compatible_with(scores.shape):
        losses = _on_dense(dense_form, scores, labels, where, knobs)
    else:
        raise ValueError(
            f"labels of shape {labels.shape} do not fit scores of shape {scores.shape}: give one integer "
            f"an instance, {scores.shape[:-1]}, or one value a class, {scores.shape}"
        )
    if weights is None:
        return losses
    return losses * tf.broadcast_to(tf.cast(weights, tf.float32), tf.shape(losses))


def _on_integers(form, scores, labels, where, knobs):
    if not labels.dtype.is_integer:
        raise ValueError(
            f"labels of shape {labels.shape} are class ids and must be integers, got {labels.dtype.name}"
        )
    labels = ranks.widen(labels)
    n = tf.cast(tf.shape(scores)[-1], labels.dtype)
    known = (labels >= 0) & (labels < n)
    if tf.executing_eagerly() and not bool(tf.reduce_all(known)):
        culprit = tf.where(~known)[0].numpy().tolist()
        label = int(labels[tuple(culprit)])
        raise ValueError(f"label {label} of instance {culprit} is outside the classes 0..{int(n) - 1}")
    labels = tf.where(known, labels, 0)
    return tf.where(known, form(scores, labels, where, **knobs), float("nan"))


def _on_dense(form, scores, labels, where, knobs):
    labels = tf.cast(labels, tf.float32)
    if not labels.shape.is_fully_defined():
        message = "dense labels need the shape of the scores; class ids need a static shape of [B] or [B, 1]"
        with tf.control_dependencies(
            [tf.debugging.assert_equal(tf.shape(labels), tf.shape(scores), message)]
        ):
            labels = tf.identity(labels)
    if where is None:
        where = tf.ones_like(scores, tf.bool)
    sound = ~where | (tf.math.is_finite(labels) & (labels >= 0.0))
    if tf.executing_eagerly() and not bool(tf.reduce_all(sound)):
        culprit = tf.where(~sound)[0].numpy().tolist()
        raise ValueError(
            f"label {float(labels[tuple(culprit)])} at {culprit} is not a finite gain of at least 0; "
            "leave a class out with `where`"
        )
    losses = form(scores, tf.where(where & sound, labels, 0.0), where, **knobs)
    return tf.where(tf.reduce_all(sound, axis=-1), losses, float("nan"))

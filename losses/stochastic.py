"""Losses averaged over Gumbel noise on the scores: a wrapper of any loss, and ApproxNDCG with it."""

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import TensorLike

from rank4class import arguments
from rank4class.losses import approx, base
from rank4class.losses.ops import gumbel as gumbel_noise

__all__ = ["Gumbel", "GumbelApproxNDCG", "gumbel", "gumbel_approx_ndcg"]


def gumbel(loss: Callable) -> Callable:
    r"""Wraps a loss that draws no noise itself: returns its mean over noisy copies of the scores.

    $$\ell = \frac{1}{S} \sum_{i=1}^{S} \ell_0((s + g_i) / \tau_g), \quad g_i \sim \text{Gumbel}(0, 1)$$

    Args:
      loss: a pure function of this package with one score per class.

    Returns:
      The same function with three more keyword arguments: `seed`, `samples=8`, `S`, and
      `gumbel_temperature=1.0`, `tau_g > 0`.

    Raises:
      ValueError: the loss draws noise itself, or is of a batch or of several scores per class.

    >>> from rank4class import losses
    >>> noisy_hinge = gumbel(losses.pairwise_hinge)
    >>> noisy_hinge([[99., 0., 0.]], [0], seed=[0, 0], samples=4).numpy()
    array([0.], dtype=float32)

    References:
      Bruch, Han, Bendersky, Najork (2020), "A stochastic treatment of learning to rank scoring
      functions".
    """
    check_draws_no_noise(loss)

    def noisy_loss(
        scores: TensorLike,
        labels: TensorLike,
        *,
        seed: TensorLike,
        where: TensorLike | None = None,
        weights: TensorLike | None = None,
        samples: int = 8,
        gumbel_temperature: float = 1.0,
        **options: Any,
    ) -> tf.Tensor:
        scores, labels, where, _ = base.checked(scores, labels, where)

        def form(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
            return loss(scores, labels, where=where, **options)

        mean = averaged(form, seed, samples, gumbel_temperature)
        return base.weighted(mean(scores, labels, where), weights)

    return noisy_loss


def check_draws_no_noise(loss: Callable) -> None:
    """Raises ValueError if a loss draws noise itself, or is of a batch or of several scores per class."""
    name = getattr(loss, "__name__", repr(loss))
    if "seed" in inspect.signature(loss).parameters:
        raise ValueError(f"gumbel: {name} draws noise already. Wrap another loss.")
    if name in base.BATCH_LOSSES or (name in base.LOSSES and base.LOSSES[name].heads):
        raise ValueError(f"gumbel: {name} takes no single score per class and instance. Wrap another loss.")


def averaged(form: Callable, seed: TensorLike, samples: int, gumbel_temperature: float) -> Callable:
    """Returns the mean of `form(scores, labels, where)` over noisy scores; checks the options."""
    check_seed(seed)
    arguments.check_integer(samples=samples)
    arguments.check_positive(gumbel_temperature=gumbel_temperature)

    def repeat(tensor: tf.Tensor | None) -> tf.Tensor | None:
        if tensor is None:
            return None
        tiled = tf.broadcast_to(tensor, tf.concat([[samples], tf.shape(tensor)], axis=0))
        return tf.ensure_shape(tiled, [samples, *tensor.shape])

    def mean(scores: tf.Tensor, labels: tf.Tensor, where: tf.Tensor | None) -> tf.Tensor:
        noisy = gumbel_noise.perturb(scores, samples=samples, seed=seed, temperature=gumbel_temperature)
        return tf.reduce_mean(form(noisy, repeat(labels), repeat(where)), axis=0)

    return mean


def check_seed(seed: TensorLike) -> None:
    """Raises ValueError unless a seed has the shape `[2]`."""
    shape = tf.convert_to_tensor(seed).shape
    if shape != [2]:
        raise ValueError(f"seed={shape}: not two integers. Pass int32 [2].")


@base.serializable
class Gumbel(base.RankingLoss):
    """The mean of another Keras loss over noisy copies of the scores: see `gumbel`.

    Args:
      loss: a loss of this package that draws no noise itself and takes one score per class. Its reduction
        is ignored.
      samples, gumbel_temperature, seed: see `gumbel` and `RankingLoss`.

    Raises:
      ValueError: as `gumbel`.
      TypeError: the loss is not from this package.

    >>> from rank4class import losses
    >>> print(Gumbel(losses.PairwiseHinge(), samples=4)([0], [[99., 0., 0.]]).numpy())
    0.0
    """

    def __init__(
        self,
        loss: base.RankingLoss,
        *,
        samples: int = 8,
        gumbel_temperature: float = 1.0,
        seed: int = 0,
        reduction: str = base.MEAN,
        name: str | None = None,
    ) -> None:
        if not isinstance(loss, base.RankingLoss):
            raise TypeError(f"loss={loss!r}: not a loss of this package. Pass one such as Softmax().")
        name = name or f"gumbel_{loss.name}"
        tf.keras.losses.Loss.__init__(self, reduction=reduction, name=name, **base.FLOAT32)
        check_draws_no_noise(loss.function)
        self.loss = loss
        self.noise = {"samples": samples, "gumbel_temperature": gumbel_temperature, "seed": seed}
        self.options = {**loss.options, **self.noise}

    @property
    def function(self) -> Callable:
        return gumbel(self.loss.function)

    def get_config(self) -> dict[str, Any]:
        return {**tf.keras.losses.Loss.get_config(self), "loss": self.loss, **self.noise}


def gumbel_approx_ndcg(
    scores: TensorLike,
    labels: TensorLike,
    *,
    seed: TensorLike,
    where: TensorLike | None = None,
    weights: TensorLike | None = None,
    temperature: float = 0.1,
    samples: int = 8,
    gumbel_temperature: float = 1.0,
) -> tf.Tensor:
    """ApproxNDCG on scores with Gumbel noise, averaged over samples: `gumbel(approx_ndcg)`.

    >>> gumbel_approx_ndcg([[9., 0., 0.]], [0], seed=[0, 0]).numpy().round(2)
    array([-1.], dtype=float32)

    References:
      Bruch, Han, Bendersky, Najork (2020); Rank4Class, section 5.1.
    """
    noise = {"seed": seed, "samples": samples, "gumbel_temperature": gumbel_temperature}
    options = {"where": where, "weights": weights, "temperature": temperature}
    return gumbel(approx.approx_ndcg)(scores, labels, **options, **noise)


GumbelApproxNDCG = base.keras_loss("GumbelApproxNDCG", gumbel_approx_ndcg)

"""Frequencies of the classes in training, which a loss or a prediction can correct for."""

import os
from collections.abc import Sequence

import numpy as np

from rank4class import arguments, data, losses
from rank4class.pipelines import config


def log_frequencies(counts: np.ndarray) -> np.ndarray:
    """Returns the logarithms of the frequencies of classes; a class without an example counts as having one.

    >>> np.exp(log_frequencies(np.array([7, 2, 0]))).round(6)
    array([0.7, 0.2, 0.1])
    """
    sizes = np.maximum(counts, 1)
    return np.log(sizes / sizes.sum())


def check_loss(loss: config.Loss) -> None:
    """Raises ValueError if `prior_temperature` is negative, or without effect on the loss."""
    arguments.check_at_least(0, prior_temperature=loss.prior_temperature)
    if loss.prior_temperature and loss.name in losses.BATCH_LOSSES:
        raise ValueError(
            f"prior_temperature={loss.prior_temperature}: loss {loss.name!r} ranks the examples of each "
            "class, whose order it does not change. Set it to 0."
        )


def log_prior(loss: config.Loss, train: data.Split, counts: np.ndarray) -> np.ndarray | None:
    """Returns `prior_temperature` times the `log_frequencies`, float32 `[n]`; None for 0.

    Raises:
      ValueError: an example of the training split may have several classes.
    """
    tau = loss.prior_temperature
    if not tau:
        return None
    if train.multi_label:
        raise ValueError(f"loss.prior_temperature={tau}: examples may have several classes. Set it to 0.")
    return np.float32(tau * log_frequencies(counts))


def read(prior: str | os.PathLike, class_names: Sequence[str]) -> tuple[float, ...]:
    """Returns the frequencies "uniform", or those of a file; see `data.class_frequencies`."""
    prior = os.fspath(prior)
    if prior == "uniform":
        return (1.0,) * len(class_names)
    return tuple(data.class_frequencies(prior, class_names).tolist())

"""Losses by name. Importing this module registers all of them."""

from typing import Any

from rank4class.losses import stochastic
from rank4class.losses.base import BATCH_LOSSES, RankingLoss
from rank4class.registry import LOSSES


def names() -> tuple[str, ...]:
    """Returns the names of all losses of one instance. `gumbel_NAME` averages one over Gumbel noise.

    >>> "approx_ndcg" in names()
    True
    """
    return tuple(name for name in LOSSES if name not in BATCH_LOSSES)


def get(name: str, **options: Any) -> RankingLoss:
    """Returns a Keras loss.

    Args:
      name: one of `names()`; `gumbel_` and the name of one that draws no noise itself; or one of
        `BATCH_LOSSES`.
      **options: those of the loss, such as `temperature`, and Keras's `reduction` and `name`.

    Raises:
      ValueError: an unknown name.
      TypeError: an option that the loss does not have.

    >>> get("gumbel_pairwise_hinge", samples=4).name
    'gumbel_pairwise_hinge'
    """
    base = LOSSES.noiseless(name)
    if base is None:
        return LOSSES[name](**options)
    names = ("samples", "gumbel_temperature", "seed", "reduction", "name")
    noise = {key: options.pop(key) for key in names if key in options}
    return stochastic.Gumbel(LOSSES[base](**options), **noise)


def option_names(name: str) -> tuple[str, ...]:
    """Returns the names of a loss's options; raises ValueError for an unknown name.

    >>> option_names("rescaled_mse")
    ('kappa', 'target')
    """
    base = LOSSES.noiseless(name)
    if base is not None:
        stochastic.check_draws_no_noise(LOSSES[base].function)
    return tuple(LOSSES.options(name))

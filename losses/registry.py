"""Losses by name. Importing this module registers all of them."""

from typing import Any

from rank4class.losses import stochastic
from rank4class.losses.base import BATCH_LOSSES, LOSSES, RankingLoss
from rank4class.registry import Registry

_NOISE_OPTIONS = ("samples", "gumbel_temperature", "seed")


def names() -> tuple[str, ...]:
    """Returns the names of all losses of one instance. `gumbel_NAME` averages one over Gumbel noise.

    >>> "approx_ndcg" in names()
    True
    """
    return tuple(LOSSES)


def get(name: str, **options: Any) -> RankingLoss:
    """Returns a Keras loss.

    Args:
      name: one of `names()`; `gumbel_` and the name of one that draws no noise itself; or one of
        `BATCH_LOSSES`.
      **options: the loss's own, such as `temperature`, and Keras's `reduction` and `name`.

    Raises:
      ValueError: an unknown name, or an option that the loss does not have.

    >>> get("approx_ndcg", temperature=0.5).options["temperature"]
    0.5
    >>> get("gumbel_pairwise_hinge", samples=4).name
    'gumbel_pairwise_hinge'
    """
    known = option_names(name)
    for option in options:
        if option not in (*known, "reduction", "name"):
            raise ValueError(
                f"{option}: loss {name!r} has no such option. It has: {', '.join(known) or 'none'}."
            )
    base = _base_of_gumbel(name)
    if base is None:
        return _registry_of(name)[name](**options)
    of_noise = {key: options.pop(key) for key in (*_NOISE_OPTIONS, "reduction", "name") if key in options}
    return stochastic.Gumbel(LOSSES[base](**options), **of_noise)


def option_names(name: str) -> tuple[str, ...]:
    """Returns the names of a loss's options.

    Raises:
      ValueError: an unknown name, or `gumbel_` before a loss that draws noise itself.

    >>> option_names("rescaled_mse")
    ('kappa', 'target')
    """
    base = _base_of_gumbel(name)
    if base is None:
        return _registry_of(name).option_names(name)
    stochastic.check_draws_no_noise(LOSSES[base].function)
    return (*LOSSES.option_names(base), *_NOISE_OPTIONS)


def _base_of_gumbel(name: str) -> str | None:
    """Returns `NAME` of `gumbel_NAME`, or None for the name of a registered loss and for an unknown name."""
    base = name.removeprefix("gumbel_")
    return base if name not in LOSSES and base != name and base in LOSSES else None


def _registry_of(name: str) -> Registry:
    return BATCH_LOSSES if name in BATCH_LOSSES else LOSSES

"""Losses by name. Importing this module registers all of them."""

from rank4class.losses import (
    stochastic,
)
from rank4class.losses.base import BATCH_LOSSES, LOSSES


def names() -> tuple[str, ...]:
    """Returns the names of all losses of one instance. `gumbel_NAME` averages one over Gumbel noise.

    >>> "approx_ndcg" in names()
    True
    """
    return tuple(LOSSES)


def get(name, **options):
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
    return _build(name, options)


def option_names(name) -> tuple[str, ...]:
    """Returns the names of a loss's options.

    Raises:
      ValueError: an unknown name; the message lists the known ones.

    >>> option_names("rescaled_mse")
    ('kappa', 'target')
    """
    return tuple(_build(name, {}).options)


def _build(name, options):
    base = name.removeprefix("gumbel_")
    if name in BATCH_LOSSES:
        return BATCH_LOSSES[name](**options)
    if name in LOSSES or base == name or base not in LOSSES:
        return LOSSES[name](**options)
    of_noise = {key: value for key, value in options.items() if key in _NOISE_OPTIONS}
    of_base = {key: value for key, value in options.items() if key not in _NOISE_OPTIONS}
    return stochastic.Gumbel(LOSSES[base](**of_base), **of_noise)


_NOISE_OPTIONS = ("samples", "gumbel_temperature", "seed", "reduction", "name")

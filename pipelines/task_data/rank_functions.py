"""The rank function of a loss, by name: a formula, or a sorter with its weights."""

import re
from collections.abc import Callable
from typing import Any

from rank4class import arguments, losses
from rank4class.losses.ops import ranks
from rank4class.models import sorters
from rank4class.pipelines.config.parts import Loss

FORMULAS = {
    "sigmoid": ranks.sigmoid_ranks,
    "neural_sort": ranks.neural_sort_ranks,
    "soft_sort": ranks.soft_sort_ranks,
}


def names() -> tuple[str, ...]:
    """Returns the names of all rank functions, those of registered sorters among them.

    >>> names()[:3]
    ('sigmoid', 'neural_sort', 'soft_sort')
    """
    return (*FORMULAS, *sorters.SORTERS)


def get_rank_fn(name: str, n: int, trained: str | None = None) -> Callable[..., Any]:
    """Returns the rank function of one of `names` for lists of length `n`.

    `trained` is a file of a sorter's weights; None is those that are shipped.

    Raises:
      ValueError: an unknown name, or there are no weights for such lists.

    >>> get_rank_fn("exact", 4)([[7.0, 1.0, 7.0, 9.0]]).numpy()
    array([[2.5, 4. , 2.5, 1. ]], dtype=float32)
    """
    arguments.check_choice(names(), rank_fn=name)
    if name in FORMULAS:
        return FORMULAS[name]
    try:
        return sorters.get(name, n=n, trained=trained or sorters.SHIPPED).rank_fn
    except ValueError as error:
        raise ValueError(re.sub("^trained=", "loss.sorter=", str(error))) from error


def check(loss: Loss) -> None:
    """Raises ValueError, with the field, if a loss cannot have its rank function."""
    rank_fn = loss.rank_fn
    if rank_fn is None:
        if loss.name in losses.BATCH_LOSSES:
            raise ValueError(
                f"loss.rank_fn=None: loss {loss.name!r} requires it. Choose one of: {', '.join(names())}."
            )
    else:
        arguments.check_choice(names(), section="loss.", rank_fn=rank_fn)
    if rank_fn == "exact":
        raise ValueError("loss.rank_fn='exact': it has no gradient. Choose another, such as 'equivariant'.")
    learned = [name for name in sorters.SORTERS if "trained" in sorters.SORTERS.options(name)]
    for field in ("fine_tune", "sorter"):
        if getattr(loss, field) and rank_fn not in learned:
            raise ValueError(
                f"loss.{field}={getattr(loss, field)!r}: rank function {rank_fn!r} has no weights. Choose: "
                f"{', '.join(learned)}."
            )

"""The rank function of a loss, by name: a formula, or a sorter with its weights."""

from rank4class import losses
from rank4class.losses.ops import ranks
from rank4class.models import sorters

FORMULAS = {
    "sigmoid": ranks.sigmoid_ranks,
    "neural_sort": ranks.neural_sort_ranks,
    "soft_sort": ranks.soft_sort_ranks,
}
NAMES = (*FORMULAS, *sorters.SORTERS)


def get(name, n, trained=None):
    """Returns a rank function.

    Args:
      name: one of `NAMES`.
      n: length of the lists.
      trained: file of a sorter's weights; None is those that are shipped.

    Raises:
      ValueError: an unknown name, or there are no weights for such lists.

    >>> get("exact", 4)([[7.0, 1.0, 7.0, 9.0]]).numpy()
    array([[2.5, 4. , 2.5, 1. ]], dtype=float32)
    """
    if name not in NAMES:
        raise ValueError(f"rank function {name!r} is unknown; there are: {', '.join(NAMES)}")
    if name in FORMULAS:
        return FORMULAS[name]
    return sorters.get(name, n=n, trained=trained or sorters.SHIPPED).rank_fn


def check(section):
    """Raises ValueError, naming the field, where a `config.Loss` makes no sense of its rank function."""
    knobs = losses.option_names(section.name)
    if section.rank_fn is None:
        if section.name in losses.BATCH_LOSSES:
            raise ValueError(f"loss {section.name!r} needs loss.rank_fn: {', '.join(NAMES)}")
        for field in ("fine_tune", "sorter", "l1_epochs"):
            if getattr(section, field):
                raise ValueError(f"loss.{field} needs loss.rank_fn, the name of a sorter")
        return
    if "rank_fn" not in knobs:
        raise ValueError(f"loss {section.name!r} has no knob 'rank_fn'; it has: {', '.join(knobs) or 'none'}")
    if section.rank_fn not in NAMES:
        raise ValueError(f"loss.rank_fn {section.rank_fn!r} is unknown; there are: {', '.join(NAMES)}")
    if section.rank_fn == "exact":
        raise ValueError(
            "loss.rank_fn 'exact' has no gradient to learn by: take another, such as 'equivariant'"
        )
    learned = section.rank_fn in sorters.LEARNED
    for field in ("fine_tune", "sorter"):
        if getattr(section, field) and not learned:
            raise ValueError(f"loss.{field} is for a sorter that learns: {', '.join(sorters.LEARNED)}")
    if section.l1_epochs is not None and not section.l1:
        raise ValueError("loss.l1_epochs needs loss.l1, the weight of the mean absolute error")

"""The style of all pictures: colors, dashes and markers."""

import itertools
from collections.abc import Iterable

from matplotlib.axes import Axes

# Okabe and Ito (2008), "Color universal design": distinguishable with any color vision.
BLACK = "#000000"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
COLORS = [BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK, YELLOW]
GRAY = "#6b6b6b"
RIGHT = BLUE
WRONG = VERMILION
NOT_FINITE = GRAY

_DASHES = ("-", "--", "-.", ":")  # tell losses apart without colors
_LOSSES = {
    "softmax": (BLACK, "-"),
    "pairwise_logistic": (SKY, "--"),
    "approx_ndcg": (VERMILION, "-."),
    "gumbel_approx_ndcg": (PURPLE, ":"),
    "mse": (GREEN, (0, (5, 1, 1, 1, 1, 1))),
    "rankmax": (BLUE, "-"),
    "n_choose_k": (ORANGE, "--"),
    "sigmoid_cross_entropy": (BLUE, "-."),
    "rescaled_mse": (GREEN, "-"),
    "sparsemax": (PURPLE, "--"),
    "pairwise_hinge": (SKY, "-."),
    "list_mle": (ORANGE, ":"),
}
_MARKERS = {"dot": "o", "lc_mlp": "s", "concat_mlp": "^", "bilinear": "D", "cosine": "v"}


def loss_styles(names: Iterable[str]) -> dict[str, tuple]:
    """Returns the color and the dashes of losses; those of frequent losses are the same in all pictures.

    >>> loss_styles(["softmax", "list_mle"])
    {'softmax': ('#000000', '-'), 'list_mle': ('#E69F00', ':')}
    """
    pairs = itertools.cycle(itertools.product(COLORS, _DASHES))
    free = ((color, dashes) for color, dashes in pairs if (color, dashes) not in _LOSSES.values())
    return {name: _LOSSES.get(name) or next(free) for name in names}


def marker(interaction: str) -> str:
    """Returns the marker of an interaction."""
    return _MARKERS.get(interaction, "P")


def finish(axis: Axes, grid: str = "both") -> None:
    """Draws a light grid behind the contents of an axis, and no frame above and to the right."""
    axis.grid(axis=grid, alpha=0.3)  # type: ignore[arg-type]
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)

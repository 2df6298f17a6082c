"""The style of all pictures: colors, dashes, markers and names of losses, interactions and metrics."""

import zlib
from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rank4class import losses

# Okabe and Ito (2008), "Color universal design": distinguishable with any color vision.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
COLORS = [BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK, YELLOW]
GRAY = "#6b6b6b"
RIGHT, WRONG, NOT_FINITE = BLUE, VERMILION, GRAY

# The dashes tell losses apart without colors.
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
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
_OTHER_MARKERS = "P<>Xhp"
_NAMES = {
    "mse": "Squared error",
    "n_choose_k": "n-choose-k",
    "approx_ndcg": "ApproxNDCG",
    "gumbel_approx_ndcg": "Gumbel ApproxNDCG",
    "approx_mrr": "ApproxMRR",
    "lc_mlp": "LC+MLP",
    "concat_mlp": "Concat+MLP",
    "list_mle": "ListMLE",
    "warp": "WARP",
    "cnn": "CNN",
    "lstm": "LSTM",
}
_ACRONYMS = {"ndcg": "NDCG", "mrr": "MRR", "map": "MAP", "nll": "NLL", "top1": "Top-1", "top5": "Top-5"}
FEW_EXAMPLES = 1_000  # with fewer, single examples are visible in percentages


def loss_styles(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Returns the color and the dashes of losses.

    Those of a loss follow from its name alone, unless another of the losses has taken both.

    >>> loss_styles(["softmax", "approx_ndcg"])
    {'softmax': ('#000000', '-'), 'approx_ndcg': ('#D55E00', '-.')}
    """
    styles: dict[str, tuple] = {}
    known_first = sorted(names := list(names), key=lambda name: name not in _LOSSES)
    for name in known_first:
        place = zlib.crc32(name.encode())
        style = _LOSSES.get(name, _style(place))
        while style in styles.values() and len(styles) < len(COLORS) * len(_DASHES):
            place += 1
            style = _style(place)
        styles[name] = style
    return {name: styles[name] for name in names}


def _style(place):
    color, dashes = place % len(COLORS), place // len(COLORS) % len(_DASHES)
    return COLORS[color], _DASHES[dashes]


def marker(interaction: str) -> str:
    """Returns the marker of an interaction, which follows from its name alone."""
    return _MARKERS.get(interaction, _OTHER_MARKERS[zlib.crc32(interaction.encode()) % len(_OTHER_MARKERS)])


def part_label(name: str) -> str:
    """Returns the name of a loss or an interaction for readers.

    >>> [part_label(name) for name in ("pairwise_logistic", "lc_mlp", "approx_ndcg@cnn")]
    ['Pairwise logistic', 'LC+MLP', 'ApproxNDCG (cnn)']
    """
    name, _, rank_fn = name.partition("@")
    label = _NAMES.get(name) or name[:1].upper() + name[1:].replace("_", " ")
    return f"{label} ({rank_fn})" if rank_fn else label


def metric_label(name: str, percent: bool | None = None) -> str:
    """Returns the name of a metric for readers, with its unit.

    Args:
      name: of the metric.
      percent: whether it is in percent; None looks up a metric of the library.

    >>> [metric_label(name) for name in ("top1_error", "ndcg@5", "mean_rank", "grade4_precision@5")]
    ['Top-1 error (%)', 'NDCG@5 (%)', 'Mean rank', 'Grade4 precision@5 (%)']
    """
    base, at, cutoff = name.partition("@")
    words = [_ACRONYMS.get(word, word) for word in base.split("_")]
    label = " ".join(words)
    percent = losses.get_metric(name).percent if percent is None else percent
    unit = " (%)" if percent else ""
    return f"{label[0].upper()}{label[1:]}{at}{cutoff}{unit}"


def example_note(examples: int) -> str:
    """Returns the weight of one example in percentages; an empty text for many examples.

    >>> example_note(360), example_note(5_000)
    ('One example is 0.28 points.', '')
    """
    return f"One example is {100.0 / examples:.2f} points." if examples < FEW_EXAMPLES else ""


def finish(axis: Axes, grid: str = "both") -> None:
    """Draws a light grid behind the contents of an axis, and no frame above and to the right."""
    axis.grid(axis=grid, alpha=0.3)  # type: ignore[arg-type]
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def few_ticks(axis: Axes, count: int = 5) -> None:
    """Limits the ticks of the vertical axis of an axis."""
    axis.yaxis.set_major_locator(MaxNLocator(count))

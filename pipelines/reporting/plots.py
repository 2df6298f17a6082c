"""Pictures of an evaluation as pixels: confusion matrix, ranks of the true class, numbers of classes.

The figures do not belong to pyplot, which would keep them in memory.
"""

import io
import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.ndimage
import sklearn.metrics
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rank4class.pipelines.evaluation.per_class import frequent_errors
from rank4class.pipelines.reporting.style import GRAY, NOT_FINITE, RIGHT, WRONG, few_ticks, finish
from rank4class.pipelines.storage import files

TEXT = 11  # points; TensorBoard scales pictures down to cards of about 330 pixels
CARD = (4.6, 3.4)  # inches
MAX_COUNTED = 12  # largest number of classes whose cells show counts
MAX_NAMED = 40  # largest number of classes that are all named
MAX_DRAWN = 1_000  # largest number of classes that are all drawn
LISTED_ERRORS = 20  # frequent errors that are listed if not all classes are named
SINGLE_RANKS = 5  # ranks that always have a bar of their own
LOG_BINS = 6  # bars of the ranks beyond
SHOWN_EXAMPLES = 4  # examples with a panel of their own
NAME_WIDTH = 28  # characters
DPI = 100
NAMES_SIZE, TITLE_HEIGHT, RIGHT_WIDTH = 260, 60, 620  # pixels around the matrix
KEY_HEIGHT = 160  # pixels
MARGIN = 10  # pixels
VISIBLE = 3  # pixels


def confusion_matrix(labels: np.ndarray, predicted: np.ndarray, class_names: Sequence[str]) -> np.ndarray:
    """Draws the confusion matrix.

    A row is a true class, a column a predicted one. The color of a cell is its fraction of the row: blue if
    right, orange if wrong. Up to `MAX_COUNTED` classes the cells show counts, up to `MAX_NAMED` the classes
    are named. Otherwise the axes show ids, and the most frequent errors are listed. Of more than `MAX_DRAWN`
    classes, the `MAX_NAMED` with the most errors are drawn, and the last column holds all other predictions.
    The row of a class without examples is empty.

    Args:
      labels: int `[N]`, ids of the true classes.
      predicted: int `[N]`, ids of the classes of the highest score.
      class_names: `n` names, by id.

    Returns:
      uint8 `[height, width, 3]`.

    Raises:
      ValueError: an id is outside `0..n-1`, or the shapes differ.
    """
    labels, predicted = np.asarray(labels), np.asarray(predicted)
    n = len(class_names)
    _check_ids(labels, predicted, n)
    draws_all = n <= MAX_DRAWN
    shown = np.arange(n) if draws_all else most_confused(labels, predicted, n, MAX_NAMED)
    counts = confusion_counts(labels, predicted, shown)
    fractions = row_fractions(counts)
    if draws_all:
        counts, fractions = counts[:, :-1], fractions[:, :-1]
    names = [_shorten(class_names[i]) for i in shown.tolist()]

    size = _text_size(n)
    figure, axis, key = _matrix_axes(*fractions.shape)
    axis.imshow(_colors(fractions), interpolation="nearest")
    _label_classes(axis, names, draws_all, size)
    if n <= MAX_COUNTED:
        _write_counts(axis, counts, fractions, size)
        key.remove()
    else:
        _draw_key(key)
    selection = "" if draws_all else f"\nthe {len(shown)} of {n:,} classes with the most errors"
    axis.set_title(
        f"{len(labels):,} examples, {np.mean(labels == predicted):.1%} right{selection}",
        fontsize=size,
        loc="left",
    )
    if n > MAX_NAMED:
        _list_errors(axis, labels, predicted, class_names)
    return pixels(figure)


def confusion_counts(labels: np.ndarray, predicted: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Counts the examples by true and predicted class.

    Args:
      labels, predicted: int `[N]`.
      shown: int `[k]`, ids of classes.

    Returns:
      int64 `[k, k + 1]`: the examples of class `shown[i]` with the prediction `shown[j]`, and in the last
      column those whose predicted class is not shown.

    >>> confusion_counts(np.array([0, 0, 0, 2, 5]), np.array([0, 2, 5, 2, 5]), np.array([0, 2]))
    array([[1, 1, 1],
           [0, 1, 0]])
    """
    other = -1
    labels, predicted = (np.where(np.isin(ids, shown), ids, other) for ids in (labels, predicted))
    return sklearn.metrics.confusion_matrix(labels, predicted, labels=[*shown, other])[:-1]


def rank_sweep(scores: np.ndarray, ranks: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Draws the rank of one score of a list as it moves, beside its exact rank.

    Args:
      scores: float `[N]`, ascending.
      ranks, exact: float `[N]`, in `(0, 1]`.

    Returns:
      uint8 `[height, width, 3]`.

    References:
      Engilberge, Chevallier, Perez, Cord (2019), "SoDeep: a sorting deep net to learn ranking loss
      surrogates", figure 5.
    """
    figure = Figure(figsize=CARD, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.plot(scores, exact, color=GRAY, linewidth=3, label="exact")
    axis.plot(scores, ranks, color=RIGHT, label="sorter")
    axis.set_xlabel("score that moves past the others", fontsize=TEXT)
    axis.set_ylabel("rank / n", fontsize=TEXT)
    axis.tick_params(labelsize=TEXT)
    few_ticks(axis)
    finish(axis)
    axis.legend(frameon=False, fontsize=TEXT)
    return pixels(figure)


def row_fractions(counts: np.ndarray) -> np.ndarray:
    """Divides each row by its sum; a row of zeros remains unchanged.

    >>> row_fractions(np.array([[1, 3], [0, 0]]))
    array([[0.25, 0.75],
           [0.  , 0.  ]])
    """
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def most_confused(labels: np.ndarray, predicted: np.ndarray, num_classes: int, count: int) -> np.ndarray:
    """Returns the classes with the most errors, as true or as predicted class.

    Among equals, classes with more examples come first, then those with lower ids.

    Args:
      labels, predicted: int `[N]`.
      num_classes: `n`.
      count: number of classes to return.

    Returns:
      int64 `[count]`, ids, ascending.

    >>> most_confused(np.array([0, 1, 1, 3]), np.array([0, 2, 2, 3]), num_classes=5, count=3)
    array([0, 1, 2])
    """
    wrong = labels != predicted
    errors = np.bincount(np.append(labels[wrong], predicted[wrong]), minlength=num_classes)
    examples = np.bincount(labels, minlength=num_classes)
    return np.sort(np.lexsort((-examples, -errors))[:count])


def rank_histogram(ranks: np.ndarray, num_classes: int, several: bool = False) -> np.ndarray:
    """Draws the ranks of the true class, or of the first of several.

    See `rank_edges` for the bars. Infinite ranks, of examples whose scores are not finite, have their own.

    Args:
      ranks: float `[N]`, in `1..n`, 1 if the example is right; or infinity.
      num_classes: `n`.
      several: whether an example may have several classes.

    Returns:
      uint8 `[height, width, 3]`.

    Raises:
      ValueError: a finite rank is outside `1..n`.
    """
    ranks = np.asarray(ranks)
    edges = rank_edges(num_classes)
    fractions = rank_fractions(ranks, edges)
    names = [_format_range(low, high - 1) for low, high in itertools.pairwise(edges)]
    colors = [RIGHT, *[WRONG] * (len(names) - 1)]
    if fractions[-1]:
        names, colors = [*names, "not finite"], [*colors, NOT_FINITE]
    fractions = fractions[: len(names)]

    figure = Figure(figsize=CARD, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    bars = axis.bar(range(len(names)), fractions, 0.85, color=colors)
    axis.bar_label(bars, list(map(_whole_percent, fractions)), padding=2, fontsize=TEXT - 1)
    rotation: dict[str, Any] = {"rotation": 50, "ha": "right"} if max(map(len, names)) > 5 else {}
    axis.set_xticks(range(len(names)), names, fontsize=TEXT, **rotation)
    axis.tick_params(axis="x", length=0)
    axis.tick_params(axis="y", labelsize=TEXT)
    axis.set_ylim(0.0, 1.15 * fractions.max())
    few_ticks(axis, 4)
    axis.yaxis.set_major_formatter("{x:.0%}")
    ranked = "the first of an example's classes" if several else "the true class"
    axis.set_xlabel(f"rank of {ranked} among {num_classes:,}", fontsize=TEXT)
    finish(axis, "y")
    axis.set_title(_summarize_ranks(ranks, num_classes), fontsize=TEXT, loc="left")
    return pixels(figure)


def rank_edges(num_classes: int) -> np.ndarray:
    """Returns the first rank of each bar, and `n + 1` after the last one; int `[bars + 1]`.

    Up to `MAX_COUNTED` classes each rank has a bar. Otherwise the first `SINGLE_RANKS` have one each, and the
    bars of the others are even in the logarithm of the rank.

    >>> rank_edges(3).tolist(), rank_edges(1000).tolist()
    ([1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 14, 33, 77, 182, 427, 1001])
    """
    if num_classes <= MAX_COUNTED:
        return np.arange(1, num_classes + 2)
    beyond = np.geomspace(SINGLE_RANKS + 1, num_classes + 1, LOG_BINS + 1).round().astype(int)
    return np.unique(np.append(np.arange(1, SINGLE_RANKS + 1), beyond))


def rank_fractions(ranks: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Returns the fraction of the ranks in each bar, and last that of infinite ranks.

    Args:
      ranks: float `[N]`.
      edges: int `[b + 1]`, from `rank_edges`.

    Returns:
      float64 `[b + 1]`, of sum 1.

    Raises:
      ValueError: a finite rank is outside the edges.

    >>> rank_fractions(np.array([1.0, 1.0, 3.0, np.inf]), np.array([1, 2, 4]))
    array([0.5 , 0.25, 0.25])
    """
    finite = ranks[np.isfinite(ranks)]
    outside = finite[(finite < 1) | (finite >= edges[-1])]
    if len(outside):
        raise ValueError(f"ranks={outside[0]:g}: outside 1..{edges[-1] - 1}. Give ranks among the classes.")
    counts = np.histogram(finite, edges)[0]
    return np.append(counts, len(ranks) - len(finite)) / len(ranks)


def count_distributions(
    probabilities: np.ndarray, counts: np.ndarray, training_counts: np.ndarray
) -> np.ndarray:
    """Draws predicted distributions of the number of classes: of the first examples, and their mean.

    A bar is the probability of a number, orange if no training example has so many classes. A dark outline is
    the true number; in the mean, the fraction of each true number. Numbers more than a third above the
    largest known one share the last bar.

    Args:
      probabilities: of `0..m` classes, float `[N, m + 1]`; NaN if an example's scores are not finite.
      counts: true numbers of classes, int `[N]`.
      training_counts: numbers of classes of the training examples, int.

    Returns:
      uint8 `[height, width, 3]`.
    """
    probabilities, counts = np.asarray(probabilities, np.float64), np.asarray(counts)
    last = max(*counts, *training_counts)
    last = min(probabilities.shape[1] - 1, last + max(2, last // 3))
    is_known = np.isin(np.arange(last + 1), training_counts)
    rest = probabilities[:, last:].sum(axis=1, keepdims=True)
    shown = np.concatenate([probabilities[:, :last], rest], axis=1)
    finite = np.isfinite(shown).all(axis=1)
    unknown_mass = shown[finite][:, ~is_known].sum() / max(1, finite.sum())
    panels = [
        (f"example {i + 1}", shown[i], np.arange(last + 1) == counts[i])
        for i in range(min(SHOWN_EXAMPLES, len(shown)))
    ]
    mean = shown[finite].mean(axis=0) if finite.any() else np.full(last + 1, np.nan)
    true_fractions = np.bincount(counts, minlength=last + 1)[: last + 1] / len(counts)
    panels.append((f"mean of {len(shown):,}", mean, true_fractions))

    rows, columns = (2, 3) if len(panels) > 3 else (1, len(panels))
    figure = Figure(figsize=(1.9 * columns, 2.0 * rows + 0.6), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes, unused = np.split(figure.subplots(rows, columns, sharey=True, squeeze=False).ravel(), [len(panels)])
    for axis in unused:
        axis.set_axis_off()
    colors = [RIGHT if known else WRONG for known in is_known]
    for axis, (title, predicted, true) in zip(axes, panels, strict=True):
        axis.bar(range(last + 1), np.nan_to_num(predicted), 0.85, color=colors)
        axis.bar(range(last + 1), true, 0.85, fill=False, edgecolor="0.2", linewidth=np.where(true, 1.2, 0))
        axis.set_title(title, fontsize=TEXT)
        axis.set_ylim(0.0, 1.05)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        few_ticks(axis, 3)
        axis.yaxis.set_major_formatter("{x:.0%}")
        axis.tick_params(labelsize=TEXT)
        finish(axis, "y")
    open_ended = f" ({last}: {last} or more)" if last < probabilities.shape[1] - 1 else ""
    figure.supxlabel(f"number of classes{open_ended}", fontsize=TEXT)
    title = f"numbers that no training example has: {_percent(unknown_mass)}"
    if not finite.all():
        title += f"\nnot finite: {np.count_nonzero(~finite):,}"
    figure.suptitle(title, fontsize=TEXT)
    return pixels(figure)


def save_with_legend(figure: Figure, axis: Axes, path: str | os.PathLike) -> None:
    """Writes a figure of several panels with one legend, that of an axis, below them."""
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=len(labels), frameon=False
    )
    save(figure, path)


def save(figure: Figure, path: str | os.PathLike) -> None:
    """Writes a figure as PNG, on disk or to object storage, completely or not at all."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, bbox_inches="tight")
    files.write(path, buffer.getvalue())


def _check_ids(labels, predicted, num_classes):
    if labels.shape != predicted.shape:
        raise ValueError(
            f"predicted: shape {predicted.shape} differs from {labels.shape} of labels. Give as many."
        )
    for name, ids in (("labels", labels), ("predicted", predicted)):
        outside = ids[(ids < 0) | (ids >= num_classes)]
        if len(outside):
            raise ValueError(f"{name}={outside[0]}: outside 0..{num_classes - 1}. Give ids of the classes.")


def _matrix_axes(rows, columns):
    """Returns a figure with space for text on all sides, and its axes: the matrix, and a key beside it.

    A cell is a whole number of pixels, so all have the same size.
    """
    cell = _cell_size(rows)
    width, height = columns * cell, rows * cell
    size = NAMES_SIZE + width + RIGHT_WIDTH, TITLE_HEIGHT + height + NAMES_SIZE
    figure = Figure(figsize=(size[0] / DPI, size[1] / DPI), dpi=DPI)
    boxes = (
        (NAMES_SIZE, NAMES_SIZE, width, height),
        (NAMES_SIZE + width + 30, NAMES_SIZE + height - KEY_HEIGHT, 50, KEY_HEIGHT),
    )
    matrix, key = (figure.add_axes(box / np.tile(size, 2)) for box in boxes)
    return figure, matrix, key


def _text_size(n):
    """Returns the size of the text in points: a card shows half of the pixels of a small matrix."""
    return 15 if n <= MAX_COUNTED else TEXT


def _cell_size(n):
    """Returns the width and height of a cell in pixels."""
    if n <= MAX_COUNTED:
        return min(max(44, 480 // n), 100)
    return 22 if n <= MAX_NAMED else max(1, round(1_000 / n))


def _colors(fractions):
    """Returns the colors of the cells, float `[k, k', 3]`.

    The square root makes small fractions visible. If a cell is smaller than `VISIBLE`, an error spreads over
    its neighbors.
    """
    rows, columns = fractions.shape
    right = np.eye(rows, columns, dtype=bool)
    errors = np.where(right, 0.0, fractions)
    if _cell_size(len(fractions)) < VISIBLE:
        errors = scipy.ndimage.maximum_filter(errors, VISIBLE)
    return np.where(right[..., None], _tint(fractions, RIGHT), _tint(errors, WRONG))


def _tint(fractions, color):
    return 1.0 - np.sqrt(fractions)[..., None] * (1.0 - np.array(to_rgb(color)))


def _label_classes(axis, names, draws_all, size):
    unit = " (id)" if len(names) > MAX_NAMED else ""
    axis.set_ylabel(f"true class{unit}", fontsize=size)
    axis.set_xlabel(f"predicted class{unit}", fontsize=size)
    axis.spines[:].set_color("0.7")
    axis.tick_params(color="0.7", labelsize=size)
    if len(names) > MAX_NAMED:
        for ids in (axis.xaxis, axis.yaxis):
            ids.set_major_locator(MaxNLocator(8, integer=True))
        return
    columns = names if draws_all else [*names, "any other"]
    rotation = 90 if max(map(len, columns)) > 2 else 0
    axis.set_xticks(range(len(columns)), columns, rotation=rotation, parse_math=False)
    axis.set_yticks(range(len(names)), names, parse_math=False)
    axis.set_xticks(np.arange(len(columns)) - 0.5, minor=True)
    axis.set_yticks(np.arange(len(names)) - 0.5, minor=True)
    axis.grid(which="minor", color="0.9", linewidth=0.5)
    axis.tick_params(which="minor", length=0)


def _write_counts(axis, counts, fractions, size):
    for (row, column), count in np.ndenumerate(counts):
        if count:
            color = "white" if fractions[row, column] > 0.4 else "black"
            axis.text(column, row, f"{count:,}", ha="center", va="center", fontsize=size, color=color)


def _draw_key(axis):
    """Draws the colors of the fractions."""
    even = np.linspace(0.0, 1.0, KEY_HEIGHT)[:, None] ** 2
    strips = np.hstack([_tint(even, RIGHT), _tint(even, WRONG)])
    axis.imshow(strips, origin="lower", extent=(0, 2, 0, 1), aspect="auto", interpolation="nearest")
    axis.set_xticks((0.5, 1.5), ("right", "wrong"), rotation=90)
    marks = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
    axis.set_yticks(np.sqrt(marks), [f"{fraction:.0%}" for fraction in marks])
    axis.yaxis.tick_right()
    axis.tick_params(color="0.7", labelsize=TEXT)
    axis.spines[:].set_color("0.7")


def _list_errors(axis, labels, predicted, class_names):
    """Writes the most frequent errors below the key."""
    lines = ["most frequent errors, true → predicted"]
    errors = frequent_errors(labels, predicted)[:LISTED_ERRORS]
    for true, wrong, count in errors.itertuples(index=False):
        total = np.count_nonzero(labels == true)
        names = _shorten(class_names[true]), _shorten(class_names[wrong])
        lines.append(f"{count:,} of {total:,}:  {names[0]} → {names[1]}")
    axis.annotate(
        "\n".join(lines),
        (1.0, 1.0),
        (30, -KEY_HEIGHT - 60),
        xycoords="axes fraction",
        textcoords="offset pixels",
        va="top",
        fontsize=TEXT,
        linespacing=1.5,
        parse_math=False,
    )


def _summarize_ranks(ranks, num_classes):
    cutoffs = [1, SINGLE_RANKS] if num_classes > SINGLE_RANKS else [1]
    parts = [f"{len(ranks):,} examples"]
    parts += [f"rank {'≤ ' if rank > 1 else ''}{rank}: {np.mean(ranks <= rank):.1%}" for rank in cutoffs]
    infinite = np.count_nonzero(~np.isfinite(ranks))
    if infinite:
        parts.append(f"not finite: {infinite:,}")
    return "   ".join(parts)


def _format_range(low, high):
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"  # noqa: RUF001


def _whole_percent(fraction):
    """Returns the label of a bar; a bar of nothing has none."""
    if not fraction:
        return ""
    return "<1%" if fraction < 0.005 else f"{fraction:.0%}"


def _percent(fraction):
    return "<0.1%" if 0.0 < fraction < 0.0005 else f"{fraction:.1%}"


def _shorten(name):
    line = " ".join(name.split())
    return line if len(line) <= NAME_WIDTH else line[: NAME_WIDTH - 1] + "…"


def pixels(figure: Figure) -> np.ndarray:
    """Returns a drawn figure without its white border; uint8 `[height, width, 3]`."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    inked = np.any(pixels < 255, axis=2)
    rows, columns = (np.flatnonzero(np.any(inked, axis=axis)) for axis in (1, 0))
    cut = pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return np.pad(cut, ((MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)), constant_values=255)

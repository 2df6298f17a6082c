"""Pictures of a judged split, as pixels: what each class is taken for, and the ranks of the true class.

They are drawn without pyplot, whose figures outlive their drawing.
"""

import itertools

import numpy as np
import scipy.ndimage
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

COLORS = [
    "#1f5a99",
    "#d9822b",
    "#3c8d5a",
    "#8a4f9e",
    "#b3443f",
    "#6b6b6b",
    "#d4b02f",
    "#52b0c2",
    "#c76fa8",
    "#222222",
]

RIGHT, WRONG, UNJUDGED = COLORS[0], COLORS[1], COLORS[5]
COUNTED = 12  # classes up to which the cells hold their counts
NAMED = 40  # classes up to which all are named
WHOLE = 1_000  # classes up to which all are drawn
LISTED = 20  # confusions that are told in words where not all classes are named
TOLD_APART = 5  # ranks that have a bar of their own with any number of classes
LOG_BINS = 6  # of the ranks beyond
SHOWN = 4  # examples that have a law of their own
NAME_WIDTH = 28  # characters
DPI = 100
SIDE, ABOVE, BESIDE = 260, 60, 620  # pixels for the names, the title, and what stands to the right
KEY = 160  # height in pixels
MARGIN = 10  # pixels
VISIBLE = 3  # pixels


def confusion_matrix(labels, predicted, class_names):
    """Draws what the examples of each class are taken for.

    A row is a true class, a column a predicted one, the colour of a cell the share of its row: blue where
    it is right, orange where it is wrong. Up to `COUNTED` classes the cells hold the counts, up to `NAMED`
    the classes are named; beyond, they are told by their ids and the most frequent confusions in words.
    Of more than `WHOLE` classes those with the most errors are drawn, `NAMED` of them, and the last column
    holds what is taken for any other class. The row of a class without an example is empty.

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
    whole = n <= WHOLE
    shown = np.arange(n) if whole else most_confused(labels, predicted, n, NAMED)
    counts = confusion_counts(labels, predicted, shown)
    shares = row_shares(counts)
    if whole:
        counts, shares = counts[:, :-1], shares[:, :-1]
    names = [_short(class_names[i]) for i in shown]

    figure, axis, key = _matrix_axes(*shares.shape)
    axis.imshow(_colors(shares), interpolation="nearest")
    _label_classes(axis, names, whole)
    if n <= COUNTED:
        _write_counts(axis, counts, shares)
    what = "" if whole else f"; drawn are the {len(shown)} with the most errors of {n:,} classes"
    title = f"{len(labels):,} examples, {np.mean(labels == predicted):.1%} right{what}"
    axis.set_title(f"{title}\na row: what the examples of a class are taken for", fontsize=9, loc="left")
    _draw_key(key)
    if n > NAMED:
        _tell_confusions(axis, labels, predicted, class_names)
    return _pixels(figure)


def confusion_counts(labels, predicted, shown):
    """Counts the examples by true and predicted class.

    Args:
      labels, predicted: int `[N]`.
      shown: int `[k]`, ids of classes, ascending.

    Returns:
      int64 `[k, k + 1]`: the examples of class `shown[i]` that are taken for `shown[j]`, and in the last
      column those that are taken for a class that is not shown.

    >>> confusion_counts([0, 0, 0, 2, 5], [0, 2, 5, 2, 5], [0, 2])
    array([[1, 1, 1],
           [0, 1, 0]])
    """
    rows, columns = _places(labels, shown), _places(predicted, shown)
    k = len(shown)
    kept = rows < k
    cells = np.bincount(rows[kept] * (k + 1) + columns[kept], minlength=k * (k + 1))
    return cells.reshape(k, k + 1)


def rank_sweep(scores, ranks, exact):
    """Draws the rank of one score of a list as it moves, and the ranks that it has in truth.

    Args:
      scores: float `[N]`, ascending.
      ranks, exact: float `[N]`, in `(0, 1]`.

    Returns:
      uint8 `[height, width, 3]`.

    References:
      Engilberge, Chevallier, Perez, Cord (2019), "SoDeep: a sorting deep net to learn ranking loss
      surrogates", figure 5.
    """
    figure = Figure(figsize=(6.4, 4.0), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.plot(scores, exact, color=COLORS[5], linewidth=3, label="exact")
    axis.plot(scores, ranks, color=COLORS[0], label="sorter")
    axis.set(xlabel="score", ylabel="rank / n")
    axis.set_title("one score moves, the others are evenly spaced from -1 to 1", fontsize=9, loc="left")
    axis.legend(frameon=False)
    return _pixels(figure)


def _places(ids, shown):
    """Returns the places of ids among those shown, `len(shown)` for the others."""
    places = np.searchsorted(shown, ids)
    found = np.append(shown, -1)[places] == ids
    return np.where(found, places, len(shown))


def row_shares(counts):
    """Divides each row by its sum; a row of zeros stays one.

    >>> row_shares(np.array([[1, 3], [0, 0]]))
    array([[0.25, 0.75],
           [0.  , 0.  ]])
    """
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def most_confused(labels, predicted, num_classes, count):
    """Returns the classes with the most errors, their own examples' and those taken for them.

    Among equals those of more examples come first, then those of lower ids.

    Args:
      labels, predicted: int `[N]`.
      num_classes: `n`.
      count: how many classes.

    Returns:
      int64 `[count]`, ids, ascending.

    >>> most_confused(np.array([0, 1, 1, 3]), np.array([0, 2, 2, 3]), num_classes=5, count=3)
    array([0, 1, 2])
    """
    wrong = labels != predicted
    errors = np.bincount(np.append(labels[wrong], predicted[wrong]), minlength=num_classes)
    examples = np.bincount(labels, minlength=num_classes)
    return np.sort(np.lexsort((-examples, -errors))[:count])


def confusions(labels, predicted, num_classes, count):
    """Returns the most frequent errors.

    Args:
      labels, predicted: int `[N]`.
      num_classes: `n`.
      count: how many kinds of errors at most.

    Returns:
      `(true class, predicted class, examples)` of each, the most frequent first; among equals by the ids.

    >>> confusions(np.array([4, 4, 1, 0]), np.array([2, 2, 0, 0]), num_classes=5, count=9)
    [(4, 2, 2), (1, 0, 1)]
    """
    wrong = labels != predicted
    pairs = labels[wrong].astype(np.int64) * num_classes + predicted[wrong]
    pairs, examples = np.unique(pairs, return_counts=True)
    order = np.argsort(-examples, kind="stable")[:count]
    return [(*map(int, divmod(pairs[i], num_classes)), int(examples[i])) for i in order]


def rank_histogram(ranks, num_classes, several=False):
    """Draws the ranks of the true class, or of the first of several.

    Each rank has a bar where there are few classes, `rank_edges`. A rank that is not finite, of an example
    that could not be judged, counts in a bar of its own.

    Args:
      ranks: float `[N]`, in `1..n`, 1 where the example is right; or infinity.
      num_classes: `n`.
      several: whether an example may have several classes.

    Returns:
      uint8 `[height, width, 3]`.

    Raises:
      ValueError: a finite rank is outside `1..n`.
    """
    ranks = np.asarray(ranks)
    edges = rank_edges(num_classes)
    shares = rank_shares(ranks, edges)
    names = [_range(low, high - 1) for low, high in itertools.pairwise(edges)]
    colors = [RIGHT, *[WRONG] * (len(names) - 1)]
    if shares[-1]:
        names, colors = [*names, "not judged"], [*colors, UNJUDGED]
    shares = shares[: len(names)]

    width, height = 1.0 + 0.6 * max(len(names), 8), 4.2
    figure = Figure(figsize=(width, height), dpi=DPI)
    axis = figure.add_axes((0.8 / width, 0.3, 1.0 - 0.9 / width, 0.55))
    bars = axis.bar(range(len(names)), shares, 0.85, color=colors)
    axis.bar_label(bars, [_percent(share) for share in shares], padding=2, fontsize=8)
    sloping = {"rotation": 40, "ha": "right"} if max(map(len, names)) > 5 else {}
    axis.set_xticks(range(len(names)), names, fontsize=8, **sloping)
    axis.tick_params(axis="x", length=0)
    axis.set_ylim(0.0, 1.12 * shares.max())
    axis.yaxis.set_major_locator(MaxNLocator(5))
    axis.yaxis.set_major_formatter("{x:.0%}")
    axis.set_ylabel("examples", fontsize=9)
    whose = "the first of an example's classes" if several else "the true class"
    axis.set_xlabel(f"rank of {whose} among {num_classes:,}", fontsize=9)
    axis.grid(axis="y", alpha=0.3)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(_told(ranks, num_classes), fontsize=9, loc="left")
    return _pixels(figure)


def rank_edges(num_classes):
    """Returns where the bars of ranks begin, and after the last one `n + 1`; int `[bars + 1]`.

    The first ranks have one each, and all where there are few classes; beyond, the bars are even in the
    logarithm of the rank.

    >>> rank_edges(3).tolist(), rank_edges(1000).tolist()
    ([1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 14, 33, 77, 182, 427, 1001])
    """
    if num_classes <= COUNTED:
        return np.arange(1, num_classes + 2)
    beyond = np.geomspace(TOLD_APART + 1, num_classes + 1, LOG_BINS + 1).round().astype(int)
    return np.unique(np.append(np.arange(1, TOLD_APART + 1), beyond))


def rank_shares(ranks, edges):
    """Returns the share of the ranks in each bar, and last that of those which are not finite.

    Args:
      ranks: float `[N]`.
      edges: int `[b + 1]`, from `rank_edges`.

    Returns:
      float64 `[b + 1]`, of sum 1.

    Raises:
      ValueError: a finite rank lies in no bar.

    >>> rank_shares(np.array([1.0, 1.0, 3.0, np.inf]), np.array([1, 2, 4]))
    array([0.5 , 0.25, 0.25])
    """
    judged = ranks[np.isfinite(ranks)]
    outside = judged[(judged < 1) | (judged >= edges[-1])]
    if len(outside):
        raise ValueError(f"a rank of {outside[0]:g} among {edges[-1] - 1:,} classes")
    counts = np.histogram(judged, edges)[0]
    return np.append(counts, len(ranks) - len(judged)) / len(ranks)


def count_laws(laws, sizes, known):
    """Draws how many classes a model gives to examples: the first `SHOWN` of them, and all together.

    The bars are the law of the number, orange where no training example has so many classes. A dark line is
    the true number, of all examples together the shares of the true numbers. Beyond the largest number that
    training knows, and a third more, the bars are summed up.

    Args:
      laws: probabilities of `0..m` classes, float `[N, m + 1]`; an example's may be NaN.
      sizes: true numbers, int `[N]`.
      known: those of the training examples, int.

    Returns:
      uint8 `[height, width, 3]`.
    """
    laws, sizes = np.asarray(laws, np.float64), np.asarray(sizes)
    last = max(*sizes, *known)
    last = min(laws.shape[1] - 1, last + max(2, last // 3))
    is_known = np.isin(np.arange(last + 1), known)
    shown = np.concatenate([laws[:, :last], laws[:, last:].sum(axis=1, keepdims=True)], axis=1)
    judged = np.isfinite(shown).all(axis=1)
    outside = shown[judged][:, ~is_known].sum() / max(1, judged.sum())
    few = min(SHOWN, len(laws))
    panels = [(f"example {i + 1}", shown[i], np.arange(last + 1) == sizes[i]) for i in range(few)]
    shares = np.bincount(sizes, minlength=last + 1)[: last + 1] / len(sizes)
    mean = shown[judged].mean(axis=0) if judged.any() else np.full(last + 1, np.nan)
    panels.append((f"mean of {len(laws):,}", mean, shares))

    width = 2.2 * len(panels)
    figure = Figure(figsize=(width, 3.0), dpi=DPI)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    colors = [RIGHT if one else WRONG for one in is_known]
    for axis, (title, law, truth) in zip(axes, panels, strict=True):
        axis.bar(range(last + 1), np.nan_to_num(law), 0.85, color=colors)
        axis.bar(range(last + 1), truth, 0.85, fill=False, edgecolor="0.2", linewidth=np.where(truth, 1.2, 0))
        axis.set_title(title, fontsize=8)
        axis.set_ylim(0.0, 1.05)
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axis.yaxis.set_major_formatter("{x:.0%}")
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("probability", fontsize=9)
    rest = f" ({last} is that and more)" if last < laws.shape[1] - 1 else ""
    figure.supxlabel(f"number of classes{rest}", fontsize=9)
    told = f"on numbers that no training example has: {_percent(outside)}"
    if not judged.all():
        told += f"      not judged: {np.count_nonzero(~judged):,}"
    figure.suptitle(told, fontsize=9)
    figure.tight_layout()
    return _pixels(figure)


def _check_ids(labels, predicted, num_classes):
    if labels.shape != predicted.shape:
        raise ValueError(f"labels {labels.shape} and predicted classes {predicted.shape} differ in shape")
    for what, ids in (("label", labels), ("predicted class", predicted)):
        outside = ids[(ids < 0) | (ids >= num_classes)]
        if len(outside):
            raise ValueError(f"a {what} {outside[0]} is outside the classes 0..{num_classes - 1}")


def _matrix_axes(rows, columns):
    """Returns a figure with room for words on all sides, and its axes: the matrix, and a key beside it.

    A cell is a whole number of pixels, so that all are of one size.
    """
    cell = _cell_size(rows)
    width, height = columns * cell, rows * cell
    size = np.array([SIDE + width + BESIDE, ABOVE + height + SIDE])
    figure = Figure(figsize=size / DPI, dpi=DPI)
    boxes = ((SIDE, SIDE, width, height), (SIDE + width + 30, SIDE + height - KEY, 50, KEY))
    matrix, key = (figure.add_axes(box / np.tile(size, 2)) for box in boxes)
    return figure, matrix, key


def _cell_size(n):
    """Returns the side of a cell, pixels."""
    if n <= COUNTED:
        return min(max(44, 480 // n), 100)
    return 22 if n <= NAMED else max(1, round(1_000 / n))


def _colors(shares):
    """Returns the colours of the cells, float `[k, k', 3]`.

    The root of a share lets small ones be seen, and where a cell is smaller than `VISIBLE` an error
    spreads over its neighbours.
    """
    right = np.eye(*shares.shape, dtype=bool)
    errors = np.where(right, 0.0, shares)
    if _cell_size(len(shares)) < VISIBLE:
        errors = scipy.ndimage.maximum_filter(errors, VISIBLE)
    return np.where(right[..., None], _tint(shares, RIGHT), _tint(errors, WRONG))


def _tint(shares, color):
    return 1.0 - np.sqrt(shares)[..., None] * (1.0 - np.array(to_rgb(color)))


def _label_classes(axis, names, whole):
    told_by = " (id)" if len(names) > NAMED else ""
    axis.set_ylabel(f"true class{told_by}", fontsize=9)
    axis.set_xlabel(f"predicted class{told_by}", fontsize=9)
    axis.spines[:].set_color("0.7")
    axis.tick_params(color="0.7", labelsize=8)
    if len(names) > NAMED:
        for one in (axis.xaxis, axis.yaxis):
            one.set_major_locator(MaxNLocator(20, integer=True))
        return
    columns = names if whole else [*names, "any other"]
    axis.set_xticks(range(len(columns)), columns, rotation=90, parse_math=False)
    axis.set_yticks(range(len(names)), names, parse_math=False)
    axis.set_xticks(np.arange(len(columns)) - 0.5, minor=True)
    axis.set_yticks(np.arange(len(names)) - 0.5, minor=True)
    axis.grid(which="minor", color="0.9", linewidth=0.5)
    axis.tick_params(which="minor", length=0)


def _write_counts(axis, counts, shares):
    for (row, column), count in np.ndenumerate(counts):
        if count:
            color = "white" if shares[row, column] > 0.4 else "black"
            axis.text(column, row, f"{count:,}", ha="center", va="center", fontsize=8, color=color)


def _draw_key(axis):
    """Draws which colour stands for which share."""
    even = np.linspace(0.0, 1.0, KEY)[:, None] ** 2
    strips = np.hstack([_tint(even, RIGHT), _tint(even, WRONG)])
    axis.imshow(strips, origin="lower", extent=(0, 2, 0, 1), aspect="auto", interpolation="nearest")
    axis.set_xticks((0.5, 1.5), ("right", "wrong"), rotation=90)
    marks = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
    axis.set_yticks(np.sqrt(marks), [f"{share:.0%}" for share in marks])
    axis.yaxis.tick_right()
    axis.tick_params(color="0.7", labelsize=8)
    axis.spines[:].set_color("0.7")


def _tell_confusions(axis, labels, predicted, class_names):
    """Writes the most frequent errors below the key."""
    lines = ["most frequent errors, true → predicted"]
    for true, most_confused_with, count in confusions(labels, predicted, len(class_names), LISTED):
        of = np.count_nonzero(labels == true)
        lines.append(
            f"{count:,} of {of:,}:  {_short(class_names[true])} → {_short(class_names[most_confused_with])}"
        )
    axis.annotate(
        "\n".join(lines),
        (1.0, 1.0),
        (30, -KEY - 60),
        xycoords="axes fraction",
        textcoords="offset pixels",
        va="top",
        fontsize=8,
        linespacing=1.5,
        parse_math=False,
    )


def _told(ranks, num_classes):
    within = [1, TOLD_APART] if num_classes > TOLD_APART else [1]
    parts = [f"{len(ranks):,} examples"]
    parts += [f"rank {'≤ ' if rank > 1 else ''}{rank}: {np.mean(ranks <= rank):.1%}" for rank in within]
    unjudged = np.count_nonzero(~np.isfinite(ranks))
    if unjudged:
        parts.append(f"not judged: {unjudged:,}")
    return "      ".join(parts)


def _range(low, high):
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"  # noqa: RUF001


def _percent(share):
    return "<0.1%" if 0.0 < share < 0.0005 else f"{share:.1%}"


def _short(name):
    line = " ".join(name.split())
    return line if len(line) <= NAME_WIDTH else line[: NAME_WIDTH - 1] + "…"


def _pixels(figure):
    """Returns what is drawn, without the white around it; uint8 `[height, width, 3]`."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    inked = (pixels < 255).any(axis=2)
    rows, columns = (np.flatnonzero(inked.any(axis=axis)) for axis in (1, 0))
    cut = pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return np.pad(cut, ((MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)), constant_values=255)

"""Pictures of an evaluation, such as of errors and ranks, and plots of a dataset.

The figures do not belong to pyplot, which would keep them in memory.
"""

import io
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import sklearn.metrics
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rank4class.pipelines.evaluation.evaluator import EvaluationResult, summarize_sets
from rank4class.pipelines.evaluation.reliability import BINS, Calibrated
from rank4class.pipelines.reporting import tables
from rank4class.pipelines.reporting.style import COLORS, NOT_FINITE, RIGHT, WRONG, finish
from rank4class.pipelines.storage import files
from rank4class.pipelines.task_data.task_data import TaskData

TEXT = 11  # points; TensorBoard scales pictures down to cards of about 330 pixels
CARD = (4.6, 3.4)  # inches
MAX_COUNTED = 12  # largest number of classes whose cells show counts
MAX_DRAWN = 40  # largest number of classes of a confusion matrix
SINGLE_RANKS = 5  # ranks that always have a separate bar
LOG_BINS = 6  # bars of the ranks beyond
NAME_WIDTH = 28  # characters
DPI = 100
MAX_NAMED = 60  # largest number of classes that are all named
LOG_IMBALANCE = 20  # ratio of the largest to the smallest class above which an axis is logarithmic


def draw_evaluation(
    task_data: TaskData,
    split: str,
    evaluation: EvaluationResult,
    counts: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Draws the evaluation of a split for TensorBoard; returns name -> pixels; see `figures`."""
    return {name: pixels(each) for name, each in figures(task_data, split, evaluation, counts).items()}


def figures(
    task_data: TaskData,
    split: str,
    evaluation: EvaluationResult,
    counts: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, Figure]:
    """Draws the evaluation of a split; returns name -> figure.

    `counts` are the first two arguments of `count_distributions`; None for a model without a count prior.
    """
    examples = task_data.splits[split]
    ranks = rank_histogram(evaluation.ranks, task_data.num_scored(split), several=examples.multi_label)
    pictures = {"rank_of_the_true_class": ranks}
    finite = evaluation.top_classes >= 0  # the histogram counts the other examples
    if not examples.multi_label and finite.any():
        pictures["confusion_matrix"] = confusion_matrix(
            examples.labels[finite], evaluation.top_classes[finite], task_data.scored_class_names(split)
        )
    if evaluation.calibrated:
        pictures["reliability_diagram"] = reliability_diagram(evaluation.calibrated)
        if not examples.multi_label:
            pictures["risk_coverage"] = risk_coverage(evaluation.calibrated)
    if evaluation.sets:
        pictures["prediction_sets"] = set_sizes(summarize_sets(evaluation.sets))
    if counts is not None:
        training_counts = task_data.splits["train"].num_relevant()
        pictures["number_of_classes"] = count_distributions(*counts, training_counts)
    return pictures


def confusion_matrix(labels: np.ndarray, predicted: np.ndarray, class_names: Sequence[str]) -> Figure:
    """Draws the confusion matrix of ids of true and predicted classes, int `[N]`, in rows and columns.

    The color of a cell is its fraction of the row: blue if right, orange if wrong. Of more than `MAX_DRAWN`
    classes, those with the most errors are drawn, and the last column holds all other predictions.
    """
    labels = np.asarray(labels)
    predicted = np.asarray(predicted)
    n = len(class_names)
    draws_all = n <= MAX_DRAWN
    shown = np.arange(n) if draws_all else most_confused(labels, predicted, n, MAX_DRAWN)
    rows = [tables.shortened(class_names[i], NAME_WIDTH) for i in shown.tolist()]
    columns = rows if draws_all else [*rows, "any other"]
    counts = confusion_counts(labels, predicted, shown)[:, : len(columns)]
    fractions = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = max(3.0, 1.2 + 0.3 * len(rows))
    figure = Figure(figsize=(size if n <= MAX_COUNTED else size + 2.5, size), dpi=DPI, layout="constrained")
    axis = figure.subplots()
    is_right = np.equal.outer(range(len(rows)), range(len(columns)))
    for name, color, is_hidden in (("right", RIGHT, ~is_right), ("wrong", WRONG, is_right)):
        image = axis.imshow(
            np.ma.array(fractions, mask=is_hidden),
            cmap=LinearSegmentedColormap.from_list(name, ["white", color]),
            norm=PowerNorm(0.5, 0.0, 1.0),  # makes small fractions visible
        )
        if n > MAX_COUNTED:
            figure.colorbar(image, label=name, format="{x:.0%}", shrink=0.6)
    axis.set_xticks(range(len(columns)), columns, rotation=90, parse_math=False)
    axis.set_yticks(range(len(rows)), rows, parse_math=False)
    axis.set(xlabel="predicted class", ylabel="true class")
    selection = "" if draws_all else f"\nthe {len(rows)} of {n:,} classes with the most errors"
    right = f"{len(labels):,} examples, {np.mean(labels == predicted):.1%} right"
    axis.set_title(right + selection, loc="left")
    if n <= MAX_COUNTED:
        for (row, column), count in np.ndenumerate(counts):
            color = "white" if fractions[row, column] > 0.4 else "black"
            axis.text(column, row, f"{count:,}" if count else "", ha="center", va="center", color=color)
    return figure


def confusion_counts(labels: np.ndarray, predicted: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Counts examples by shown true and predicted class; the last column has the predictions not shown."""
    other = -1
    labels, predicted = (np.where(np.isin(ids, shown), ids, other) for ids in (labels, predicted))
    return sklearn.metrics.confusion_matrix(labels, predicted, labels=[*shown, other])[:-1]


def most_confused(labels: np.ndarray, predicted: np.ndarray, num_classes: int, count: int) -> np.ndarray:
    """Returns the ascending ids of the `count` classes with the most errors, as true or as predicted one."""
    wrong = labels != predicted
    errors = np.bincount(np.append(labels[wrong], predicted[wrong]), minlength=num_classes)
    examples = np.bincount(labels, minlength=num_classes)
    return np.sort(np.lexsort((-examples, -errors))[:count])


def rank_histogram(ranks: np.ndarray, num_classes: int, several: bool = False) -> Figure:
    """Draws the ranks `[N]` of the true class, or of the first of several; infinite ones have a bar."""
    ranks = np.asarray(ranks)
    edges = rank_edges(num_classes)
    fractions = rank_fractions(ranks, edges)
    ends = itertools.pairwise(edges)
    names = [f"{low:,}" if low == end - 1 else f"{low:,}-{end - 1:,}" for low, end in ends]
    colors = [RIGHT, *[WRONG] * (len(names) - 1)]
    if fractions[-1]:
        names = [*names, "not finite"]
        colors = [*colors, NOT_FINITE]
    fractions = fractions[: len(names)]
    ranked = "the first of an example's classes" if several else "the true class"
    title = f"{len(ranks):,} examples   rank 1: {np.mean(ranks <= 1):.1%}"
    if num_classes > SINGLE_RANKS:
        title += f"   rank ≤ {SINGLE_RANKS}: {np.mean(ranks <= SINGLE_RANKS):.1%}"
    figure, axis = _card(f"rank of {ranked} among {num_classes:,}", title, grid="y")
    bars = axis.bar(range(len(names)), fractions, 0.85, color=colors)
    axis.bar_label(bars, ["" if not f else "<1%" if f < 0.005 else f"{f:.0%}" for f in fractions], padding=2)
    rotation: dict[str, Any] = {"rotation": 50, "ha": "right"} if max(map(len, names)) > 4 else {}
    axis.set_xticks(range(len(names)), names, **rotation)
    axis.set_ylim(0.0, 1.15 * fractions.max())
    axis.yaxis.set_major_formatter("{x:.0%}")
    return figure


def rank_edges(num_classes: int) -> np.ndarray:
    """Returns the first rank of each bar, and `n + 1` after the last one.

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
    """Returns the fraction of the ranks in each bar of `rank_edges`, and last that of infinite ranks."""
    finite = ranks[np.isfinite(ranks)]
    return np.append(np.histogram(finite, edges)[0], len(ranks) - len(finite)) / len(ranks)


def count_distributions(probabilities: np.ndarray, counts: np.ndarray, training_counts: np.ndarray) -> Figure:
    """Draws the mean predicted distribution of the number of classes, of `[N, m + 1]`.

    A bar is the mean probability of a number, orange if no training example has that number of classes, and a
    dark outline the fraction of the examples that have it. Examples that are not finite have no bar. Numbers
    more than a third above the largest known one share the last bar.
    """
    probabilities = np.asarray(probabilities, np.float64)
    counts = np.asarray(counts)
    last = max(*counts, *training_counts)
    last = min(probabilities.shape[1] - 1, last + max(2, last // 3))
    is_known = np.isin(np.arange(last + 1), training_counts)
    shown = np.column_stack([probabilities[:, :last], probabilities[:, last:].sum(axis=1)])
    predicted = shown[np.isfinite(shown).all(axis=1)].sum(axis=0) / len(shown)
    true = np.bincount(np.minimum(counts, last), minlength=last + 1) / len(counts)
    open_ended = f" ({last}: {last} or more)" if last < max(probabilities.shape[1] - 1, *counts) else ""
    title = f"not in training: {predicted[~is_known].sum():.1%}"
    figure, axis = _card(f"number of classes{open_ended}", title, grid="y")
    axis.bar(range(last + 1), predicted, 0.85, color=np.where(is_known, RIGHT, WRONG))
    outline = np.where(true, 1.2, 0.0)
    axis.bar(range(last + 1), true, 0.85, fill=False, edgecolor="0.2", linewidth=outline)
    axis.locator_params("x", integer=True)
    axis.yaxis.set_major_formatter("{x:.0%}")
    return figure


def reliability_diagram(calibrated: Calibrated) -> Figure:
    """Draws a split before and after calibration; see `draw_reliability`."""
    figure = Figure(figsize=(4.8, 4.0), dpi=DPI, layout="constrained")
    panels = [
        (f"{name}: error {one.ece:.1%}", one.table())
        for name, one in (("before", calibrated.before), ("after", calibrated.after))
    ]
    # With several classes per example, each pair of example and class counts.
    draw_reliability(
        figure, panels, "examples" if calibrated.calibration.method == "temperature" else "pairs"
    )
    figure.suptitle(calibrated.calibration.describe(), fontsize=TEXT, x=0.01, ha="left")
    return figure


def risk_coverage(calibrated: Calibrated) -> Figure:
    """Draws the error of the most confident examples over their share, before and after calibration."""
    figure, axis = _card("share of the examples, most confident first", ylabel="error of their top classes")
    for name, one, color in (("before", calibrated.before, WRONG), ("after", calibrated.after, RIGHT)):
        share, error = one.risk_coverage()
        axis.plot([0.0, *share], [error[0], *error], color=color, label=f"{name} calibration")
    axis.set(xlim=(0.0, 1.0), ylim=(0.0, None))
    axis.xaxis.set_major_formatter("{x:.0%}")
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.legend(frameon=False, fontsize=TEXT)
    return figure


def set_sizes(sets: Mapping[str, Any]) -> Figure:
    """Draws the mean size of prediction sets, with its interval, by coverage; see `summarize_sets`."""
    names = [name for name in sets if name.startswith("set_size@")]
    means = [sets[name] for name in names]
    low, high = np.transpose([sets["intervals"][name] or [sets[name]] * 2 for name in names])
    coverages = [int(name.partition("@")[2]) / 100 for name in names]
    figure, axis = _card("stated coverage", f"prediction sets ({sets['score']})", "mean number of classes")
    axis.plot(coverages, means, "o-", color=RIGHT, ms=4)
    axis.fill_between(coverages, low, high, color=RIGHT, alpha=0.2, linewidth=0)
    axis.set_ylim(0.0, None)
    axis.xaxis.set_major_formatter("{x:.0%}")
    return figure


def detection(summary: Mapping[str, Any]) -> Figure:
    """Draws the share of unknown inputs that are found by that of false alarms; see `detector.measure`."""
    false_alarms, found = zip((0.0, 0.0), *summary["curve"], (100.0, 100.0), strict=True)
    figure, axis = _card("known inputs called unknown", ylabel="unknown inputs found")
    axis.plot(false_alarms, found, color=RIGHT)
    axis.plot(summary["false_alarms"], summary["recall"], "o", color=RIGHT, ms=5)
    axis.set(xlim=(0.0, 100.0), ylim=(0.0, 102.0))
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_formatter(PercentFormatter())
    return figure


def draw_reliability(figure: Figure, panels: Sequence[tuple[str, pd.DataFrame]], counted: str) -> None:
    """Draws accuracy by confidence, and the number of predictions, in each bin of a `Reliability.table`."""
    axes = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=(2.2, 1.0))
    for (title, table), color, (axis, bars) in zip(panels, (WRONG, RIGHT), axes.T, strict=True):
        used = table[table["count"] > 0]
        errors = np.stack([used["accuracy"] - used["low"], used["high"] - used["accuracy"]])
        axis.plot([0.0, 1.0], [0.0, 1.0], color="0.6", linewidth=1, linestyle="--")
        errors = np.maximum(errors, 0.0)  # from rounding errors
        axis.errorbar(used["confidence"], used["accuracy"], errors, fmt="o", color=color, ms=4, lw=1)
        axis.set(xlim=(0.0, 1.0), ylim=(-0.03, 1.03))  # dots at 0 and 1 are whole
        axis.set_title(title, fontsize=TEXT, loc="left")
        bars.bar(used["from"], used["count"], 1.0 / BINS, align="edge", color=color, edgecolor="white")
        bars.set_xlabel("confidence", fontsize=TEXT)
    axes[0, 0].set_ylabel("accuracy", fontsize=TEXT)
    axes[1, 0].set_ylabel(counted, fontsize=TEXT)
    axes[1, 0].set_yscale("log")
    axes[1, 0].set_ylim(0.5, 2.0 * max(table["count"].max() for _, table in panels))
    axes[1, 0].yaxis.set_major_formatter("{x:,.0f}")
    for axis in axes.flat:
        axis.tick_params(labelsize=TEXT)
        finish(axis, "y")
        axis.set_xticks((0.0, 0.5, 1.0), ("0%", "50%", "100%"))
    for axis in axes[0]:
        axis.set_yticks((0.0, 0.5, 1.0), ("0%", "50%", "100%"))


def plot_class_counts(class_names: Sequence[str], counts: dict[str, np.ndarray], path: str) -> None:
    """Plots the number of examples of each class, in this order, in each split: bars, or curves of many."""
    n = len(class_names)
    has_bars = len(class_names) <= MAX_NAMED
    train = counts["train"]
    figure = Figure(figsize=(7, 1.4 + 0.26 * n if has_bars else 4))
    axis = figure.subplots()
    for i, (split, values) in enumerate(counts.items()):
        color = COLORS[i % len(COLORS)]
        if has_bars:
            height = 0.8 / len(counts)
            axis.barh(np.arange(n) - 0.4 + (i + 0.5) * height, values, height, color=color, label=split)
        else:
            axis.plot(np.arange(1, n + 1), values, color=color, label=split, linewidth=1)
    if has_bars:
        axis.set_yticks(range(n), class_names, parse_math=False)
        axis.set_ylim(n - 0.4, -0.6)
    else:
        axis.set_xlabel("classes, by their training examples")
    is_log = train.max() > LOG_IMBALANCE * train[train > 0].min()
    name, count_axis = ("x", axis.xaxis) if has_bars else ("y", axis.yaxis)
    if is_log:
        axis.set(**{f"{name}scale": "log", f"{name}lim": (0.7, None)})  # shows a bar of one example
    count_axis.set_label_text("examples, log scale" if is_log else "examples")
    count_axis.set_major_formatter("{x:,.0f}")
    count_axis.set_minor_formatter("")  # a log axis would write powers there
    count_axis.grid(alpha=0.3)
    save_with_legend(figure, axis, path)


def plot_images(class_names: Sequence[str], images: dict[str, list[np.ndarray]], path: str) -> None:
    """Shows images in `[0, 1]`, one row per class, from title -> images of each class."""
    width = max(len(each) for classes in images.values() for each in classes)
    figure = Figure(figsize=(1 + 0.85 * width * len(images), 0.4 + 0.85 * len(class_names)))
    axes = figure.subplots(len(class_names), width * len(images), squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for i, (title, classes) in enumerate(images.items()):
        axes[0, i * width].set_title(title, fontsize=10, loc="left")
        for row, class_images in zip(axes[:, i * width :], classes, strict=True):
            for axis, image in zip(row, class_images, strict=False):
                axis.imshow(image, cmap="gray", vmin=0.0, vmax=1.0)
    for axis, name in zip(axes[:, 0], class_names, strict=True):
        position = {"transform": axis.transAxes, "ha": "right", "va": "center"}
        axis.text(-0.1, 0.5, name, **position, parse_math=False)
    save(figure, path)


def save_with_legend(figure: Figure, axis: Axes, path: str | os.PathLike) -> None:
    """Writes a figure of several panels with one legend, that of an axis, below them."""
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
    figure.set_layout_engine("constrained")
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    save(figure, path)


def save(figure: Figure, path: str | os.PathLike) -> None:
    """Writes a figure as PNG, on disk or to object storage, completely or not at all."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, bbox_inches="tight")
    files.write(path, buffer.getvalue())


def pixels(figure: Figure) -> np.ndarray:
    """Returns a drawn figure, uint8 `[height, width, 3]`."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def _card(xlabel: str, title: str = "", ylabel: str = "", grid: str = "both") -> tuple[Figure, Axes]:
    """Returns a small figure and its axis."""
    figure = Figure(figsize=CARD, dpi=DPI, layout="constrained")
    axis = figure.subplots()
    axis.set_xlabel(xlabel, fontsize=TEXT)
    axis.set_ylabel(ylabel, fontsize=TEXT)
    axis.set_title(title, fontsize=TEXT, loc="left")
    finish(axis, grid)
    return figure, axis

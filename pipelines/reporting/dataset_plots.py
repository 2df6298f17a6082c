"""Plots of a dataset: class counts, cumulative lengths and sizes, and example images."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from rank4class.pipelines.reporting.plots import save, save_with_legend
from rank4class.pipelines.reporting.style import COLORS

MAX_NAMED = 60  # largest number of classes that are all named
LOG_IMBALANCE = 20  # ratio of the largest to the smallest class above which an axis is logarithmic


def plot_class_counts(
    class_names: Sequence[str], counts: dict[str, np.ndarray], imbalance: float, path: str
) -> None:
    """Plots the number of examples of each class in each split.

    Args:
      class_names: `n` names, in the order to plot.
      counts: split -> number of examples of each class, int `[n]`.
      imbalance: ratio of the largest to the smallest class.
      path: of the picture.
    """
    is_log = imbalance > LOG_IMBALANCE
    if len(class_names) <= MAX_NAMED:
        _plot_bars(class_names, counts, is_log, path)
    else:
        _plot_curves(counts, is_log, path)


def _plot_bars(class_names, counts, is_log, path):
    n, height = len(class_names), 0.8 / len(counts)
    figure = Figure(figsize=(7, 1.4 + 0.26 * n))
    axis = figure.subplots()
    for i, (split, color) in enumerate(zip(counts, COLORS, strict=False)):
        y = np.arange(n) - 0.4 + (i + 0.5) * height
        axis.barh(y, counts[split], height, color=color, label=split)
    axis.set_yticks(range(n), class_names, parse_math=False)
    axis.set_ylim(n - 0.4, -0.6)
    if is_log:
        axis.set_xscale("log")
        axis.set_xlim(left=0.7)  # shows a bar of one example
    _label_counts(axis.xaxis, is_log)
    save_with_legend(figure, axis, path)


def _plot_curves(counts, is_log, path):
    """Plots the counts without names of classes."""
    figure = Figure(figsize=(7, 4))
    axis = figure.subplots()
    for (split, values), color in zip(counts.items(), COLORS, strict=False):
        axis.plot(np.arange(1, len(values) + 1), values, color=color, label=split, linewidth=1)
    axis.set_xlabel("classes, by their training examples")
    if is_log:
        axis.set_yscale("log")
        axis.set_ylim(bottom=0.7)
    _label_counts(axis.yaxis, is_log)
    save_with_legend(figure, axis, path)


def _label_counts(axis: Axis, is_log: bool) -> None:
    axis.set_label_text("examples, log scale" if is_log else "examples")
    _format_numbers(axis)
    axis.grid(alpha=0.3)


def _format_numbers(axis: Axis) -> None:
    axis.set_major_formatter("{x:,.0f}")
    axis.set_minor_formatter("")  # a log axis would write powers there


def plot_cumulative(
    panels: dict[str, dict[str, np.ndarray]], limits: dict[str, tuple[str, float]], path: str
) -> None:
    """Plots the fraction of the examples up to each length or size.

    Args:
      panels: quantity -> split -> values of its examples, `[N]`.
      limits: quantity -> name and value of the config field that limits it.
      path: of the picture.
    """
    figure = Figure(figsize=(4.2 * len(panels), 3.4))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (quantity, splits) in zip(axes, panels.items(), strict=True):
        for (split, values), color in zip(splits.items(), COLORS, strict=False):
            axis.ecdf(values, color=color, label=split)
        if quantity in limits:
            field, limit = limits[quantity]
            axis.axvline(limit, color="black", linestyle=":", label=f"{field}={limit}")
        largest, smallest = (f([f(values) for values in splits.values()]) for f in (max, min))
        if largest > 10 * max(smallest, 1):
            axis.set_xscale("log")
        _format_numbers(axis.xaxis)
        axis.yaxis.set_major_formatter("{x:.0%}")
        axis.set_xlabel(quantity)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("cumulative fraction")
    save_with_legend(figure, axes[-1], path)


def plot_images(
    class_names: Sequence[str], images: dict[str, list[np.ndarray]], width: int, path: str
) -> None:
    """Shows images of classes, one row per class.

    Args:
      class_names: `c` names.
      images: title of a column -> images in `[0, 1]` of each class, `c` arrays `[k, height, width, channels]`
        with `k` up to `width`.
      width: number of images that a column has space for.
      path: of the picture.
    """
    figure = Figure(figsize=(1 + 3.4 * len(images), 0.4 + 0.85 * len(class_names)))
    spaces = {"wspace": 0.05, "hspace": 0.05}
    axes = figure.subplots(len(class_names), len(images), squeeze=False, gridspec_kw=spaces)
    for column, (title, classes) in zip(axes.T, images.items(), strict=True):
        for axis, class_images in zip(column, classes, strict=True):
            axis.imshow(_join(class_images, width), cmap="gray", vmin=0.0, vmax=1.0)
            axis.set_axis_off()
        column[0].set_title(title, fontsize=10)
    for axis, name in zip(axes[:, 0], class_names, strict=True):
        position = {"transform": axis.transAxes, "ha": "right", "va": "center"}
        axis.text(-0.02, 0.5, name, **position, parse_math=False)
    save(figure, path)


def _join(images, count):
    """Returns images side by side, with white between them and in place of missing ones."""
    _, height, width, channels = images.shape
    step = width + max(1, width // 32)
    strip = np.ones([height, count * step, channels])
    for i, image in enumerate(images):
        strip[:, i * step : i * step + width] = image
    return strip

"""Plots of a dataset: class counts and example images."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from rank4class.pipelines.reporting.plots import save, save_with_legend
from rank4class.pipelines.reporting.style import COLORS

MAX_NAMED = 60  # largest number of classes that are all named
LOG_IMBALANCE = 20  # ratio of the largest to the smallest class above which an axis is logarithmic


def plot_class_counts(class_names: Sequence[str], counts: dict[str, np.ndarray], path: str) -> None:
    """Plots the number of examples of each class, in this order, in each split: bars, or curves of many."""
    n, has_bars = len(class_names), len(class_names) <= MAX_NAMED
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

"""Plots of a sweep: differences from the baseline, and validation curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rank4class.pipelines.evaluation.evaluator import metric_heading
from rank4class.pipelines.reporting import style
from rank4class.pipelines.reporting.plots import save_with_legend
from rank4class.pipelines.sweep import grid_tables

MAX_CUTOFFS = 2  # of one metric that all have a panel
SHOWN_FROM = 0.5  # fraction of the epochs after which the curves fit into their panels


def differences(
    summary: Mapping[str, Any], metrics: Sequence[str] | None = None, panel: float = 2.4
) -> Figure:
    """Draws the differences of a summary's cells from its baseline, one panel per metric."""
    metrics = list(summary["metrics"] if metrics is None else metrics)
    comparisons = pd.DataFrame(summary["comparisons"])
    names = list(dict.fromkeys(map(grid_tables.joined, comparisons["name"])))
    colors = style.loss_styles(dict.fromkeys(one["loss"] for one in comparisons["name"]))
    width = round(panel * max(3, len(metrics)), 1)
    figure = Figure(figsize=(width, 1.5 + 0.42 * len(names)), layout="constrained")
    axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    for axis, metric in zip(axes, metrics, strict=True):
        axis.axvspan(-summary["margin"], summary["margin"], color="0.92", zorder=0)
        axis.axvline(0.0, color="0.4", linewidth=1)
        for one in comparisons[comparisons["metric"] == metric].to_dict("records"):
            if one["difference"] is None or one["interval"] is None:
                continue
            y = names.index(grid_tables.joined(one["name"]))
            color = colors[one["name"]["loss"]][0]
            low, high = one["interval"]
            is_separable = one["verdict"] in ("better", "worse")
            axis.plot([low, high], [y, y], color=color, linewidth=1.5)
            marker = style.marker(one["name"].get("interaction", "dot"))
            axis.plot(one["difference"], y, marker, color=color, mfc=color if is_separable else "white", ms=7)
        direction = "higher" if summary["metrics"][metric]["higher_is_better"] else "lower"
        axis.set_title(f"{grid_tables.heading(metric, summary)}\n{direction} is better", fontsize=10)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        style.finish(axis, "x")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    figure.supxlabel(
        f"Difference from {grid_tables.joined(summary['baseline'])}, with its 95% interval. "
        f"Filled: separable. Gray: equivalent within {summary['margin']:g}.",
        fontsize=9,
    )
    return figure


def selected_metrics(names: Sequence[str], monitor: str) -> list[str]:
    """Returns the metrics to draw: of those at several K, the monitor, or that of the largest K.

    >>> names = ["ndcg", "ndcg@1", "ndcg@3", "ndcg@5", "map@5"]
    >>> selected_metrics(names, "ndcg"), selected_metrics(names, "ndcg@1")
    (['ndcg', 'map@5', 'ndcg@5'], ['ndcg', 'map@5', 'ndcg@1'])
    """
    cutoffs: dict[str, list[int]] = {}
    for base, at, cutoff in (name.partition("@") for name in names):
        if at:
            cutoffs.setdefault(base, []).append(int(cutoff))
    many = {base: max(ks) for base, ks in cutoffs.items() if len(ks) > MAX_CUTOFFS}
    monitored, at, _ = monitor.partition("@")
    return [
        *(name for name in names if "@" not in name or name.partition("@")[0] not in many),
        *(monitor if at and base == monitored else f"{base}@{k}" for base, k in many.items()),
    ]


def plot_curves(curves: pd.DataFrame, names: Sequence[str], monitor: str, path: str) -> None:
    """Plots validation metrics over the epochs, from a row per evaluation; the bands are ranges of the seeds.

    The lines end at the first seed that stops early. The panels fit the curves after `SHOWN_FROM`.
    """
    names = selected_metrics(names, monitor)
    panels = list(curves["panel"].unique())
    styles = style.loss_styles(curves["loss"].unique())
    figure = Figure(figsize=(4.2 * len(panels), 0.4 + 2.8 * len(names)))
    axes = figure.subplots(len(names), len(panels), sharex="col", sharey="row", squeeze=False)
    for (loss, panel), cell in curves.groupby(["loss", "panel"], sort=False):
        last_step = cell.groupby("seed")["step"].max().min()
        evaluations = cell[cell["step"] <= last_step].groupby("epochs")
        color, dashes = styles[loss]
        for axis, name in zip(axes[:, panels.index(panel)], names, strict=True):
            seeds = evaluations[name].agg(["mean", "min", "max"])
            axis.plot(seeds.index, seeds["mean"], color=color, linestyle=dashes, label=loss)
            axis.fill_between(seeds.index, seeds["min"], seeds["max"], color=color, alpha=0.12, linewidth=0)
    late = curves[curves["epochs"] >= SHOWN_FROM * curves["epochs"].max()]
    for row, name in zip(axes, names, strict=True):
        row[0].set_ylabel(f"Validation {metric_heading(name)}")
        values = late[name][np.isfinite(late[name])]
        if len(values) and values.min() < values.max():
            margin = 0.05 * (values.max() - values.min())
            row[0].set_ylim(values.min() - margin, values.max() + margin)
    for axis in axes.flat:
        style.finish(axis)
    for axis, panel in zip(axes[0], panels, strict=True):
        axis.set_title(panel, fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("Epochs")
    figure.suptitle("The axes are cut where the first epochs are worse.", fontsize=9, color="0.35")
    save_with_legend(figure, axes[0, 0], path)

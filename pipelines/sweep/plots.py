"""Plots of a sweep: differences from the baseline, test metrics by cut-off, and validation curves."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rank4class.losses.metrics.sets import stated_coverage
from rank4class.pipelines.evaluation.evaluator import metric_heading
from rank4class.pipelines.reporting import style
from rank4class.pipelines.reporting.plots import save_with_legend
from rank4class.pipelines.sweep import grid_tables

MAX_SINGLE_CUTOFFS = 2  # cut-offs of one metric that are still plotted in separate panels
SHOWN_FROM = 0.5  # fraction of the epochs after which the curves fit into their panels


def split_metrics(names: Iterable[str]) -> tuple[list[str], dict[str, list[int]]]:
    """Splits metrics into those with a separate panel and those plotted by cut-off, name -> cut-offs.

    >>> split_metrics(["mrr", "ndcg", "ndcg@1", "ndcg@5", "ndcg@10", "map@5"])
    (['mrr', 'ndcg', 'map@5'], {'ndcg': [1, 5, 10]})
    """
    names = list(names)
    cutoffs: dict[str, list[int]] = {}
    for name in names:
        base, at, cutoff = name.partition("@")
        if at:
            cutoffs.setdefault(base, []).append(int(cutoff))
    by_cutoff = {base: sorted(ks) for base, ks in cutoffs.items() if len(ks) > MAX_SINGLE_CUTOFFS}
    return [name for name in names if "@" not in name or name.partition("@")[0] not in by_cutoff], by_cutoff


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
            y, color = names.index(grid_tables.joined(one["name"])), colors[one["name"]["loss"]][0]
            low, high = one["interval"]
            is_separable = one["verdict"] in ("better", "worse")
            axis.plot([low, high], [y, y], color=color, linewidth=1.5)
            marker = style.marker(one["name"].get("interaction", "dot"))
            axis.plot(one["difference"], y, marker, color=color, mfc=color if is_separable else "white", ms=7)
        definition = summary["metrics"][metric]
        axis.set_title(
            f"{grid_tables.heading(metric, summary)}\n{_direction(definition)} is better", fontsize=10
        )
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


def plot_cutoffs(summary: Mapping[str, Any], cutoffs: dict[str, list[int]], path: str) -> None:
    """Plots test metrics with their intervals by their cut-offs, name -> cut-offs: a line per cell."""
    cells = summary["cells"]
    names = [cell["name"] for cell in cells]
    shows_interaction = len({name["interaction"] for name in names}) > 1
    styles = style.loss_styles(dict.fromkeys(name["loss"] for name in names))
    figure = Figure(figsize=(7.0 * len(cutoffs), 4.5))
    axes = figure.subplots(1, len(cutoffs), squeeze=False)
    for axis, (base, ks) in zip(axes[0], cutoffs.items(), strict=True):
        definition = summary["metrics"][f"{base}@{ks[0]}"]
        for i, (cell, name) in enumerate(zip(cells, names, strict=True)):
            entries = [cell["metrics"][f"{base}@{k}"] for k in ks]
            means = np.array([entry["mean"] for entry in entries], float)
            ends = np.array([entry["interval"] or [entry["mean"]] * 2 for entry in entries], float).T
            ends = np.clip(ends, 0.0, 100.0 if definition["percent"] else np.inf)
            color, dashes = styles[name["loss"]]
            axis.errorbar(
                np.array(ks) + 0.5 * ((i + 0.5) / len(cells) - 0.5),  # side by side
                means,
                yerr=np.nan_to_num(np.abs(ends - means)),
                marker=style.marker(name["interaction"]),
                ms=5,
                color=color,
                linestyle=dashes,
                capsize=2,
                elinewidth=0.8,
                label=grid_tables.joined(name) if shows_interaction else name["loss"],
            )
        is_of_sets = stated_coverage(f"{base}@{ks[0]}") is not None
        heading = metric_heading(f"{base}@{ks[0]}").replace(f"@{ks[0]}", "@P" if is_of_sets else "@K")
        axis.set_title(f"{heading}, {_direction(definition)} is better", fontsize=10)
        axis.set_xlabel("P, the stated coverage (%)" if is_of_sets else "K")
        axis.set_xticks(ks)
        style.finish(axis, "y")
    save_with_legend(figure, axes[0, 0], path)


def selected_metrics(names: Sequence[str], monitor: str) -> list[str]:
    """Returns the metrics to draw: of those at several K, the monitor, or that of the largest K.

    >>> names = ["ndcg", "ndcg@1", "ndcg@3", "ndcg@5"]
    >>> selected_metrics(names, "ndcg"), selected_metrics(names, "ndcg@1")
    (['ndcg', 'ndcg@5'], ['ndcg', 'ndcg@1'])
    """
    single, by_cutoff = split_metrics(names)
    monitored, at_k, _ = monitor.partition("@")
    return [
        *single,
        *(monitor if at_k and base == monitored else f"{base}@{ks[-1]}" for base, ks in by_cutoff.items()),
    ]


def plot_curves(curves: pd.DataFrame, names: Sequence[str], monitor: str, path: str) -> None:
    """Plots validation metrics over the epochs, from a row per evaluation; the bands are ranges of the seeds.

    The lines end at the first seed that stops early. The panels fit the curves after `SHOWN_FROM`.
    """
    names, interactions = selected_metrics(names, monitor), list(curves["interaction"].unique())
    styles = style.loss_styles(curves["loss"].unique())
    figure = Figure(figsize=(4.2 * len(interactions), 0.4 + 2.8 * len(names)))
    axes = figure.subplots(len(names), len(interactions), sharex="col", sharey="row", squeeze=False)
    for (loss, interaction), cell in curves.groupby(["loss", "interaction"], sort=False):
        last_step = cell.groupby("seed")["step"].max().min()
        evaluations = cell[cell["step"] <= last_step].groupby("epochs")
        color, dashes = styles[loss]
        for axis, name in zip(axes[:, interactions.index(interaction)], names, strict=True):
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
    for axis, interaction in zip(axes[0], interactions, strict=True):
        axis.set_title(interaction, fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("Epochs")
    figure.suptitle("The axes are cut where the first epochs are worse.", fontsize=9, color="0.35")
    save_with_legend(figure, axes[0, 0], path)


def _direction(definition: Mapping[str, Any]) -> str:
    return "higher" if definition["higher_is_better"] else "lower"

"""Plots of a sweep: test metrics, test metrics by cut-off, and validation curves."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rank4class import losses
from rank4class.pipelines.evaluation.evaluator import metric_heading
from rank4class.pipelines.reporting.plots import COLORS, save_with_legend

MAX_SINGLE_CUTOFFS = 2  # cut-offs of one metric that are still plotted as metrics of their own


def split_metrics(names: Iterable[str]) -> tuple[list[str], dict[str, list[int]]]:
    """Splits metrics into those with a panel of their own and those plotted by cut-off, name -> cut-offs.

    >>> split_metrics(["mrr", "ndcg@1", "ndcg@5", "ndcg@10", "map@5"])
    (['mrr', 'map@5'], {'ndcg': [1, 5, 10]})
    """
    names = list(names)
    cutoffs: dict[str, list[int]] = {}
    for name in names:
        base, at, cutoff = name.partition("@")
        if at:
            cutoffs.setdefault(base, []).append(int(cutoff))
    by_cutoff = {base: sorted(ks) for base, ks in cutoffs.items() if len(ks) > MAX_SINGLE_CUTOFFS}
    return [name for name in names if name.partition("@")[0] not in by_cutoff], by_cutoff


def figures_frame(summary: Mapping[str, Any]) -> pd.DataFrame:
    """Returns a row per loss, interaction and metric, which are its index, of a `grid_summary.summarize`.

    Its columns are "values" of the seeds, "mean", "low" and "high"; NaN without an interval.
    """
    rows = []
    for cell, metric in itertools.product(summary["cells"], summary["metrics"]):
        entry = cell["metrics"][metric]
        low, high = entry["interval"] or (None, None)
        figures = {"values": entry["values"], "mean": entry["mean"], "low": low, "high": high}
        rows.append({**cell["name"], "metric": metric, **figures})
    frame = pd.DataFrame(rows).set_index(["loss", "interaction", "metric"])
    return frame.astype(dict.fromkeys(["mean", "low", "high"], float))


def plot_metrics(figures: pd.DataFrame, names: Sequence[str], path: str) -> None:
    """Plots test metrics of every cell with their intervals, one panel per metric.

    Args:
      figures: see `figures_frame`.
      names: names of the metrics to plot.
      path: of the picture.
    """
    loss_names, interactions = (figures.index.unique(axis) for axis in ("loss", "interaction"))
    figure = Figure(figsize=(4.2 * len(names), 1.2 + 0.75 * len(loss_names)))
    axes = figure.subplots(1, len(names), sharey=True, squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for (i, interaction), (j, loss) in itertools.product(enumerate(interactions), enumerate(loss_names)):
            cell = figures.loc[loss, interaction, name]
            y = j + (i - (len(interactions) - 1) / 2) * 0.2
            color = COLORS[i % len(COLORS)]
            axis.scatter(
                cell["values"], [y] * len(cell["values"]), s=9, color=color, alpha=0.35, linewidths=0
            )
            axis.errorbar(
                cell["mean"],
                y,
                xerr=_error_bars(name, cell["mean"], cell["low"], cell["high"]).reshape(2, 1),
                fmt="o",
                ms=6,
                color=color,
                capsize=3,
                label=interaction if j == 0 else None,
            )
        axis.set_title(f"{metric_heading(name)}, {_direction(name)} is better", fontsize=10)
        axis.set_yticks(range(len(loss_names)), loss_names)
        axis.grid(axis="x", alpha=0.3)
    axes[0, 0].invert_yaxis()
    save_with_legend(figure, axes[0, 0], path)


def plot_cutoffs(figures: pd.DataFrame, cutoffs: dict[str, list[int]], path: str) -> None:
    """Plots test metrics by their cut-offs with their intervals: a line per cell, a panel per metric.

    Args:
      figures: see `figures_frame`.
      cutoffs: name -> the metric's cut-offs.
      path: of the picture.
    """
    cells = dict(list(figures.groupby(["loss", "interaction"], sort=False)))
    shows_interaction = len({interaction for _, interaction in cells}) > 1
    figure = Figure(figsize=(7.0 * len(cutoffs), 4.5))
    axes = figure.subplots(1, len(cutoffs), squeeze=False)
    for axis, (base, ks) in zip(axes[0], cutoffs.items(), strict=True):
        names = [f"{base}@{k}" for k in ks]
        for i, ((loss, interaction), cell) in enumerate(cells.items()):
            curve = cell.droplevel(["loss", "interaction"]).loc[names]
            axis.errorbar(
                np.array(ks) + 0.5 * ((i + 0.5) / len(cells) - 0.5),  # side by side
                curve["mean"],
                yerr=_error_bars(names[0], curve["mean"], curve["low"], curve["high"]),
                marker="o",
                ms=4,
                color=COLORS[i % len(COLORS)],
                capsize=2,
                elinewidth=0.8,
                label=f"{loss}, {interaction}" if shows_interaction else loss,
            )
        heading = metric_heading(names[0]).replace(f"@{ks[0]}", "@K")
        axis.set_title(f"{heading}, {_direction(names[0])} is better", fontsize=10)
        axis.set_xlabel("K")
        axis.set_xticks(ks)
        axis.grid(axis="y", alpha=0.3)
    save_with_legend(figure, axes[0, 0], path)


def plot_curves(curves: pd.DataFrame, names: Sequence[str], monitor: str, path: str) -> None:
    """Plots validation metrics over the epochs, mean and range of the seeds.

    A row of panels is a metric, a column an interaction. Of a metric with many cut-offs only the monitored
    one is drawn, or the last. Early stopping ends some seeds before others: a curve ends with the first.

    Args:
      curves: a row per run and evaluation, with "loss", "interaction", "seed", "step", "epochs" and metrics.
      names: names of all metrics.
      monitor: name of the monitored metric.
      path: of the picture.
    """
    single, by_cutoff = split_metrics(names)
    monitored = monitor.partition("@")[0]
    shown = [monitor if base == monitored else f"{base}@{ks[-1]}" for base, ks in by_cutoff.items()]
    names, interactions = [*single, *shown], list(curves["interaction"].unique())
    colors = dict(zip(curves["loss"].unique(), itertools.cycle(COLORS), strict=False))
    figure = Figure(figsize=(4.2 * len(interactions), 0.4 + 3.0 * len(names)))
    axes = figure.subplots(len(names), len(interactions), sharex="col", sharey="row", squeeze=False)
    for (loss, interaction), cell in curves.groupby(["loss", "interaction"], sort=False):
        last_step = cell.groupby("seed")["step"].max().min()
        evaluations = cell[cell["step"] <= last_step].groupby("epochs")
        for axis, name in zip(axes[:, interactions.index(interaction)], names, strict=True):
            seeds = evaluations[name].agg(["mean", "min", "max"])
            axis.plot(seeds.index, seeds["mean"], color=colors[loss], label=loss)
            axis.fill_between(
                seeds.index, seeds["min"], seeds["max"], color=colors[loss], alpha=0.15, linewidth=0
            )
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    for axis, interaction in zip(axes[0], interactions, strict=True):
        axis.set_title(interaction, fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("epochs")
    for axis, name in zip(axes[:, 0], names, strict=True):
        axis.set_ylabel(f"validation {metric_heading(name)}")
    save_with_legend(figure, axes[0, 0], path)


def _error_bars(name, mean, low, high):
    """Returns the lengths of error bars, `[2, ...]`; an interval of percentages ends at 0 and 100."""
    highest = 100.0 if losses.get_metric(name).percent else np.inf
    return np.nan_to_num(np.abs(np.clip(np.stack([low, high]), 0.0, highest) - np.asarray(mean)))


def _direction(name):
    return "higher" if losses.get_metric(name).higher_is_better else "lower"

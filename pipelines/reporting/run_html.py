"""A run as HTML, which a notebook shows."""

import html
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from tabulate import tabulate

from rank4class.pipelines.evaluation.evaluator import LIKELIHOOD, metric_heading
from rank4class.pipelines.reporting import page, tables
from rank4class.pipelines.reporting.style import BLUE, finish
from rank4class.pipelines.storage.run_directory import evaluations


def render(title: str, results: Mapping[str, Any] | None, history: pd.DataFrame, monitor: str) -> str:
    """Returns the metrics with their intervals, and the curve of the monitored metric, if there is one."""
    blocks = [f"<p>{html.escape(title)}</p>"]
    if results is None:
        blocks.append("<p>The training is not finished.</p>")
    else:
        header, *rows = tables.results_rows(evaluations(results))
        blocks.append(tabulate(rows, header, tablefmt="html", disable_numparse=True))
    if len(history) > 1:
        blocks.append(page.svg(curve(history, monitor, results["best_step"] if results else None)))
    return "\n".join(blocks)


def curve(history: pd.DataFrame, monitor: str, best_step: int | None) -> Figure:
    """Draws the values that select a model by step, or by the solver's strength, with a dot at the best."""
    if LIKELIHOOD in history:
        monitor = LIKELIHOOD
    figure = Figure(figsize=(4.6, 2.4), layout="constrained")
    axis = figure.subplots()
    x = "C" if "C" in history else "step"
    axis.plot(history[x], history[monitor], color=BLUE)
    best = history[history["step"] == best_step]
    axis.plot(best[x], best[monitor], "o", color=BLUE)
    axis.set(xlabel=x, ylabel=f"validation {metric_heading(monitor)}")
    if x == "C":
        axis.set_xscale("log")
    finish(axis)
    return figure

"""Tables of results, for a terminal and in Markdown."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from tabulate import SEPARATING_LINE, DataRow, Line, TableFormat, tabulate

from rank4class.pipelines.evaluation.comparison import Comparison
from rank4class.pipelines.evaluation.evaluator import metric_heading, metric_names
from rank4class.pipelines.storage import files

# tabulate's format "simple" widens each column by two blanks.
_NARROW = TableFormat(
    lineabove=None,
    linebelowheader=Line("", "-", "  ", ""),
    linebetweenrows=None,
    linebelow=None,
    headerrow=None,
    datarow=DataRow("", "  ", ""),
    padding=0,
    with_header_hide=None,
)


def text_table(rows: Sequence[Sequence[str]], align: Sequence[str] | None = None) -> str:
    """Returns rows of cells, the first of them the header, as text for a terminal.

    >>> print(text_table([["loss", "error"], ["mse", "12.5"], ["softmax", "9.75"]], ["left", "right"]))
    loss     error
    -------  -----
    mse       12.5
    softmax   9.75
    """
    header, *body = rows
    return _tabulate([header, SEPARATING_LINE, *body], align or ["left"] * len(header), tablefmt=_NARROW)


def markdown_table(rows: Sequence[Sequence[str]], align: Sequence[str] | None = None) -> str:
    r"""Returns rows of cells in Markdown; see `text_table`.

    >>> print(markdown_table([["class", "count"], ["a|b", "3"]], ["left", "right"]))
    | class   |   count |
    |:--------|--------:|
    | a\|b    |       3 |
    """
    header, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return _tabulate(body, align or ["left"] * len(header), tablefmt="pipe", headers=header)


def _tabulate(rows, align, **options):
    return tabulate(rows, colalign=align, disable_numparse=True, preserve_whitespace=True, **options)


def shortened(text: str, width: int) -> str:
    """Returns a text in one line of at most `width` characters.

    >>> shortened("a long  text", 8)
    'a long …'
    """
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def figure_alignment(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns "right" for each column of figures, except the first column, which holds names."""
    _, *others = zip(*rows[1:], strict=True)
    return ["left", *("right" if any(cell[:1].isdigit() for cell in column) else "left" for column in others)]


def results_table(summaries: dict[str, dict[str, Any]]) -> str:
    """Returns metrics with their intervals as text, and the `calibration_table`, from split -> summary."""
    return "\n\n".join(filter(None, [text_table(results_rows(summaries)), calibration_table(summaries)]))


def results_rows(summaries: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Returns the rows of the metrics in `results_table`."""
    summaries = {
        f"{split}{f', {part} classes' if part else ''}": one[part] if part else one
        for split, one in summaries.items()
        for part in ("", "seen", "unseen")
        if not part or part in one
    }
    rows = [["metric", *(f"{split} ({one['examples']:,} examples)" for split, one in summaries.items())]]
    for name in dict.fromkeys(name for one in summaries.values() for name in metric_names(one)):
        cells = (
            f"{one[name]:.2f}  {format_interval(one['intervals'][name])}" if name in one else "-"
            for one in summaries.values()
        )
        rows.append([metric_heading(name), *cells])
    return rows


def calibration_table(summaries: dict[str, dict[str, Any]]) -> str:
    """Returns the reliability before and after calibration as text; an empty text without a calibration."""
    calibrated = {split: one["calibration"] for split, one in summaries.items() if "calibration" in one}
    if not calibrated:
        return ""
    rows = [[next(iter(calibrated.values()))["parameters"], *calibrated]]
    headings = {"ece": "ece (%)", "nll": "nll", "aurc": "aurc (%)"}
    for name, when in itertools.product(headings, ("before", "after")):
        results = [calibration[when] for calibration in calibrated.values()]
        if all(name in one for one in results):
            rows.append([f"{headings[name]} {when}", *(_reliability_cell(one, name) for one in results)])
    if rows[-1][0] == "aurc (%) after":
        rows.append(
            ["aurc (%) optimal", *(f"{one['after']['aurc_optimal']:.3f}" for one in calibrated.values())]
        )
    return text_table(rows)


def _reliability_cell(reliability: dict[str, Any], name: str) -> str:
    """Returns a metric with its interval, or the calibration error with that of a calibrated model."""
    if expected := reliability.get(f"{name}_if_calibrated"):
        return f"{reliability[name]:.3f}  if calibrated {expected[0]:.3f} to {expected[1]:.3f}"
    return f"{reliability[name]:.3f}  {format_interval(reliability['intervals'][name], 3)}"


def unknown_inputs_line(summary: dict[str, Any]) -> str:
    """Returns the AUROCs of `unknown_inputs.evaluate` in one line."""
    areas = ", ".join(
        f"{summary[name]:.2f}% {format_interval(summary['intervals'][name])} by {name.replace('_', ' ')}"
        for name in ("maximum_probability", "energy")
    )
    counts = f"{summary['unknown']:,} unknown from {summary['known']:,} known examples (validation)"
    return f"AUROC of telling {counts}: {areas}"


def unknown_line(summary: dict[str, Any]) -> str:
    """Returns the measures of `detector.measure` in one line."""
    values = {
        name: f"{summary[name]:.2f}% {format_interval(interval)}"
        for name, interval in summary["intervals"].items()
    }
    line = f"{values['false_alarms']} of {summary['known']:,} known inputs are called unknown"
    line = f"Unknown inputs at {summary['rate']:g}%: {line}"
    if not summary["unknown"]:
        return line
    return f"{line}, {values['recall']} of {summary['unknown']:,} unknown ones, AUROC {values['auroc']}"


def format_interval(interval: Sequence[float] | None, digits: int = 2) -> str:
    """Returns an interval in brackets."""
    return "no interval" if interval is None else f"[{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"


def sets_line(sets: dict[str, Any], percent: int = 90) -> str:
    """Returns the coverage and the mean size of prediction sets, from "sets" of a summary, in one line."""
    share, mean = (
        f"{sets[name]:.2f}{unit} {format_interval(sets['intervals'][name])}"
        for name, unit in ((f"set_coverage@{percent}", "%"), (f"set_size@{percent}", ""))
    )
    return f"Prediction sets ({sets['score']}) for {percent}%: coverage {share}, mean size {mean}"


def sets_table(table: pd.DataFrame, covered: str, size: str) -> str:
    """Returns a `per_class.by_set_size` as text; a gap is the coverage minus the stated one."""
    columns = {"sets": table["class"], "examples": table["examples"].map("{:,}".format)}
    columns["share (%)"] = table["share (%)"].map("{:.1f}".format)
    columns["coverage (%)"] = _means_with_intervals(table, f"{covered} (%)", covered)
    columns["gap"] = (table[f"{covered} (%)"] - int(covered.partition("@")[2])).map(signed)
    columns["mean size"] = table[size].map("{:.2f}".format)
    return _column_table(columns, ["left", *["right"] * 5])


def class_table(table: pd.DataFrame, metrics: Iterable[str]) -> str:
    """Returns rows of a `per_class.per_class` table, with these metrics, as text for a terminal."""
    columns = {"class": table["class"], "examples": table["examples"].map("{:,}".format)}
    for metric in metrics:
        columns[metric_heading(metric)] = _means_with_intervals(table, metric_heading(metric), metric)
    columns["predicted"] = table["predicted"].map("{:,}".format)
    columns["precision (%)"] = _means_with_intervals(table, "precision (%)", "precision")
    if "f1 (%)" in table:
        columns["decided"] = table["decided"].map("{:,}".format)
        for name in ("decided recall (%)", "f1 (%)"):
            columns[name] = ["-" if np.isnan(value) else f"{value:.2f}" for value in table[name]]
    confused = table[["most confused with", "most confused count"]].itertuples(index=False)
    columns["most confused with"] = [f"{name} ({count:,})" if count else "-" for name, count in confused]
    return _column_table(columns, ["left", *["right"] * (len(columns) - 2), "left"])


def _means_with_intervals(table, heading, name):
    def cell(mean, low, high):
        if np.isnan(mean):
            return "-"
        return f"{mean:.2f}" if np.isnan(low) else f"{mean:.2f} {format_interval((low, high))}"

    return list(map(cell, table[heading], table[f"{name} low"], table[f"{name} high"]))


def example_table(table: pd.DataFrame) -> str:
    """Returns a `worst_examples.frame` of examples of one class as text for a terminal."""
    columns = {
        name: [files.printable(cell) for cell in table[name].fillna("-")]
        for name in ("example", "class", "predicted")
    }
    columns["rank"] = table["rank"].map("{:.0f}".format).tolist()
    for name in ("probability", "predicted probability"):
        if name in table:
            columns[name] = table[name].map("{:.4f}".format).tolist()
    return _column_table(columns, ["left"] * 3 + ["right"] * (len(columns) - 3))


def _column_table(columns, align):
    return text_table([list(columns), *zip(*columns.values(), strict=True)], align)


def comparison_rows(comparisons: Iterable[Comparison]) -> list[list[str]]:
    """Returns the rows of a table on comparisons of a run A, the first, and a run B."""
    rows = [["metric", "A", "B", "B - A  [95%]", "A better", "B better", "equal", "p", ""]]
    for comparison in comparisons:
        low, high = comparison.interval
        interval = "no interval" if np.isnan(low) else f"[{signed(low)}, {signed(high)}]"
        difference = "-" if np.isnan(comparison.difference) else signed(comparison.difference)
        means = f"{comparison.first:.2f}", f"{comparison.second:.2f}", f"{difference}  {interval}"
        counts = comparison.first_better, comparison.second_better, comparison.equal
        p_value = "-" if np.isnan(comparison.p_value) else f"{comparison.p_value:.3f}"
        cells = *means, *map("{:,}".format, counts), p_value, comparison.conclusion()
        rows.append([metric_heading(comparison.metric), *cells])
    return rows


def signed(value: float) -> str:
    """Returns a difference with its sign.

    >>> signed(0.5), signed(-0.001)
    ('+0.50', '0.00')
    """
    return f"{value:+.2f}" if round(value, 2) else "0.00"

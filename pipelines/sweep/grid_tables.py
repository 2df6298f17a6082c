"""The tables and the report of a grid, from its summary; see `grid_summary.summarize`."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rank4class.pipelines.reporting import tables
from rank4class.pipelines.sweep import inference

MARK = "†"  # of the cells that are not separable from the best
_CALIBRATION = (
    "Probabilities on the test set: expected calibration error (ece, percent) and negative log-likelihood "
    "(nll), before and after the calibration, with 95% intervals over the seeds, or over the examples of one "
    "seed. Lower is better."
)


def cells_table(summary: Mapping[str, Any], digits: int = 2) -> list[list[str]]:
    """Returns a row per cell: its name, and each metric's mean and interval, with daggers."""
    axes = _axes(summary)
    separable = _separable(summary)
    rows = [[*axes, *summary["metrics"]]]
    for cell in summary["cells"]:
        rows.append(_name(cell, axes))
        for metric, entry in cell["metrics"].items():
            marks = metric in separable and cell["name"] in summary["best"][metric]["not_separable"]
            mean, *ends = (
                "not finite" if value is None else f"{value:.{digits}f}"
                for value in (entry["mean"], *(entry["interval"] or ()))
            )
            interval = f"[{', '.join(ends)}]" if ends else "no interval"
            rows[-1].append(f"{mean}{MARK if marks else ''} {interval}")
    return rows


def comparisons_table(summary: Mapping[str, Any]) -> list[list[str]]:
    """Returns a row per comparison: difference to the baseline, interval, p-values and verdict."""
    axes = _axes(summary)
    rows = [["metric", *axes, "difference", "95% interval", "p", "adjusted p", "verdict"]]
    for one in summary["comparisons"]:
        equivalence = one["equivalence_p_value"]
        is_small = equivalence is not None and equivalence <= summary["level"]
        within = ", within the margin" if is_small and one["verdict"] in ("better", "worse") else ""
        rows.append(
            [
                heading(one["metric"], summary),
                *_name(one, axes),
                "-" if one["difference"] is None else tables.signed(one["difference"]),
                "[{}, {}]".format(*map(tables.signed, one["interval"])) if one["interval"] else "no interval",
                _p_value(one["p_value"]),
                _p_value(one["adjusted_p_value"]),
                one["verdict"] + within,
            ]
        )
    return rows


def verdict(summary: Mapping[str, Any]) -> str:
    """Returns the verdict of a grid in Markdown: better, worse and equivalent cells by metric."""
    if not summary["comparisons"]:
        return "\n".join(
            f"- {metric}: the best is {joined(entry['name'])}; {len(entry['not_separable'])} of "
            f"{len(summary['cells'])} cells are not separable from it."
            for metric, entry in summary["best"].items()
        )
    baseline = joined(summary["baseline"])
    lines = []
    for metric in summary["metrics"]:
        names: dict[str, list[str]] = {}
        for one in _of_metric(summary, metric):
            names.setdefault(one["verdict"], []).append(joined(one["name"]))
        rest = names.pop("not separable", [])
        parts = [f"{each} {len(names[each])} ({'; '.join(names[each])})" for each in sorted(names)]
        if parts:
            lines.append(f"- {metric}: {', '.join([*parts, f'not separable {len(rest)}'])}")
    if lines:
        return "\n".join([f"**Cells compared with {baseline}:**\n", *lines])
    metrics = ", ".join(summary["metrics"])
    return f"**No cell is separable from {baseline} by {metrics}: each difference may be chance.**"


def power_table(summary: Mapping[str, Any]) -> list[list[str]]:
    """Returns a row per metric on the differences that a sweep finds; see `power_heading`."""
    found = f"found with {len(summary['cells'][0]['seeds'])} seeds"
    many = f"with {inference.MOST_SEEDS:,} seeds"
    margin = f"seeds for {summary['margin']:g}"
    rows = [["metric", found, many, margin, "largest difference", "its seeds"]]
    for metric, definition in summary["metrics"].items():
        ones = [one for one in _of_metric(summary, metric) if "least" in one.get("power", ())]
        known = [one for one in ones if one["difference"] is not None]
        if not known:
            continue
        largest = max(known, key=lambda one: abs(one["difference"]))
        least, of_many, seeds = (
            max(one["power"][key] or math.inf for one in ones)
            for key in ("least", "least_of_many", "margin_seeds")
        )
        rows.append(
            [
                heading(metric, summary),
                *("unknown" if math.isinf(value) else f"{value:.2f}" for value in (least, of_many)),
                _seeds(seeds) if definition["percent"] else "-",
                f"{tables.signed(largest['difference'])} ({joined(largest['name'])})",
                _seeds(largest["power"]["seeds"] or math.inf),
            ]
        )
    return rows


def _of_metric(summary: Mapping[str, Any], metric: str) -> list[Mapping[str, Any]]:
    return [one for one in summary["comparisons"] if one["metric"] == metric]


def _seeds(count: float) -> str:
    return f"over {inference.MOST_SEEDS:,}" if math.isinf(count) else f"{count:,}"


def power_heading(summary: Mapping[str, Any]) -> str:
    """Returns sentences on `power_table`."""
    count = len(summary["comparisons"])
    return (
        "How many seeds would decide it? The table has the least true difference, of any cell, that a sweep "
        f"finds in {inference.POWER:.0%} of cases. It assumes the observed variances, and the "
        f"level {summary['level'] / (2 * count):.2g} of the first of {count} comparisons. The other columns "
        f"have the seeds that find a difference of {summary['margin']:g} points, and the largest observed "
        "one. More seeds reduce the variance of the training alone: where they do not suffice, use more test "
        "examples."
    )


def undecided(summary: Mapping[str, Any]) -> str:
    """Returns sentences on the seeds and examples that would separate a difference; empty without open ones.

    Each is on the largest open difference of a metric, from the baseline or without one from the best. See
    `inference.detectable` and `inference.detectable_with_examples` for the approximation.
    """
    rows = [one for one in summary["comparisons"] if one["verdict"] == "not separable"]
    if not summary["comparisons"]:
        rows = [one["largest_open"] for one in summary["best"].values() if "largest_open" in one]
    sentences = []
    for metric in summary["metrics"]:
        ones = [one for one in rows if one["metric"] == metric and one.get("power")]
        if ones:
            sentences.append(_needed(max(ones, key=lambda one: abs(one["difference"])), summary))
    if sentences:
        sentences.append(
            "In 80% of cases a sweep of that size separates it, if it and the variances are as observed."
        )
    return " ".join(sentences)


def _needed(one: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    unit = " points" if summary["metrics"][one["metric"]]["percent"] else ""
    difference = (
        f"a difference of {abs(one['difference']):.2f}{unit} by {one['metric']} ({joined(one['name'])})"
    )
    if not one["difference"]:
        return f"No number of seeds or test examples separates {difference}."
    power = one["power"]
    counts = []
    if "seeds" in power:
        counts.append(
            f"some {power['seeds']:,} seeds" if power["seeds"] else f"over {inference.MOST_SEEDS:,} seeds"
        )
    if "examples" in power:
        rounded = float(format(power["examples"] or 0, ".2g"))
        many = f"over {inference.MOST_TIMES:,} times the test examples"
        counts.append(f"some {rounded:,.0f} test examples" if rounded else many)
    share = power.get("seeds_share")
    end = "" if share is None else f"; {share:.0%} of the variance is over the seeds"
    return f"To separate {difference}, {' or '.join(counts)} would be needed{end}."


COMPARE = (
    "`rank4class compare` may separate two runs where this report does not. It tests one difference, without "
    "a correction for other comparisons, and over the test examples alone. Its verdict is on these two "
    "trained models: other seeds may reverse it."
)


def explanation(summary: Mapping[str, Any]) -> str:
    """Returns sentences on the figures and the marks of `cells_table`."""
    units = _units(summary)
    text = "Test set, fractions in percent; "
    if units == "examples":
        text += "one seed, with the 95% interval over the examples. All verdicts are on these runs alone."
    else:
        over = "the seeds alone: there are no values per example that all runs share"
        over = over if units == "seeds" else units
        text += f"mean over {len(summary['cells'][0]['seeds'])} seeds and its 95% interval over {over}."
        text += _variance([metric for metric, freedom in summary["pooled"].items() if freedom])
    separable = _separable(summary)
    if separable:
        text += f" {MARK} marks the cells that are not separable from the best."
    if others := [metric for metric in summary["best"] if metric not in separable]:
        text += f" By {', '.join(others)}, no cell is separable from the best."
    return text


def _variance(together: Sequence[str]) -> str:
    """Returns a sentence on the variance over the seeds, which the rows share by some metrics."""
    if not together:
        return " Each row has its own variance over the seeds."
    return f" By {', '.join(together)}, the rows share one variance over the seeds."


def _units(summary: Mapping[str, Any]) -> str:
    """Returns which dimensions the intervals are over."""
    if len(summary["cells"][0]["seeds"]) == 1:
        return "examples"
    entries = [entry for cell in summary["cells"] for entry in cell["metrics"].values()]
    return "seeds" if all(entry["examples"] is None for entry in entries) else "seeds and examples"


def _separable(summary: Mapping[str, Any]) -> list[str]:
    """Returns the metrics by which a cell is separable from the best."""
    best = summary["best"].items()
    return [metric for metric, entry in best if len(entry["not_separable"]) < len(summary["cells"])]


def best_by_chance(summary: Mapping[str, Any]) -> str:
    """Returns a sentence on the expected best of equal cells; an empty text for a single cell."""
    gains = ", ".join(
        f"{'an unknown difference' if one['expected_gain'] is None else format(one['expected_gain'], '.2f')} "
        f"({metric})"
        for metric, one in summary["best"].items()
    )
    start = f"The best of {len(summary['cells'])} equal cells is expected to be better than their mean"
    return f"{start} by chance alone: by {gains}." if gains else ""


def comparisons_heading(summary: Mapping[str, Any]) -> str:
    """Returns sentences on `comparisons_table`."""
    others = ", ".join(name for name, one in summary["metrics"].items() if not one["percent"])
    seeds = len(summary["cells"][0]["seeds"])
    pooled = {one["metric"] for one in summary["comparisons"] if (one["freedom"] or 0) > seeds - 1}
    variance = _variance([metric for metric in summary["metrics"] if metric in pooled]) if seeds > 1 else ""
    return (
        f"Differences from {joined(summary['baseline'])}, paired over {_units(summary)}. A cell is better "
        f"or worse if its adjusted p-value is at most {summary['level']:g}: Holm's for all "
        f"{len(summary['comparisons'])} comparisons, doubled as the best cells are a second family. It is "
        f"equivalent if a difference of {summary['margin']:g} percentage points is ruled out"
        f"{f'; {others} has no such margin' if others else ''}.{variance}"
    )


def text(summary: Mapping[str, Any]) -> str:
    """Returns the tables of a summary for a terminal."""
    blocks = _blocks(summary, tables.text_table)
    return "\n\n".join(block if "\n" in block else textwrap.fill(block, 100) for block in blocks)


def _blocks(summary: Mapping[str, Any], table: Callable[[list[list[str]]], str]) -> list[str]:
    """Returns the tables of a summary, as `table` formats them, each after the sentences on it."""
    blocks = [explanation(summary), table(cells_table(summary)), best_by_chance(summary)]
    if summary["comparisons"]:
        blocks += [comparisons_heading(summary), table(comparisons_table(summary))]
    return list(filter(None, blocks))


def render(summary: Mapping[str, Any], sections: Sequence[str] = (), opening: Sequence[str] = ()) -> str:
    """Returns the report of a grid in Markdown: title, opening, tables, other sections and notes."""
    title = f"# {summary['title']}" if "title" in summary else ""
    blocks = [title, *opening, *_blocks(summary, tables.markdown_table)]
    if "calibration" in summary:
        blocks += [_CALIBRATION, tables.markdown_table(cells_table(summary["calibration"], digits=3))]
    notes = "\n".join(f"- {note}" for note in summary.get("notes", ()))
    return "\n\n".join(filter(None, [*blocks, *sections, notes])) + "\n"


def _axes(summary: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(axis for cell in summary["cells"] for axis in cell["name"]))


def _name(entry: Mapping[str, Any], axes: Sequence[str]) -> list[str]:
    return [entry["name"].get(axis, "-") for axis in axes]


def heading(metric: str, summary: Mapping[str, Any]) -> str:
    """Returns the name of a metric with its unit."""
    return f"{metric} (%)" if summary["metrics"][metric]["percent"] else metric


def joined(name: Mapping[str, str]) -> str:
    """Returns the name of a cell."""
    return ", ".join(name.values())


def _p_value(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value >= 0.001 else "< 0.001"

"""Pages that are rendered from results: `results.md`, and `rank4class_cells.md` with Rank4Class's 270 cells.

A hook of MkDocs loads this file in the environment of the documentation: it imports the standard library.
"""

import csv
import importlib
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

Results = Mapping[str, Mapping[str, Any]]  # name -> content of a result file
FOLDER = pathlib.Path(__file__).parent
GRIDS = tuple(f"rank4class/table{number}" for number in range(7, 13))  # 15 cells and 3 metrics each
_INTRODUCTION = """# Results

Each section has the figures of an experiment: the mean over its seeds on the test set, fractions in percent,
with 95% intervals. They are over seeds and examples if all runs share values per example. Where each seed
draws another split of the same examples, the variance over the seeds is multiplied by 1 + r times their
number, with the ratio r of test to training examples (Nadeau and Bengio's correction). The guide to tuning
explains when cells share their variance over the seeds.

- † marks the cells that are not separable from the best. A column without it has no cell that is.
- Differences from the baseline are paired. A cell is better or worse if its adjusted p-value is at most 0.05:
  Holm's for all comparisons of the section, doubled as the best cells are a second family. It is equivalent
  if a difference of 0.5 percentage points is ruled out, which needs a metric in percent.

The commands need `--workdir=FOLDER` too, and `--data=FOLDER` or `--checkpoint=WEIGHTS` where
`rank4class reproduce --list` names data or weights. All trainings of this page, with those of the searches,
took {hours:.1f} hours on one or two processor cores."""


def render(docs: str | os.PathLike) -> dict[str, str]:
    """Returns the pages of a folder with `results/` and `figures/reanalysis.json`, file name -> Markdown."""
    results = read_all(os.path.join(docs, "results"))
    reanalysis = json.loads(pathlib.Path(docs, "figures", "reanalysis.json").read_text())
    return {"results.md": results_page(results), "rank4class_cells.md": cells_page(results, reanalysis)}


def read_all(folder: str | os.PathLike) -> dict[str, dict[str, Any]]:
    """Returns the results in a folder, by name; raises ValueError if a file has another name."""
    all_results = {}
    for path in sorted(pathlib.Path(folder).rglob("*.json")):
        result = json.loads(path.read_text())
        name = path.relative_to(folder).with_suffix("").as_posix()
        if result.get("name") != name:
            raise ValueError(f"{path}: name={result.get('name')!r}: not the name of the file. Rename one.")
        all_results[name] = result
    return all_results


def results_page(results: Results) -> str:
    """Returns the page of all results."""
    hours = sum(result["seconds"] for result in results.values()) / 3600
    sections = itertools.chain.from_iterable(map(_section, results.values()))
    return "\n\n".join([_INTRODUCTION.format(hours=hours), *sections]) + "\n"


def _section(result: Mapping[str, Any]) -> Iterable[str]:
    yield f"## {result['title']}"
    yield _provenance(result)
    yield _units(result)
    yield _table(_cell_rows(result, digits=2))
    if gains := [(metric, best["expected_gain"]) for metric, best in result["best"].items()]:
        parts = ", ".join(f"{_number(gain, 2)} ({metric})" for metric, gain in gains)
        yield (
            f"The best of {len(result['cells'])} equal cells is expected to be better than their mean by "
            f"chance alone: by {parts}."
        )
    if minutes := result.get("minutes"):
        yield f"Minutes: {', '.join(f'{title} {value:.1f}' for title, value in minutes.items())}."
    if result["comparisons"]:
        yield f"Differences from {', '.join(result['baseline'].values())}:"
        yield _table(_comparison_rows(result))
    if "calibration" in result:
        yield "Calibration error (ece, percent) and log-likelihood (nll) before and after the calibration:"
        yield _table(_cell_rows(result["calibration"], digits=3))
    if result["tuned"]:
        yield "Values chosen on the validation set:"
        yield _table(_tuned_rows(result["tuned"]))
    if result.get("notes"):
        yield "\n".join(f"- {note}" for note in result["notes"])
    if rows := paper_table(result):
        yield "Beside the paper:"
        yield _table(rows)
    if curves := result.get("curves"):
        yield (
            f"Validation {curves[0]['metric']}, mean over the seeds: the best value up to each epoch, the "
            "best and the last of all evaluations, and the epoch of the best."
        )
        yield _table(_curve_rows(curves))


def _table(rows: Sequence[Sequence[str]]) -> str:
    header, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *body])


def _provenance(result: Mapping[str, Any]) -> str:
    examples = ", ".join(f"{count:,} {split}" for split, count in result["examples"].items())
    packages = ", ".join(f"{package} {version}" for package, version in result["packages"].items())
    claims = f", claims {', '.join(result['claims'])}" if result["claims"] else ""
    of_first = " of the first command" if len(result["commands"]) > 1 else ""
    commits = ", ".join(commit[:7] + "-dirty" * commit.endswith("-dirty") for commit in result["commits"])
    return (
        f"`rank4class reproduce --only={result['name']}`{claims}. Examples{of_first}: {examples}. "
        f"{result['seconds'] / 3600:.2f} hours of training; commit {commits}; "
        f"{', '.join([packages, *result.get('environment', [])])}."
    )


def _units(result: Mapping[str, Any]) -> str:
    """Returns a sentence on the dimensions that the intervals are over."""
    cells = result["cells"]
    seeds = len(result["cells"][0]["seeds"])
    alone = [m for m in result["metrics"] if any(cell["metrics"][m]["examples"] is None for cell in cells)]
    if seeds == 1:
        return "One seed, with intervals over the examples: all verdicts are on these runs alone."
    if len(alone) == len(result["metrics"]):
        text = f"{seeds} seeds, with intervals over the seeds alone."
    else:
        text = f"{seeds} seeds, with intervals over seeds and examples"
        text += f"; of {', '.join(alone)}, over the seeds alone." if alone else "."
    ratio = result.get("test_to_train")
    return text + (f" Each seed draws another split, with r = {ratio:.2f}." if ratio else "")


def _axes(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(axis for entry in entries for axis in entry["name"]))


def _name(entry: Mapping[str, Any], axes: Sequence[str]) -> list[str]:
    return [entry["name"].get(axis, "-") for axis in axes]


def _cell_rows(summary: Mapping[str, Any], digits: int) -> list[list[str]]:
    cells = summary["cells"]
    axes = _axes(summary["cells"])
    rows = [[*axes, *summary["metrics"]]]
    for cell in cells:
        rows.append(_name(cell, axes))
        for metric in summary["metrics"]:
            figure = cell["metrics"][metric]
            best = summary["best"].get(metric, {}).get("not_separable", cells)
            mark = "†" if len(best) < len(cells) and cell["name"] in best else ""
            interval = _interval(figure["interval"], lambda end: _number(end, digits))
            rows[-1].append(f"{_number(figure['mean'], digits)}{mark} {interval}")
    return rows


def _comparison_rows(result: Mapping[str, Any]) -> list[list[str]]:
    axes = _axes(result["cells"])
    rows = [["metric", *axes, "difference", "95% interval", "p", "adjusted p", "verdict"]]
    for one in result["comparisons"]:
        equivalence = one["equivalence_p_value"]
        small = equivalence is not None and equivalence <= result["level"]
        within = ", within the margin" if small and one["verdict"] in ("better", "worse") else ""
        rows.append(
            [
                heading(result, one["metric"]),
                *_name(one, axes),
                _signed(one["difference"]),
                _interval(one["interval"], _signed),
                _p_value(one["p_value"]),
                _p_value(one["adjusted_p_value"]),
                one["verdict"] + within,
            ]
        )
    return rows


def _number(value: float | None, digits: int) -> str:
    return "not finite" if value is None else f"{value:.{digits}f}"


def _signed(value: float | None) -> str:
    return "not finite" if value is None else f"{value:+.2f}" if round(value, 2) else "0.00"


def _interval(interval: Sequence[float | None] | None, form: Callable[[float | None], str]) -> str:
    return f"[{', '.join(map(form, interval))}]" if interval else "no interval"


def _p_value(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _tuned_rows(tuned: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Returns rows of the values that validation chose; of several splits of the data, all of them."""
    axes = _axes(tuned)
    fields = list(dict.fromkeys(field for entry in tuned for field in entry["fields"]))
    cells: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for entry in tuned:
        cells.setdefault(tuple(_name(entry, axes)), []).append(entry["fields"])
    rows = [[*axes, *fields]]
    for name, chosen in cells.items():
        values = [[_value(one.get(field, "-")) for one in chosen] for field in fields]
        rows.append([*name, *(", ".join(dict.fromkeys(field_values)) for field_values in values)])
    return rows


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _curve_rows(curves: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Returns rows of the best values up to the first, second, fourth, ... evaluation."""
    longest = max((curve["epochs"] for curve in curves), key=len)
    counts = [2**i for i in range(len(longest).bit_length())]
    epochs = (f"{longest[count - 1]:.0f}" for count in counts)
    rows = [[*curves[0]["name"], *epochs, "best", "last", "epoch of the best"]]
    for curve in curves:
        by_seed = [
            [*(max(v[:count]) for count in counts), max(v), v[-1], curve["epochs"][v.index(max(v))]]
            for v in curve["values"]
        ]
        means = (f"{fmean(column):.2f}" for column in zip(*by_seed, strict=True))
        rows.append([*curve["name"].values(), *means])
    return rows


def paper_table(result: Mapping[str, Any]) -> list[list[str]]:
    """Returns rows that put the figures of a result beside the paper's; none without a table of the paper.

    The interval of a difference is that of our mean: the papers report none of theirs.
    """
    rows = [["cell", "metric", "paper", "ours", "difference [95%]"]]
    for row in paper_values(result["paper"]) if result["paper"] else ():
        ours = find(result["cells"], name_of(row["cell"]))
        if figure := ours and ours["metrics"].get(row["metric"]):
            paper = float(row["value"])
            difference = "-"
            if figure["mean"] is not None:
                ends = [end - paper for end in figure["interval"] or ()]
                difference = f"{figure['mean'] - paper:+.2f} {_interval(ends, '{:+.2f}'.format)}"
            figures = [f"{paper:.2f}", _number(figure["mean"], 2), difference]
            rows.append([row["cell"], heading(result, row["metric"]), *figures])
    return rows if len(rows) > 1 else []


def paper_values(table: str) -> list[dict[str, str]]:
    """Returns the cells of the tables of papers whose names begin with another, or of that table.

    They are rows with "table", "cell", "metric" and "value".

    >>> [(row["cell"], row["value"]) for row in paper_values("sodeep/table1")]
    [('loss=handcrafted', '3.50'), ('loss=cnn', '1.20'), ('loss=lstm', '0.33')]
    """
    with open(FOLDER / "values.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if f"{row['table']}/".startswith(f"{table}/")]
    if not rows:
        raise ValueError(f"table={table!r}: no such table. values.csv lists the tables.")
    return rows


def name_of(cell: str) -> dict[str, str]:
    """Returns the parts of a cell's name.

    >>> name_of("loss=softmax,interaction=dot")
    {'loss': 'softmax', 'interaction': 'dot'}
    """
    return dict(part.split("=", 1) for part in cell.split(","))


def find(items: Iterable[Mapping[str, Any]], name: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Returns the item whose name has all parts of another name; raises ValueError if several have."""
    matches = [item for item in items if name.items() <= item["name"].items()]
    if len(matches) > 1:
        raise ValueError(f"cell={name}: {len(matches)} cells have this name. Name more of its parts.")
    return matches[0] if matches else None


def heading(result: Mapping[str, Any], metric: str) -> str:
    """Returns the name of a metric, with its unit if it is percent."""
    return f"{metric} (%)" if result["metrics"][metric]["percent"] else metric


def cells_page(results: Results, reanalysis: Mapping[str, Any]) -> str:
    """Returns the page of the 270 cells of Rank4Class's Tables 7 to 12, with `measure_reanalysis`."""
    tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    reproductions = tomllib.loads((FOLDER / "reproductions.toml").read_text())
    blocks = [
        "# The 270 cells of Rank4Class",
        "The paper's figures in percent. Where a grid of ours has the same dataset with another encoder, its "
        "figure follows in parentheses. Each table names the command that runs it with the paper's encoder.",
    ]
    for table in GRIDS:
        title = reproductions[table]["title"]
        data = reproductions[table]["data"]
        checkpoint = "--checkpoint=CHECKPOINT " if "CHECKPOINT" in data else ""
        command = f"rank4class reproduce --only={table} --data=FOLDER {checkpoint}--workdir=runs/{table}"
        blocks += [f"## {title}", f"`{command}` with {data}."]
        measured = [result for result in results.values() if result["paper"] == table]
        if measured:
            titles = [f"{result['title']} (`{result['name']}`)" for result in measured]
            blocks.append(f"In parentheses: {'; then '.join(titles)}.")
        blocks.append(_table(_grid_rows(table, measured)))
    blocks += [
        "## The 270 cells re-analyzed",
        "Mean gain over softmax with dot in points, over the six settings: of the best cell on the figures "
        "that judge it; of the cell with the best mean rank on the five other settings; and the gain "
        "expected of the best of 15 equal cells, with the deviation over seeds of our frozen grid. "
        "Friedman's test is of the five losses with dot.",
        _table(reanalysis["rows"]),
    ]
    return "\n\n".join(blocks) + "\n"


def _grid_rows(table: str, measured: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    values = {(row["cell"], row["metric"]): row["value"] for row in paper_values(table)}
    cells, metrics = (sorted(set(column)) for column in zip(*values, strict=True))
    rows = [["loss", "interaction", *(f"{metric} (%)" for metric in metrics)]]
    for cell in cells:
        ours = [entry for result in measured if (entry := find(result["cells"], name_of(cell)))]
        figures = []
        for metric in metrics:
            means = [_number(one["metrics"][metric]["mean"], 2) for one in ours if metric in one["metrics"]]
            figures.append(" ".join([values[cell, metric], *(f"({mean})" for mean in means)]))
        rows.append([*name_of(cell).values(), *figures])
    return rows

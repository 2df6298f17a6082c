"""The report of a sweep: tables in the terminal and in Markdown."""

import itertools
import os
import shlex
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rank4class import losses
from rank4class.pipelines import config
from rank4class.pipelines.evaluation import evaluator
from rank4class.pipelines.reporting import page, tables
from rank4class.pipelines.reporting.plots import save
from rank4class.pipelines.storage import code_version, files
from rank4class.pipelines.storage.run_directory import SEARCH, RunDirectory, read_json, write_json
from rank4class.pipelines.sweep import grid_summary, grid_tables, plots, space
from rank4class.pipelines.sweep.parallel import GridRun, cell_of

BASELINE = {"loss": "softmax", "interaction": "dot"}  # of grids that have this cell
GRID = "grid.json"  # file of a grid's summary
_CALIBRATION = list(itertools.product(("ece", "nll"), ("before", "after")))
CALIBRATION_METRICS = {f"{name} {when}": grid_summary.Metric(False) for name, when in _CALIBRATION}


def parse_baseline(
    text: str | None, experiments: Sequence[config.Experiment], varied: Iterable[str] = ()
) -> dict[str, str] | None:
    """Returns the cell of `--baseline`; without it the first of `BASELINE`, if the grid has that."""
    names = [cell_of(experiment, varied) for experiment in experiments]
    if text is None:
        return next((name for name in names if BASELINE.items() <= name.items()), None)
    baseline = dict(itertools.zip_longest(names[0], text.split(","), fillvalue=""))
    grid_summary.check_baseline(baseline, names)
    return baseline


def cells(runs: Sequence[GridRun]) -> list[list[GridRun]]:
    """Returns the runs of each cell of a grid."""
    groups: dict[str, list[GridRun]] = {}
    for run in runs:
        groups.setdefault(run.name, []).append(run)
    return list(groups.values())


def grid_cells(groups: Sequence[Sequence[GridRun]]) -> list[grid_summary.Cell]:
    """Returns the test metrics of each run and example, of the runs of each cell."""
    results = []
    for group in groups:
        values = [RunDirectory(run.path).test_values() for run in group]
        stacked = {name: np.stack([one[name] for one in values]) for name in values[0]}
        tests = [run.results["test"] for run in group]
        intervals = {}
        for name in evaluator.metric_names(tests[0]):
            if name not in stacked:
                scale = 100.0 if losses.get_metric(name).percent else 1.0
                stacked[name] = np.array([test[name] / scale for test in tests])
                one = tests[0]["intervals"][name] if len(group) == 1 else None
                intervals[name] = one and [end / scale for end in one]
        results.append(_cell(group, stacked, intervals))
    return results


def calibration_cells(groups: Sequence[Sequence[GridRun]]) -> list[grid_summary.Cell]:
    """Returns the cells whose runs are all calibrated, with one figure per seed of `CALIBRATION_METRICS`."""
    results = []
    for group in groups:
        stored = [run.results["test"].get("calibration") for run in group]
        if not all(stored):
            continue
        values = {}
        intervals = {}
        for name, when in _CALIBRATION:
            values[f"{name} {when}"] = np.array([one[when][name] for one in stored])
            ends = [one[when]["intervals"][name] for one in stored if name in one[when]["intervals"]]
            intervals[f"{name} {when}"] = [float(np.min(ends)), float(np.max(ends))] if ends else None
        results.append(_cell(group, values, intervals))
    return results


def _cell(group: Sequence[GridRun], *figures: Mapping[str, Any]) -> grid_summary.Cell:
    return grid_summary.Cell(group[0].cell, [run.experiment.seed for run in group], *figures)


def summarize(
    groups: Sequence[Sequence[GridRun]],
    tuned: Collection[str] = (),
    *,
    baseline: Mapping[str, str] | None = None,
    margin: float = grid_summary.MARGIN,
) -> dict[str, Any]:
    """Returns the summary of a grid, with its provenance; see `docs/reference/files.md`."""
    first = groups[0][0]
    experiment = groups[0][0].experiment
    sessions = [one for group in groups for run in group for one in RunDirectory(run.path).sessions()]
    session = max(sessions, key=lambda session: session["started"])
    encoder = f"{experiment.encoder.name}{' (frozen)' if experiment.encoder.frozen else ''}"
    summary = {
        "title": f"{experiment.data.name} with {encoder}",
        "command": shlex.join(["python", *session["command"][1:]]),
        "commits": code_version.commits(sessions),
        "packages": code_version.versions(sessions),
        "python": session.get("python"),
        "hosts": sorted({one["host"] for one in sessions if "host" in one}),
        "seconds": round(sum(one["seconds"] for one in sessions), 1),
        "dataset": {
            "name": experiment.data.name,
            "train_examples": first.results["train_examples"],
            "validation_examples": first.results["validation"]["examples"],
            "test_examples": first.results["test"]["examples"],
        },
        "encoder": encoder,
        "monitor": experiment.monitor,
        **grid_summary.summarize(grid_cells(groups), baseline=baseline, margin=margin),
    }
    for cell, group in zip(summary["cells"], groups, strict=True):
        values = config.values(group[0].experiment)
        cell["tuned"] = {field: values[field] for field in tuned if field in values}
        cell["best_epochs"] = [run.epochs(run.results["best_step"]) for run in group]
        cell["epochs"] = [run.epochs(run.results["steps"]) for run in group]
    summary["notes"] = _notes(groups, tuned, summary)
    if calibrated := calibration_cells(groups):
        summary["calibration"] = summarize_calibration(calibrated)
    return summary


def summarize_calibration(
    calibrated: Sequence[grid_summary.Cell], *, test_to_train: float = 0.0
) -> dict[str, Any]:
    """Returns the summary of `calibration_cells`, without verdicts; see `grid_summary.summarize`."""
    summary = grid_summary.summarize(calibrated, metrics=CALIBRATION_METRICS, test_to_train=test_to_train)
    return summary | {"best": {}}


def write_grid(
    runs: Sequence[GridRun],
    root: str | os.PathLike,
    *,
    baseline: Mapping[str, str] | None = None,
    margin: float = grid_summary.MARGIN,
) -> str:
    """Writes `grid.json`, `report.md` and plots, and prints the tables.

    Returns the path of `report.html`, the report as a page with its plots.
    """
    search = read_search(root)
    groups = cells(runs)
    tuned = tuple(search["fields"]) if search else ()
    summary = summarize(groups, tuned, baseline=baseline, margin=margin)
    write_json(os.path.join(root, GRID), summary)
    undecided = grid_tables.undecided(summary)
    opening = [grid_tables.verdict(summary), undecided, *_differences(summary, root)]
    _write_curves(runs, os.path.join(root, "curves.png"))
    sections = [
        "![Validation curves](curves.png)",
        "The curves are means over the seeds, the bands reach from the lowest seed to the highest.",
        tables.markdown_table(training_table(groups, tuned, root)),
        *(search_blocks(search) if search else ()),
    ]
    path = os.path.join(root, "report.md")
    files.write(path, grid_tables.render(summary, sections, opening))
    path = page.write_beside(path)
    blocks = grid_tables.text(summary), textwrap.fill(undecided, 100), f"Report: {path}"
    print("\n" + "\n\n".join(filter(None, blocks)))
    return path


def _differences(summary: Mapping[str, Any], root: str | os.PathLike) -> list[str]:
    """Writes the plot of the differences; returns the paragraphs with it and with the power of a sweep."""
    if not summary["comparisons"]:
        return []
    names = plots.selected_metrics(summary["metrics"], summary["monitor"])
    save(plots.differences(summary, names, panel=3.2), os.path.join(root, "differences.png"))
    power = grid_tables.power_table(summary)
    if len(power) > 1:
        shown = [grid_tables.power_heading(summary), tables.markdown_table(power), grid_tables.COMPARE]
    else:
        shown = ["One seed does not show how many would decide it. Train at least three."]
    return ["![Differences from the baseline](differences.png)", *shown]


def _write_curves(runs: Sequence[GridRun], path: str) -> None:
    """Writes the plot of the validation curves."""
    curves = pd.DataFrame(
        # An evaluation has a training loss too.
        {
            **evaluation,
            "loss": run.cell["loss"],
            "panel": ", ".join([*run.cell.values()][1:]),
            "seed": run.experiment.seed,
            "epochs": run.epochs(int(evaluation["step"])),
        }
        for run in runs
        for evaluation in RunDirectory(run.path).history()
    )
    names = evaluator.metric_names(runs[0].results["validation"])
    plots.plot_curves(curves, names, runs[0].experiment.monitor, path)


def _notes(
    groups: Sequence[Sequence[GridRun]], tuned: Collection[str], summary: Mapping[str, Any]
) -> list[str]:
    """Returns sentences on the data, the training, the choice of tuned values and ignored fields."""
    first = groups[0][0]
    experiment = groups[0][0].experiment
    epochs = experiment.epochs
    steps = experiment.steps
    limit = f"{epochs:g} epoch{'' if epochs == 1.0 else 's'}" if steps is None else f"{steps:,} steps"
    common = {
        "optimizer.name": experiment.optimizer.name.capitalize(),
        "batch_size": f"batches of {experiment.batch_size}",
        "epochs" if steps is None else "steps": f"{limit} at most",
    }
    training = ", ".join(text for field, text in common.items() if field not in {*tuned, *first.varied})
    packages = ", ".join(f"{name} {version}" for name, version in summary["packages"].items())
    return [
        "Examples: {train_examples:,} training, {validation_examples:,} validation, "
        "{test_examples:,} test.".format(**summary["dataset"]),
        f"{training}{'; t' if training else 'T'}he best checkpoint"
        f"{' and values of tuned fields' if tuned else ''} by validation {experiment.monitor}.",
        *(f"{run.name} has no {', '.join(run.ignored)}: ignored." for run, *_ in groups if run.ignored),
        f"Command: `{summary['command']}`.",
        f"Machine: {', '.join(summary['hosts']) or 'not recorded'}.",
        f"Duration: {summary['seconds']:,.0f} seconds of training in {sum(map(len, groups))} runs.",
        f"Seeds {', '.join(map(str, sorted(run.experiment.seed for run in groups[0])))}; "
        f"code {', '.join(summary['commits'])}; {packages}.",
    ]


def training_table(
    groups: Sequence[Sequence[GridRun]], tuned: Collection[str] = (), root: str | os.PathLike = ""
) -> list[list[str]]:
    """Returns rows on the training of each cell: tuned values, epochs, and links from `root` to the runs."""
    fields = tuple(tuned or ("optimizer.learning_rate",))
    rows = [[*groups[0][0].cell, *fields, "best epoch", "epochs", "runs"]]
    for group in groups:
        values = config.values(group[0].experiment)
        epochs = []
        for key in ("best_step", "steps"):
            ends = sorted(run.epochs(run.results[key]) for run in group)
            epochs.append(" to ".join(dict.fromkeys(f"{end:.3g}" for end in (ends[0], ends[-1]))))
        links = [f"[{run.experiment.seed}]({run.path.removeprefix(os.path.join(root, ''))})" for run in group]
        chosen = [space.format_value(values[field]) if field in values else "-" for field in fields]
        rows.append([*group[0].cell.values(), *chosen, *epochs, ", ".join(links)])
    return rows


def read_search(root: str | os.PathLike) -> dict[str, Any] | None:
    """Returns the last search of a grid, see `search.Search.summary`; None if it has searched nothing."""
    path = os.path.join(root, SEARCH)
    return read_json(path) if files.exists(path) else None


def search_blocks(search: dict[str, Any]) -> list[str]:
    """Returns the blocks of Markdown that describe a search: its boundaries and every trial."""
    seeds = ", ".join(map(str, search["seeds"]))
    sampler = {"grid": "All combinations of the values", "tpe": "Choices proposed by TPE"}[search["sampler"]]
    lines = [
        *(f"- {field}: {text}" for field, text in search["fields"].items()),
        *(f"- {cell['cell']}: {note}." for cell in search["cells"] for note in cell["notes"]),
        *(f"- {cell} has one choice: nothing to search." for cell in search["fixed"]),
    ]
    return [
        "## Search",
        f"{sampler}, each trained with the seeds {seeds}, which no final run has. The value of a trial is "
        f"the mean of the best validation {search['monitor']} of the seeds. "
        "Diverged trials are not chosen.",
        "\n".join(lines),
        tables.markdown_table(_trial_table(search)),
    ]


def _trial_table(search: dict[str, Any]) -> list[list[str]]:
    fields = list(search["fields"])
    seeds = [f"seed {seed}" for seed in search["seeds"]]
    rows = [["cell", "trial", *fields, *seeds, "mean", "state"]]
    for cell in search["cells"]:
        for trial in cell["trials"]:
            choice = [space.format_value(trial["choice"][f]) if f in trial["choice"] else "-" for f in fields]
            values = [f"{value:.2f}" for value in trial["values"]]
            values += ["-"] * (len(seeds) - len(values))
            mean = "-" if trial["state"] == "diverged" else f"{trial['mean']:.2f}"
            state = "best" if trial["best"] else trial["state"]
            rows.append([cell["cell"], str(trial["number"]), *choice, *values, mean, state])
    return rows

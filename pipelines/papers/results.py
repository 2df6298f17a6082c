"""Results of reproductions as data: small JSON files, from which the documentation is rendered."""

import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rank4class.pipelines import config, sweep
from rank4class.pipelines.papers.reproductions import Command, Reproduction
from rank4class.pipelines.reporting import grid_summary, sweep_report
from rank4class.pipelines.reporting.grid_summary import Cell
from rank4class.pipelines.sorters import accuracy
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import TUNING, RunDirectory, read_json, write_json

# Metrics of the studies of sorters.
METRICS = {name: grid_summary.Metric(True, True) for name in ("spearman", "map", "recall@1", "recall@5")}
METRICS |= {name: grid_summary.Metric(False, True) for name in accuracy.STUDY_METRICS}


def collect(name: str, reproduction: Reproduction, workdir: str) -> dict[str, Any]:
    """Returns the result of a reproduction whose commands have run.

    Cells of equal names in several commands are joined: those of the same seeds are parts of one test set,
    such as folds; those of other seeds have test sets of their own, and one figure per seed.

    Args:
      name: of the reproduction.
      reproduction: the reproduction.
      workdir: the folder with the folders of its commands, see `Reproduction.command_lines`.

    Returns:
      The content of a result file: "name", "title", "claims", "paper", "commands", "commits", "packages",
      "environment" variables that change the arithmetic, "seconds" of training, those of the search
      included, "examples" of each split of the first command, "tuned" values of each cell,
      `grid_summary.summarize`, and that of the "calibration", if all runs are calibrated; "curves" of
      validation values, if they are asked for: for each cell "name", "metric", "epochs" and "values", a list
      per seed that may end early.

    Raises:
      FileNotFoundError: a sweep has no finished run.
    """
    parts = [_read(os.path.join(workdir, str(i)), command) for i, command in enumerate(reproduction.commands)]
    baseline = dict(reproduction.baseline) if reproduction.baseline else None
    cells = _joined([_selected(cell, reproduction.metrics) for part in parts for cell in part["cells"]])
    summary = grid_summary.summarize(cells, baseline=baseline, margin=reproduction.margin, metrics=METRICS)
    calibrated = _joined([cell for part in parts for cell in part["calibrated"]])
    if len(calibrated) == len(cells):
        summary["calibration"] = grid_summary.summarize(
            calibrated,
            baseline=baseline,
            margin=reproduction.margin,
            metrics=sweep_report.CALIBRATION_METRICS,
        )
    if reproduction.curves:
        summary["curves"] = [
            curve
            for i, command in enumerate(reproduction.commands)
            for curve in _curves(os.path.join(workdir, str(i)), command)
        ]
    return {
        "name": name,
        "title": reproduction.title,
        "claims": list(reproduction.claims),
        "paper": reproduction.paper,
        "commands": reproduction.command_lines(),
        "commits": sorted({commit for part in parts for commit in part["commits"]}),
        "packages": {package: version for part in parts for package, version in part["packages"].items()},
        "environment": sorted({variable for part in parts for variable in part["environment"]}),
        "seconds": round(sum(part["seconds"] for part in parts)),
        "examples": parts[0]["examples"],
        "tuned": [entry for part in parts for entry in part["tuned"]],
        **summary,
    }


def _read(folder: str, command: Command) -> dict[str, Any]:
    """Returns the cells of a command, and where they come from."""
    if files.exists(os.path.join(folder, "study.json")):
        return _read_study(os.path.join(folder, "study.json"))
    runs = [_read_run(path) for path in _run_folders(folder)]
    if not runs:
        raise FileNotFoundError(f"{folder}: no finished run. Run the reproduction first.")
    runs.sort(key=lambda run: run.experiment.seed)
    sessions = [session for run in runs for session in RunDirectory(run.path).sessions()]
    tuning = os.path.join(folder, TUNING)
    searched = [RunDirectory(os.path.join(tuning, name)).sessions() for name in files.names_in(tuning)]
    first = runs[0].results
    splits = {split: first[split]["examples"] for split in ("validation", "test")}
    return {
        "cells": _named(sweep_report.grid_cells(runs), command),
        "calibrated": _named(sweep_report.calibration_cells(runs), command),
        "commits": {str(session["git"]) for session in sessions},
        "packages": sessions[-1]["packages"],
        "environment": {variable for session in sessions for variable in _environment(session)},
        "seconds": sum(session["seconds"] for session in itertools.chain(sessions, *searched)),
        "examples": {"train": first["train_examples"], **splits},
        "tuned": _tuned(folder, runs, command),
    }


def _curves(folder: str, command: Command) -> list[dict[str, Any]]:
    """Returns the validation values of the monitored metric of each cell of a sweep."""
    curves: dict[tuple, dict[str, Any]] = {}
    for run in sorted(map(_read_run, _run_folders(folder)), key=lambda run: run.experiment.seed):
        name, monitor = {**run.cell, **command.name}, run.experiment.monitor
        history = RunDirectory(run.path).history()
        epochs_per_step = run.experiment.batch_size / run.results["train_examples"]
        curve = curves.setdefault(
            tuple(name.items()), {"name": name, "metric": monitor, "epochs": [], "values": []}
        )
        curve["values"].append([round(line[monitor], 4) for line in history])
        if len(history) > len(curve["epochs"]):
            curve["epochs"] = [round(line["step"] * epochs_per_step, 2) for line in history]
    return list(curves.values())


def _read_study(path: str) -> dict[str, Any]:
    """Returns the cells of a study of sorters or of LightGBM, whose values are in percent."""
    study = read_json(path)
    cells = [
        Cell(
            {"loss": title},
            study["seeds"],
            {metric: np.array(values, np.float64) / 100.0 for metric, values in metrics.items()},
        )
        for title, metrics in study["test"].items()
    ]
    kept = {field: study[field] for field in ("packages", "seconds", "examples")}
    return {
        "cells": cells,
        "calibrated": [],
        "commits": {str(study["git"])},
        "environment": _environment(study),
        "tuned": [],
        **kept,
    }


def _environment(record: Mapping[str, Any]) -> set[str]:
    """Returns the environment variables of a session or a study; version 1.0 did not record them."""
    return {f"{name}={value}" for name, value in record.get("environment", {}).items()}


def _run_folders(folder: str) -> list[str]:
    paths = [os.path.join(folder, name) for name in files.names_in(folder)]
    return [path for path in paths if files.exists(os.path.join(path, "results.json"))]


def _read_run(path: str) -> sweep_report.Run:
    run_dir = RunDirectory(path)
    results = run_dir.results()
    assert results is not None  # `_run_folders` has seen it
    return sweep_report.Run(run_dir.experiment(), results, path)


def _named(cells: Sequence[Cell], command: Command) -> list[Cell]:
    return [Cell({**cell.name, **command.name}, cell.seeds, cell.values, cell.intervals) for cell in cells]


def _selected(cell: Cell, metrics: Sequence[str]) -> Cell:
    values = {name: figures for name, figures in cell.values.items() if not metrics or name in metrics}
    return Cell(cell.name, cell.seeds, values, cell.intervals)


def _joined(cells: Sequence[Cell]) -> list[Cell]:
    """Returns one cell per name; see `collect`."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell.name.items()), []).append(cell)
    return [group[0] if len(group) == 1 else _join(group) for group in groups.values()]


def _join(cells: Sequence[Cell]) -> Cell:
    first, seeds = cells[0], [seed for cell in cells for seed in cell.seeds]
    values = {metric: [cell.values[metric] for cell in cells] for metric in first.values}
    if all(list(cell.seeds) == list(first.seeds) for cell in cells):
        return Cell(
            first.name,
            first.seeds,
            {metric: np.concatenate(parts, axis=1) for metric, parts in values.items()},
        )
    per_seed = {
        metric: np.concatenate([part.reshape(len(part), -1).mean(axis=1) for part in parts])
        for metric, parts in values.items()
    }
    return Cell(first.name, seeds, per_seed)


def _tuned(folder: str, runs: Sequence[sweep_report.Run], command: Command) -> list[dict[str, Any]]:
    """Returns the values of each cell of a sweep for the fields that were tuned."""
    search = sweep.read_search(folder)
    cells = {tuple({**run.cell, **command.name}.items()): config.values(run.experiment) for run in runs}
    return [
        {
            "name": dict(name),
            "fields": {field: values[field] for field in search["fields"] if field in values},
        }
        for name, values in cells.items()
        if search
    ]


def write(result: Mapping[str, Any], folder: str | os.PathLike) -> str:
    """Writes a result to a folder of results; returns the path of the file."""
    path = os.path.join(folder, f"{result['name']}.json")
    files.make_folder(os.path.dirname(path))
    write_json(path, dict(result))
    return path


def read_all(folder: str | os.PathLike) -> dict[str, dict[str, Any]]:
    """Returns the results in a folder, by name.

    Raises:
      ValueError: a file is damaged, or has another name than its result.
    """
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*.json")):
        result = read_json(str(path))
        name = path.relative_to(folder).with_suffix("").as_posix()
        if result.get("name") != name:
            raise ValueError(f"{path}: name={result.get('name')!r}: not the name of the file. Rename one.")
        found[name] = result
    return found

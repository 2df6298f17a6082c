"""Results of reproductions as data: small JSON files, from which the documentation is rendered."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rank4class.pipelines import config
from rank4class.pipelines.storage import code_version, files
from rank4class.pipelines.storage.run_directory import TUNING, RunDirectory, read_json, write_json
from rank4class.pipelines.sweep import grid_summary, report
from rank4class.pipelines.sweep.grid_summary import Cell
from rank4class.pipelines.sweep.parallel import GridRun
from rank4class.scripts.research.papers.reproductions import Command, Reproduction
from rank4class.scripts.research.sorters import accuracy

# Metrics of the studies of sorters.
METRICS = {name: grid_summary.Metric(True, True) for name in ("spearman", "map", "recall@1", "recall@5")}
METRICS |= {name: grid_summary.Metric(False, True) for name in accuracy.STUDY_METRICS}


def collect(name: str, reproduction: Reproduction, workdir: str) -> dict[str, Any]:
    """Returns the result of a reproduction whose commands have run in the folders of a workdir.

    Cells of equal names in several commands are joined: those of the same seeds are parts of one test set,
    such as folds, whose figures per seed are averaged; those of other seeds have other test sets, and
    one figure per seed.

    Returns:
      The content of a result file: "name", "title", "claims", "paper", "commands", "commits", "packages",
      "environment" variables that change the arithmetic, "seconds" of training, those of the search
      included, "examples" of each split of the first command, "tuned" values of each cell, "notes" of the
      searches, `grid_summary.summarize`, and that of the "calibration", if all runs are calibrated; "curves"
      of validation values, if they are asked for: for each cell "name", "metric", "epochs" and "values", a
      list per seed that may end early; "minutes" of one training by title, if they are compared.
    """
    parts = [_read(os.path.join(workdir, str(i)), command) for i, command in enumerate(reproduction.commands)]
    _check_test_examples(parts)
    sessions = [session for part in parts for session in part["sessions"]]
    baseline = dict(reproduction.baseline) if reproduction.baseline else None
    cells = _joined([_selected(cell, reproduction.metrics) for part in parts for cell in part["cells"]])
    ratio = reproduction.test_to_train
    summary = grid_summary.summarize(cells, baseline=baseline, metrics=METRICS, test_to_train=ratio)
    if all(len(part["calibrated"]) == len(part["cells"]) for part in parts):
        calibrated = _joined([cell for part in parts for cell in part["calibrated"]])
        summary["calibration"] = report.summarize_calibration(calibrated, test_to_train=ratio)
    minutes = {title: value for part in parts for title, value in part["minutes"].items()}
    if minutes:
        summary["minutes"] = {title: round(value, 2) for title, value in minutes.items()}
    if reproduction.curves:
        summary["curves"] = [
            curve
            for part, command in zip(parts, reproduction.commands, strict=True)
            for curve in _curves(part["runs"], command)
        ]
    return {
        "name": name,
        "title": reproduction.title,
        "claims": list(reproduction.claims),
        "paper": reproduction.paper,
        "commands": reproduction.command_lines(),
        "commits": code_version.commits(sessions),
        "packages": code_version.versions(sessions),
        "environment": sorted(
            {f"{k}={v}" for session in sessions for k, v in session["environment"].items()}
        ),
        "seconds": round(sum(session["seconds"] for session in sessions)),
        "examples": parts[0]["examples"],
        "tuned": [entry for part in parts for entry in part["tuned"]],
        "notes": [note for part in parts for note in part["notes"]],
        **summary,
    }


def _read(folder: str, command: Command) -> dict[str, Any]:
    """Returns the cells of a command, and where they come from."""
    if not command.line.startswith("sweep "):
        return _read_study(os.path.join(folder, "study.json"))
    runs = _read_runs(folder)
    search = report.read_search(folder) or {"fields": {}, "cells": []}
    tuning = os.path.join(folder, TUNING)
    paths = [*(run.path for run in runs), *(os.path.join(tuning, name) for name in files.names_in(tuning))]
    first = runs[0].results
    return {
        "runs": runs,
        "cells": _named(report.grid_cells(report.cells(runs)), command),
        "calibrated": _named(report.calibration_cells(report.cells(runs)), command),
        "sessions": [session for path in paths for session in RunDirectory(path).sessions()],
        "examples": {
            "train": first["train_examples"],
            **{split: first[split]["examples"] for split in ("validation", "test")},
        },
        "test_examples": sorted(
            {(RunDirectory(run.path).data_hashes()["test"], run.experiment.data.held_out) for run in runs}
        ),
        "tuned": _tuned(search["fields"], runs, command),
        "notes": [f"{cell['cell']}: {note}" for cell in search["cells"] for note in cell["notes"]],
        "minutes": {},
    }


def _read_runs(folder: str) -> list[GridRun]:
    """Returns the runs of the last sweep in a folder, by seed; the folder may have other ones."""
    path = os.path.join(folder, report.GRID)
    if not files.exists(path):
        raise FileNotFoundError(f"{folder}: no finished sweep. Run the reproduction first.")
    runs = []
    for cell in read_json(path)["cells"]:
        _, _, *varied = cell["name"]
        for seed in cell["seeds"]:
            run_dir = RunDirectory(os.path.join(folder, f"{'-'.join(cell['name'].values())}-seed{seed}"))
            results = run_dir.results()
            if results is None:
                raise FileNotFoundError(f"{run_dir.path}: not finished. Run the reproduction again.")
            runs.append(GridRun(run_dir.experiment(), run_dir.path, varied=tuple(varied), results=results))
    return sorted(runs, key=lambda run: run.experiment.seed)


def _check_test_examples(parts: Sequence[Mapping[str, Any]]) -> None:
    """Raises ValueError unless the cells have the same test examples; studies of sorters are not checked."""
    examples: dict[tuple, list] = {}
    for part in parts:
        for cell in part["cells"] if part["test_examples"] else ():
            examples.setdefault(tuple(cell.name.values()), []).append(part["test_examples"])
    for name, of_cell in examples.items():
        if of_cell != next(iter(examples.values())):
            raise ValueError(
                f"cell={','.join(name)}: other test examples than those of the first cell. "
                "Run all commands with the same --data."
            )


def _curves(runs: Sequence[GridRun], command: Command) -> list[dict[str, Any]]:
    """Returns the validation values of the monitored metric of each cell of a sweep."""
    curves: dict[tuple, dict[str, Any]] = {}
    for run in runs:
        name = {**run.cell, **command.name}
        monitor = run.experiment.monitor
        history = RunDirectory(run.path).history()
        curve = curves.setdefault(
            tuple(name.items()), {"name": name, "metric": monitor, "epochs": [], "values": []}
        )
        curve["values"].append([round(line[monitor], 4) for line in history])
        if len(history) > len(curve["epochs"]):
            curve["epochs"] = [round(run.epochs(int(line["step"])), 2) for line in history]
    return list(curves.values())


def _read_study(path: str) -> dict[str, Any]:
    """Returns the cells of a study of sorters or of LightGBM, whose values are in percent."""
    if not files.exists(path):
        raise FileNotFoundError(f"{path}: no finished study. Run the reproduction first.")
    study = read_json(path)
    return {
        "runs": [],
        "cells": study_cells(study),
        "calibrated": [],
        "sessions": study["sessions"],
        "examples": study["examples"],
        "test_examples": [(study["test_hash"], ())] if study["test_hash"] else [],
        "tuned": [],
        "notes": study["notes"],
        "minutes": study.get("minutes", {}),
    }


def study_cells(study: Mapping[str, Any]) -> list[Cell]:
    """Returns the cells of a study, whose values are in percent; see `sorters.study.write_result`."""
    return [
        Cell(
            {study.get("axis", "loss"): title},
            study["seeds"],
            {metric: np.array(values, np.float64) / 100.0 for metric, values in metrics.items()},
        )
        for title, metrics in study["test"].items()
    ]


def _named(cells: Sequence[Cell], command: Command) -> list[Cell]:
    return [dataclasses.replace(cell, name={**cell.name, **command.name}) for cell in cells]


def _selected(cell: Cell, metrics: Sequence[str]) -> Cell:
    values = {name: figures for name, figures in cell.values.items() if not metrics or name in metrics}
    return dataclasses.replace(cell, values=values)


def _joined(cells: Sequence[Cell]) -> list[Cell]:
    """Returns one cell per name; see `collect`."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell.name.items()), []).append(cell)
    return [group[0] if len(group) == 1 else _join(group) for group in groups.values()]


def _join(cells: Sequence[Cell]) -> Cell:
    first = cells[0]
    seeds = [seed for cell in cells for seed in cell.seeds]
    values = {metric: [cell.values[metric] for cell in cells] for metric in first.values}
    if all(list(cell.seeds) == list(first.seeds) for cell in cells):
        return Cell(first.name, first.seeds, {metric: _of_parts(parts) for metric, parts in values.items()})
    if len(set(seeds)) < len(seeds):
        raise ValueError(
            f"cell={','.join(first.name.values())}: commands share some of their seeds. Use all or none."
        )
    per_seed = {
        metric: np.concatenate([part.reshape(len(part), -1).mean(axis=1) for part in parts])
        for metric, parts in values.items()
    }
    return Cell(first.name, seeds, per_seed)


def _of_parts(values: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the values of all parts of a test set; of figures per seed, their mean over the parts."""
    return np.concatenate(values, axis=1) if values[0].ndim > 1 else np.mean(values, axis=0)


def _tuned(fields: Iterable[str], runs: Sequence[GridRun], command: Command) -> list[dict[str, Any]]:
    """Returns the values of each cell of a sweep for the fields that were tuned."""
    cells = {tuple({**run.cell, **command.name}.items()): config.values(run.experiment) for run in runs}
    return [
        {"name": dict(name), "fields": {field: values[field] for field in fields if field in values}}
        for name, values in cells.items()
        if fields
    ]


def write(result: Mapping[str, Any], folder: str | os.PathLike) -> str:
    """Writes a result to a folder of results; returns the path of the file."""
    path = os.path.join(folder, f"{result['name']}.json")
    files.make_folder(os.path.dirname(path))
    write_json(path, dict(result))
    return path

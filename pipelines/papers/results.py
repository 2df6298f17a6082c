"""Results of reproductions as data: small JSON files, from which the documentation is rendered."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rank4class import losses
from rank4class.pipelines import config
from rank4class.pipelines.papers.reproductions import Command, Reproduction
from rank4class.pipelines.reporting import grid_summary, tables
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.run_directory import RunDirectory, read_json, write_json

# Metrics of the studies of sorters, and those of calibrated scores.
STUDY_METRICS = {
    name: grid_summary.Metric(True, True) for name in ("spearman", "map", "recall@1", "recall@5")
}
CALIBRATION_METRICS = {
    f"{name} {when}": grid_summary.Metric(False) for name in ("ece", "nll") for when in ("before", "after")
}


@dataclasses.dataclass(frozen=True)
class _Run:
    """A finished run of a reproduction: its cell's name, and what the results need of its folder."""

    name: dict[str, str]
    experiment: config.Experiment
    results: dict[str, Any]
    sessions: list[dict[str, Any]]
    test_hash: str
    values: dict[str, np.ndarray] | None


def collect(name: str, reproduction: Reproduction, workdir: str) -> dict[str, Any]:
    """Returns the result of a reproduction whose commands have run.

    Where all runs of a metric have the same test examples, intervals and differences are over seeds and
    examples; otherwise, such as for several splits of the data, over seeds.

    Args:
      name: of the reproduction.
      reproduction: the reproduction.
      workdir: the folder with the folders of its commands, see `Reproduction.command_lines`.

    Returns:
      The content of a result file: "name", "title", "claims", "paper", "commands", "commits", "packages",
      "seconds" of training, "examples" of each split, "tuned" values of each cell, and
      `grid_summary.summarize`.

    Raises:
      FileNotFoundError: a sweep has no finished run.
    """
    folders = {os.path.join(workdir, str(i)): command for i, command in enumerate(reproduction.commands)}
    if all(files.exists(os.path.join(folder, "study.json")) for folder in folders):
        (cells, provenance), calibrated = _read_study(*folders), []
    else:
        groups, provenance = _read_sweeps(folders)
        cells, calibrated = list(map(_cell, groups)), _calibration_cells(groups)
    baseline = dict(reproduction.baseline) if reproduction.baseline else None
    summary = grid_summary.summarize(
        cells, baseline=baseline, margin=reproduction.margin, metrics=STUDY_METRICS
    )
    if calibrated:
        summary["calibration"] = grid_summary.summarize(
            calibrated, baseline=baseline, margin=reproduction.margin, metrics=CALIBRATION_METRICS
        )
    return {
        "name": name,
        "title": reproduction.title,
        "claims": list(reproduction.claims),
        "paper": reproduction.paper,
        "commands": reproduction.command_lines(),
        **provenance,
        **summary,
    }


def _read_study(folder: str) -> tuple[list[grid_summary.Cell], dict[str, Any]]:
    """Returns the cells and the provenance of a study of sorters, whose seeds have test sets of their own."""
    study = read_json(os.path.join(folder, "study.json"))
    cells = [
        grid_summary.Cell(
            {"loss": title},
            study["seeds"],
            {metric: np.array(values, np.float64) / 100.0 for metric, values in metrics.items()},
        )
        for title, metrics in study["test"].items()
    ]
    return cells, {
        "commits": [str(study["git"])],
        "packages": study["packages"],
        "seconds": study["seconds"],
        "examples": study["examples"],
    }


def _read_sweeps(folders: Mapping[str, Command]) -> tuple[list[list[_Run]], dict[str, Any]]:
    """Returns the runs of each cell of sweeps, and their provenance."""
    runs = []
    for folder, command in folders.items():
        of_sweep = [_read_run(path, command.name) for path in _run_folders(folder)]
        if not of_sweep:
            raise FileNotFoundError(f"{folder}: no finished run. Run the reproduction first.")
        runs += of_sweep
    names = [
        name for i, name in enumerate(run.name for run in runs) if name not in [r.name for r in runs[:i]]
    ]
    runs = sorted(runs, key=lambda run: run.experiment.seed)
    groups = [[run for run in runs if run.name == name] for name in names]
    sessions = [session for run in runs for session in run.sessions]
    first = runs[0].results
    return groups, {
        "commits": sorted({str(session["git"]) for session in sessions}),
        "packages": sessions[-1]["packages"],
        "seconds": round(sum(session["seconds"] for session in sessions)),
        "examples": {
            "train": first["train_examples"],
            **{split: first[split]["examples"] for split in ("validation", "test")},
        },
        "tuned": [{"name": group[0].name, "fields": _tuned(group, runs)} for group in groups],
    }


def _run_folders(folder: str) -> list[str]:
    paths = [os.path.join(folder, name) for name in files.names_in(folder)]
    return [path for path in paths if files.exists(os.path.join(path, "results.json"))]


def _read_run(path: str, name: Mapping[str, str]) -> _Run:
    run_dir = RunDirectory(path)
    experiment, results = run_dir.experiment(), run_dir.results()
    assert results is not None  # `_run_folders` has seen it
    cell = {"loss": experiment.loss.title, "interaction": experiment.interaction.name, **name}
    hashes, values = run_dir.data_hashes(), run_dir.test_values()
    return _Run(cell, experiment, results, run_dir.sessions(), hashes["test"], values)


def _tuned(group: Sequence[_Run], runs: Sequence[_Run]) -> dict[str, list[Any]]:
    """Returns the values of a cell, in the order of its seeds, of the fields that differ between the runs."""
    fields = [config.values(run.experiment) for run in runs]
    parts = ("seed", "data.split_seed", "loss.", "interaction.")
    return {
        field: [config.values(run.experiment)[field] for run in group]
        for field in config.values(group[0].experiment)
        if not field.startswith(parts) and len({repr(one.get(field)) for one in fields}) > 1
    }


def _cell(runs: Sequence[_Run]) -> grid_summary.Cell:
    """Returns a cell with its values per seed and example, or per seed if the examples differ."""
    paired = len({run.test_hash for run in runs}) == 1 and all(run.values is not None for run in runs)
    metrics = {}
    for metric in tables.metric_names(runs[0].results["test"]):
        if paired:
            metrics[metric] = np.stack([run.values[metric] for run in runs if run.values is not None])
        else:
            scale = 100.0 if losses.get_metric(metric).percent else 1.0
            metrics[metric] = np.array([run.results["test"][metric] for run in runs]) / scale
    return grid_summary.Cell(runs[0].name, [run.experiment.seed for run in runs], metrics)


def _calibration_cells(groups: Sequence[Sequence[_Run]]) -> list[grid_summary.Cell]:
    """Returns cells of the calibration error and the likelihood per seed; none without calibrated runs."""
    if not all("calibration" in run.results["test"] for runs in groups for run in runs):
        return []
    return [
        grid_summary.Cell(
            runs[0].name,
            [run.experiment.seed for run in runs],
            {
                metric: np.array([run.results["test"]["calibration"][when][name] for run in runs])
                for metric in CALIBRATION_METRICS
                for name, when in [metric.split()]
            },
        )
        for runs in groups
    ]


def write(result: dict[str, Any], folder: str | os.PathLike) -> str:
    """Writes a result to a folder of results; returns the path of the file."""
    path = os.path.join(folder, f"{result['name']}.json")
    files.make_folder(os.path.dirname(path))
    write_json(path, result)
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

"""Reproductions: their commands are sweeps of packaged configs, and their cells those of the papers."""

import ast
import importlib
import itertools
import re
import shlex

import pytest

from rank4class.pipelines import config, configs
from rank4class.pipelines.configs import goemotions_minilm
from rank4class.pipelines.sweep import grid
from rank4class.scripts.research import sorters
from rank4class.scripts.research.papers import pages
from rank4class.scripts.research.papers.reproductions import REPRODUCTIONS

SWEEP_FLAGS = {"losses", "interactions", "vary", "seed", "tune", "tuning_seeds", "trials"}
STUDY_FLAGS = {"table", "target", "rank_fns", "epochs", "seed", "config"}
STUDY_FLAGS |= {"config.data.path", "config.data.multi_label"}
PARTS = {"data", "encoder", "class_encoder", "interaction", "count_prior", "candidates", "sets"}


def parse(line):
    """Returns the experiment of a sweep's line, and name -> values of the flags of the sweep itself."""
    _, *flags = shlex.split(line)
    pairs = [flag.removeprefix("--").split("=", 1) for flag in flags]
    (name,) = (value for flag, value in pairs if flag == "config")
    experiment = configs.get_config(name)
    sweep_flags = {}
    for flag, value in pairs:
        if flag == "import":
            importlib.import_module(value)
        elif flag in PARTS:
            experiment = config.override(experiment, {f"{flag}.name": value})
        elif not flag.startswith("config"):
            sweep_flags.setdefault(flag, []).append(value)
    for flag, value in pairs:
        if flag.startswith("config."):
            field = flag.removeprefix("config.")
            if value.startswith("FOLDER") or value == "CHECKPOINT":
                value = goemotions_minilm.minilm_folder() if value == "CHECKPOINT" else "folder"
            elif value.startswith("("):
                value = ast.literal_eval(value)
            elif not field.startswith("loss."):
                value = config.parse_value(experiment, field, value)
            if config.has_field(experiment, field):
                experiment = config.override(experiment, {field: value})
    return experiment, sweep_flags


SWEEPS = [name for name, one in REPRODUCTIONS.items() if one.commands[0].line.startswith("sweep ")]


@pytest.mark.parametrize("name", SWEEPS)
def test_commands_are_sweeps(name):
    for command in sweeps_of(REPRODUCTIONS[name]):
        experiment, flags = parse(command.line)
        assert set(flags) <= SWEEP_FLAGS
        (losses,), (interactions,) = flags["losses"], flags["interactions"]
        cells = grid.build_cells(experiment, losses.split(","), interactions.split(","))
        for tuned in (*flags.get("tune", ()), *flags.get("vary", ())):
            assert any(config.has_field(cell, tuned.split("=")[0]) for cell in cells)
        for field in re.findall(r"--config\.([\w.]+)=", command.line):
            assert any(config.has_field(cell, field) for cell in cells), field


@pytest.mark.parametrize("name", [name for name in SWEEPS if REPRODUCTIONS[name].baseline])
def test_baseline_is_a_cell(name):
    reproduction = REPRODUCTIONS[name]
    assert dict(reproduction.baseline) in [dict(cell) for cell in cells_of(reproduction)]


@pytest.mark.parametrize("name", [name for name in SWEEPS if REPRODUCTIONS[name].paper])
def test_cells_of_the_paper_are_cells(name):
    reproduction = REPRODUCTIONS[name]
    papers = [pages.name_of(row["cell"]) for row in pages.paper_values(reproduction.paper)]
    for cell in cells_of(reproduction):
        assert any(paper.items() <= cell.items() for paper in papers), cell


def test_peers_have_the_config_of_the_sweeps():
    for reproduction in REPRODUCTIONS.values():
        peers = [command for command in reproduction.commands if command.line.startswith("lightgbm_peer ")]
        configs = {command.line.split()[1] for command in reproduction.commands}
        assert not peers or len(configs) == 1


@pytest.mark.parametrize("name", sorted(set(REPRODUCTIONS) - set(SWEEPS)))
def test_other_commands_are_studies(name):
    (command,) = REPRODUCTIONS[name].commands
    program, task, *flags = shlex.split(command.line)
    assert program == "sorter_experiments"
    assert task.removeprefix("--task=") in (*sorters.TASKS, "sorting")
    assert {flag[2:].split("=")[0] for flag in flags} <= STUDY_FLAGS


def sweeps_of(reproduction):
    """Returns the sweeps among the commands of a reproduction."""
    return [command for command in reproduction.commands if command.line.startswith("sweep ")]


def cells_of(reproduction):
    """Returns the names of the cells of a reproduction's sweeps."""
    cells = []
    for command in sweeps_of(reproduction):
        _, flags = parse(command.line)
        for loss in flags["losses"][0].split(","):
            for interaction in flags["interactions"][0].split(","):
                varied = [one.partition("=") for one in flags.get("vary", ())]
                for values in itertools.product(*(text.split(",") for _, _, text in varied)):
                    fields = {field: value for (field, _, _), value in zip(varied, values, strict=True)}
                    cells.append({"loss": loss, "interaction": interaction, **fields, **command.name})
    return cells

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
def test_commands_are_sweeps_with_the_baseline_and_cells_of_the_paper(name):
    reproduction = REPRODUCTIONS[name]
    names = []
    for command in reproduction.commands:
        if not command.line.startswith("sweep "):
            continue
        experiment, flags = parse(command.line)
        assert set(flags) <= SWEEP_FLAGS
        varied = dict(one.split("=") for one in flags.get("vary", ()))
        axes = {"loss": flags["losses"][0], "interaction": flags["interactions"][0], **varied}
        axes = {axis: values.split(",") for axis, values in axes.items()}
        cells = grid.build_cells(experiment, axes["loss"], axes["interaction"])
        fields = [tuned.partition("=")[0] for tuned in flags.get("tune", ())]
        for field in (*fields, *varied, *re.findall(r"--config\.([\w.]+)=", command.line)):
            assert any(config.has_field(cell, field) for cell in cells), field
        named = (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))
        names += [{**cell, **command.name} for cell in named]
    assert not reproduction.baseline or dict(reproduction.baseline) in names
    if reproduction.paper:
        papers = [pages.name_of(row["cell"]) for row in pages.paper_values(reproduction.paper)]
        for cell in names:
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
    if program == "first_answer":
        assert configs.get_config(task.removeprefix("--config=")).encoder.name
        return
    assert program == "sorter_experiments"
    assert task.removeprefix("--task=") in (*sorters.TASKS, "sorting")
    assert {flag[2:].split("=")[0] for flag in flags} <= STUDY_FLAGS

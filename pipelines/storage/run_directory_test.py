"""Run directories: errors of damaged files, and of folders of other commands."""

import json
import pathlib
import re

import pytest

from rank4class.pipelines import config
from rank4class.pipelines.storage import run_directory
from rank4class.pipelines.storage.run_directory import RunDirectory, TrainingDirectory, check_folder
from rank4class.pipelines.sweep import grid
from rank4class.pipelines.training import rank_training

DAMAGES = {
    "cut short": ('{"a": ', "Expecting value|not JSON"),
    "twice": ('{"a": 1, "a": 2}', "has the key 'a' twice"),
    "no object": ("NaN", "not a JSON object|no object with the fields of"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("config.json", lambda run: run.experiment()),
        ("config.json", lambda run: run.check_owner(config.Experiment())),
        ("data.json", lambda run: run.data_hashes()),
        ("class_texts.json", lambda run: run.check_data({}, ())),
        ("results.json", lambda run: run.results()),
        ("metrics.jsonl", lambda run: run.history()),
        ("sessions.jsonl", lambda run: run.sessions()),
    ],
)
def test_damaged_files(tmp_path, name, read, damage):
    content, message = DAMAGES[damage]
    run = TrainingDirectory(tmp_path, config.Experiment())
    run.claim({}, ())
    run.unlock()
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"{tmp_path / name}.* ?({message})"):
        read(run)


def test_files_of_others_are_not_removed(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine").touch()
    run = TrainingDirectory(tmp_path, config.Experiment())
    with pytest.raises(ValueError, match=r"model: not written by a run, which would replace it\. Choose"):
        run.claim({})
    assert (tmp_path / "model" / "mine").exists()
    (tmp_path / "data.json").write_text('{"train": "mine.csv"}')
    with pytest.raises(ValueError, match=r"data\.json: not written by a run"):
        run.claim({})


def write_run(path):
    path.mkdir(parents=True)
    for name in run_directory.RUN:
        (path / name).write_text("{}")


FOLDERS = {
    "training": write_run,
    "sweep": lambda path: write_run(path / "mse-dot-seed0"),
    "sweep that tunes": lambda path: write_run(path / "tuning" / "mse-dot-optimizer.learning_rate=0.1"),
}
COMMANDS = {
    "training": lambda path: rank_training.train(config.Experiment(), path),
    "sweep": lambda path: grid.run_grid(
        config.Experiment(), path, losses=["mse"], interactions=["dot"], seeds=[0]
    ),
}


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("command", COMMANDS)
def test_folders_of_other_commands_are_refused(tmp_path, folder, command):
    path = tmp_path / "folder"
    FOLDERS[folder](path)
    before = sorted(tmp_path.rglob("*"))
    kinds = [re.sub(" (that tunes|on a config)$", "", name) for name in (folder, command)]
    if kinds[0] == kinds[1]:
        assert check_folder(path, kinds[0]) == str(path)
        return
    with pytest.raises(ValueError, match=f"^{path}: the folder holds a {kinds[0]}. Choose another --workdir"):
        COMMANDS[command](path)
    assert sorted(tmp_path.rglob("*")) == before


def test_folders_without_a_config(tmp_path):
    def error(path):
        with pytest.raises(FileNotFoundError) as raised:
            RunDirectory(path).experiment()
        return str(raised.value)

    assert error(tmp_path / "x") == f"{tmp_path}/x: no such folder. Give the --workdir of a training."
    assert "not the folder of a run, as it has no config.json" in error(tmp_path)
    for name in ("tuning/mse-dot-rate=0.1", "softmax-dot-seed1", "mse-dot-seed0"):  # a final run comes first
        write_run(tmp_path / name)
        expected = (
            f"{tmp_path}: the folder of a sweep. Give that of one of its runs, such as {tmp_path}/{name}."
        )
        assert error(tmp_path) == expected


def test_a_kill_before_the_claim_leaves_no_data(tmp_path):
    def fail(folder):
        raise OSError("killed")

    run = TrainingDirectory(tmp_path, config.Experiment())
    with pytest.raises(OSError, match="killed"):
        run.claim({"train": "1" * 64}, ("a text",), describe=fail)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "encoder.json").touch()
    run.check_data({"train": "2"}, ("another text",))
    run.claim({"train": "2"})
    run.unlock()
    assert not (tmp_path / "model" / "encoder.json").exists()
    assert not (tmp_path / "class_texts.json").exists()
    with pytest.raises(ValueError, match="made with other examples of the train split"):
        run.check_data({"train": "1"})


def test_folders_with_other_files(tmp_path):
    for kind in ("training", "sweep", "study of sorters"):
        assert check_folder(tmp_path / "new", kind) == str(tmp_path / "new")
        assert check_folder(pathlib.Path("new"), kind) == "new"
    (tmp_path / "features-0.npz").touch()
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert check_folder(tmp_path, "training") == str(tmp_path)
    with pytest.raises(ValueError, match="--workdir='': empty. Set it to a folder."):
        check_folder("", "sweep")

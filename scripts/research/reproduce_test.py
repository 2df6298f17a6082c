"""The command `reproduce`: its list, its errors, and a reproduction from the sweep to the result file."""

import json
import signal
import time

import pytest

from rank4class.scripts.research.papers import reproductions
from rank4class.scripts.research.papers.reproductions import Command, Reproduction

LOSS = """
from rank4class import losses

def my_mse(scores, labels, *, where=None, weights=None):
    return losses.mse(scores, labels, where=where, weights=weights)

@losses.register
class MyMSE(losses.RankingLoss, function=my_mse):
    pass
"""
TINY = "sweep --config=digits_mlp --config.epochs=1 --losses=mse,softmax --interactions=dot --seed=0"


def test_list(command):
    lines = command("reproduce", "--list").stdout.splitlines()
    assert len(lines) == 2 + len(reproductions.REPRODUCTIONS)
    (line,) = (line for line in lines if line.startswith("rankmax/table2 "))
    assert "K1 K5" in line
    assert "ratings.csv" in line


def test_errors_are_one_line(error_of):
    for arguments, message in (
        (["--only=rankmax/tabel2"], "only='rankmax/tabel2': no such reproduction. Did you mean"),
        (["--only=rankmax/table2"], "workdir=None: the runs need a folder. Set --workdir."),
        (["--only=rankmax/table2", "--workdir=x"], "data=None: this experiment needs it. See --list."),
        (["--only=rank4class/many_classes", "--data=x", "--workdir=x"], "data=x: this experiment does not"),
        (["--only=sodeep/table1", "--jobs=2", "--workdir=x"], "jobs=2: this experiment has no sweep. Leave"),
    ):
        assert message in error_of("reproduce", *arguments)


def test_a_failing_sweep_and_paths_that_contain_the_name_of_another(command, tmp_path):
    folder = tmp_path / "CHECKPOINT WORKDIR"
    arguments = ("--only=n_choose_k/letor_lightgbm", f"--data={folder}", f"--workdir={tmp_path / 'runs'}")
    finished = command("reproduce", *arguments)
    assert f"'--config.data.path={folder}" in finished.stdout
    assert finished.returncode == 1
    assert "Traceback" not in finished.stderr


@pytest.mark.usefixtures("restored_registries")
def test_from_the_sweep_to_the_result(command, monkeypatch, tmp_path):
    (tmp_path / "my_mse.py").write_text(LOSS)
    line = f"{TINY.replace('mse', 'my_mse')} --import={tmp_path / 'my_mse.py'}"
    baseline = {"loss": "softmax", "interaction": "dot"}
    tiny = Reproduction("Tiny", (Command(line),), baseline=baseline, paper="rank4class/table12")
    monkeypatch.setitem(reproductions.REPRODUCTIONS, "tiny/digits", tiny)
    arguments = ("--only=tiny/digits", f"--workdir={tmp_path / 'runs'}", f"--results={tmp_path / 'results'}")
    finished = command("reproduce", *arguments)
    assert finished.returncode == 0, finished.stderr
    result = json.loads((tmp_path / "results" / "tiny" / "digits.json").read_text())
    assert [cell["name"]["loss"] for cell in result["cells"]] == ["my_mse", "softmax"]
    assert "loss=softmax,interaction=dot  top1_error (%)  6.56" in finished.stdout
    figure = result["cells"][1]["metrics"]["top1_error"]
    assert f"{figure['mean']:.2f}" in finished.stdout
    assert figure["examples"] == 360


def test_a_signal_lets_the_training_save(opened, tmp_path):
    arguments = ["reproduce", "--only=rank4class/many_classes", f"--workdir={tmp_path}"]
    process = opened(*arguments)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("0/**/metrics.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 75
    assert "Saved after step " in errors, output

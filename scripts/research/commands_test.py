"""The commands of research as users run them, and one-line errors for wrong input."""

import json
import pathlib

import pytest

import rank4class
from rank4class.scripts.research.sorters import study, training

DIGITS = "--config=digits_mlp"
EMBEDDED = pathlib.Path(rank4class.__file__).parent / "scripts/research/configs/embedded_digits.py"


def test_benchmark(command, tmp_path):
    path = tmp_path / "rows.jsonl"
    flags = ["--suite=metrics", "--names=mrr", "--sizes=4x6", f"--json={path}"]
    finished = command("benchmark", *flags)
    assert finished.returncode == 0, finished.stderr
    assert "metrics, 4x6" in finished.stdout
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert {row["suite"] for row in rows} == {"metrics"}
    assert all(row["seconds"] > 0.0 for row in rows)


def test_errors_of_benchmark(error_of, tmp_path):
    results = tmp_path / "rows.jsonl"
    results.write_text("earlier\n")
    line = error_of("benchmark", "--suite=projections", "--sizes=8x10", f"--json={results}")
    assert results.read_text() == "earlier\n"
    assert "size='8x10': not of the form BATCHxCLASSESxK. Choose one such as 16x1000x1." in line
    line = error_of("benchmark", f"--json={tmp_path / 'no' / 'rows'}")
    assert line.endswith("rows: cannot be written (No such file or directory). Choose another file.")


def test_train_sorter(command, error_of, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "EPOCH", 100)
    flags = ("--sizes=4", "--epochs=1", "--batch_size=50", f"--workdir={tmp_path / 'sorter'}")
    trained = command("train_sorter", *flags).stdout
    results = json.loads((tmp_path / "sorter" / "results.json").read_text())
    [line] = [line.split() for line in trained.splitlines() if line.startswith("l1@4")]
    assert line[1] == f"{results['validation']['l1@4']['mean']:.5f}"
    assert (tmp_path / "sorter" / "sorter.safetensors").stat().st_size > 100
    new = f"--workdir={tmp_path / 'new'}"
    message = "move=0: sorter 'equivariant' needs a positive one"
    assert message in error_of("train_sorter", "--move=0", new)
    assert "sizes=['five']: not integers. Write integers." in error_of("train_sorter", "--sizes=five", new)


def test_sorter_experiments_multi_label(command, error_of, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "LEARNING_RATES", (0.01,))
    flags = [f"--config={EMBEDDED}", "--config.data.features=pixels", "--config.data.num_examples=200"]
    flags += ["--task=multi_label", "--rank_fns=handcrafted", "--seed=0", "--epochs=4"]
    flags.append(f"--workdir={tmp_path}/run")
    finished = command("sorter_experiments", *flags)
    assert finished.returncode == 0, finished.stderr
    test = json.loads((tmp_path / "run" / "study.json").read_text())["test"]
    assert list(test) == ["sigmoid_cross_entropy", "map_ranks@handcrafted", "map_precision@handcrafted"]
    for values in test.values():
        assert 25.0 < values["map"][0] < 60.0  # 25 by chance: a quarter of the classes is relevant
        assert f"{values['map'][0]:.2f}" in finished.stdout
    changed = [*flags, "--config.data.split_seed=1"]
    message = "study.json: the result of a study of other data or seeds. Choose another --workdir."
    assert message in error_of("sorter_experiments", *changed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--task=map --workdir=", "--workdir: missing. Set it for --task=map."),
        ("--task=map --scores=x --workdir=x", "--scores: not used by --task=map. Remove it."),
        ("--table=x", "--table: not used by --task=sorting. Remove it."),
        ("--scores=x --workdir=x", "--workdir: has no effect with --scores. Remove it."),
        ("--rank_fns=", "--rank_fns=: names no rank function. Name at least one."),
        ("--task=regression --table=x --workdir=x", "--target: missing. Set it for --task=regression."),
        ("--scores=x", "x: no such file. Write it with rank4class evaluate --output=FOLDER"),
        (f"--task=multi_label {DIGITS} --loss=mse --workdir=x", "--loss: has no effect on this command."),
    ],
)
def test_errors_are_one_line(error_of, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in error_of("sorter_experiments", *arguments.split())


def test_errors_of_lightgbm(error_of):
    message = "--config.epochs: has no effect on this command. Leave it out."
    assert message in error_of("lightgbm_peer", DIGITS, "--config.epochs=2", "--workdir=x")


def test_rank_functions_on_the_scores_of_a_run(command, digits_run, tmp_path):
    folders = (f"--workdir={digits_run.workdir}", f"--output={tmp_path / 'test'}")
    assert command("evaluate", *folders).returncode == 0
    scores = f"--scores={tmp_path / 'test' / 'predictions.npz'}"
    assert "sigmoid" in command("sorter_experiments", "--rank_fns=sigmoid", scores).stdout

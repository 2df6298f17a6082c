"""Every door as a user opens it: the documented commands, and one clear line for every mistake."""

import json
import os
import subprocess
import sys

import pytest

DIGITS = "--config=" + os.path.join(os.path.dirname(__file__), "..", "pipelines", "configs", "digits_mlp.py")
QUICK = ("--config.epochs=1", "--config.encoder.hidden=(16,)")


def run(door, *arguments):
    command = [sys.executable, "-m", f"rank4class.scripts.{door}", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def error_line(finished):
    """Returns the one line on the error stream; the exit is not 0."""
    assert finished.returncode == 1
    (line,) = (line for line in finished.stderr.splitlines() if not line.startswith("I"))  # absl's log
    assert line.startswith("error: ")
    return line


@pytest.mark.slow
def test_train_then_evaluate(tmp_path):
    path = tmp_path / "run"
    trained = run("train", DIGITS, *QUICK, f"--workdir={path}")
    assert trained.returncode == 0, trained.stderr
    assert "17/17" in trained.stdout
    assert "TensorBoard: tensorboard --logdir" in trained.stdout
    results = json.loads((path / "results.json").read_text())
    evaluated = run("evaluate", f"--workdir={path}", "--split=test")
    assert evaluated.returncode == 0, evaluated.stderr
    line = next(line for line in evaluated.stdout.splitlines() if line.startswith("ndcg@5"))
    low, high = results["test"]["intervals"]["ndcg@5"]
    bits = results["test"]["information"]["ndcg@5"]["bits"]
    assert (
        line.split()
        == f"ndcg@5 (%) {results['test']['ndcg@5']:.2f} [{low:.2f}, {high:.2f}] {bits:.2f}".split()
    )
    on_train = run("evaluate", f"--workdir={path}", "--split=train")
    assert "train (1,078 examples)" in on_train.stdout
    again = run("train", DIGITS, *QUICK, f"--workdir={path}")
    assert again.returncode == 0
    assert "finished already" in again.stderr
    other = run("train", DIGITS, *QUICK, "--config.loss.name=mse", f"--workdir={path}")
    assert "holds another experiment: loss.name is 'softmax' there and 'mse' here" in error_line(other)


@pytest.mark.slow
def test_demo(tmp_path):
    finished = run("demo", f"--workdir={tmp_path}", "--seeds=1")
    assert finished.returncode == 0, finished.stderr
    assert "[  9/9] approx_ndcg-concat_mlp-seed0: top1_error" in finished.stdout
    assert "tensorboard --logdir" in finished.stdout
    for name in ("report.md", "metrics.png", "curves.png"):
        assert (tmp_path / name).stat().st_size > 500


@pytest.mark.slow
def test_sweep_on_a_frozen_encoder(tmp_path, tiny_goemotions, tiny_bert):
    config = tmp_path / "frozen.py"
    config.write_text(
        "from rank4class.pipelines import config\n"
        "def get_config():\n"
        "    return config.Experiment(\n"
        f"        data=config.Data(name='goemotions', path={str(tiny_goemotions)!r}, max_length=8),\n"
        f"        encoder=config.Encoder(name='bert', path={tiny_bert!r}, frozen=True),\n"
        "        batch_size=8,\n"
        "    )\n"
    )
    path = tmp_path / "grid"
    finished = run(
        "sweep",
        f"--config={config}",
        f"--workdir={path}",
        "--losses=softmax,rescaled_mse",
        "--interactions=dot,lc_mlp",
        "--config.interaction.units=4",
        "--seed=0",
        "--seed=1",
        "--learning_rate=0.01",
        "--learning_rate=0.001",
    )
    assert finished.returncode == 0, finished.stderr
    assert "[ 16/16] rescaled_mse-lc_mlp-seed1" in finished.stdout
    assert "frozen" in (path / "report.md").read_text()
    assert len([name for name in os.listdir(path) if name.startswith("features-")]) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config.loss.nme=mse"], "an experiment has no field 'loss.nme', did you mean 'loss.name'?"),
        (["--config.loss.name=softmx"], "unknown loss 'softmx', did you mean 'softmax'?"),
        (["--config.epochs=many"], "flag --config.epochs=many: could not convert string to float: 'many'"),
        (["--wrkdir=x"], "Unknown command line flag 'wrkdir'. Did you mean: workdir ?"),
        (["somewhere"], "there are no positional arguments: somewhere"),
        (["--config=nowhere.py"], "no config file nowhere.py"),
        (["--config.data.name=goemotions", "--config.data.path=nowhere"], "no file nowhere/emotions.txt"),
        (
            ["--config.encoder.name=vgg16"],
            "error: VGG16 takes images of 32 x 32 x",
        ),
        (["--config.loss.name=mse", "--config.optimizer.learning_rate=1e30"], "loss 'mse' is "),
    ],
)
def test_a_mistake_is_one_clear_line(tmp_path, arguments, message):
    finished = run("train", DIGITS, f"--workdir={tmp_path / 'run'}", *arguments)
    assert message in error_line(finished)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("text\t28\tid", "train.tsv:41 has the label 28, outside the classes 0..2"),
        ("only text", "train.tsv:41 has 1 tab-separated columns, not 3 (text, label ids, comment id)"),
    ],
)
def test_a_broken_row_is_one_clear_line(tmp_path, tiny_goemotions, tiny_bert, row, message):
    path = tiny_goemotions / "train.tsv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:40], row, *lines[40:]]) + "\n")
    flags = [
        "--config.data.name=goemotions",
        f"--config.data.path={tiny_goemotions}",
        f"--config.encoder.path={tiny_bert}",
    ]
    config = tmp_path / "bert.py"
    config.write_text(
        "from rank4class.pipelines import config\n"
        "def get_config():\n"
        "    return config.Experiment(encoder=config.Encoder(name='bert'))\n"
    )
    finished = run("train", f"--config={config}", f"--workdir={tmp_path / 'run'}", *flags)
    assert message in error_line(finished)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("def get_config(:\n", "cannot be used: SyntaxError"),
        ("import nowhere_to_be_found\n", "cannot be used: ModuleNotFoundError"),
        ("def get_config():\n    return {}\n", "get_config() returns dict, not config.Experiment"),
    ],
)
def test_a_broken_config_is_one_clear_line(tmp_path, program, message):
    (tmp_path / "mine.py").write_text(program)
    assert message in error_line(
        run("train", f"--config={tmp_path / 'mine.py'}", f"--workdir={tmp_path}/run")
    )


def test_evaluate_without_a_run(tmp_path):
    assert "is not a run's folder: it has no config.json" in error_line(
        run("evaluate", f"--workdir={tmp_path}")
    )


def test_flags_that_have_to_be_there():
    assert "--workdir" in error_line(run("train", DIGITS))
    assert "--config" in error_line(run("train", "--workdir=x"))


@pytest.mark.slow
def test_convert_then_train_with_class_names(tmp_path, tiny_goemotions, tiny_bert):
    own = tmp_path / "own"
    converted = run("convert_checkpoint", f"--checkpoint={tiny_bert}", f"--output={own}")
    assert converted.returncode == 0, converted.stderr
    assert "Hugging Face BERT folder, " in converted.stdout
    assert f"Use it as --config.encoder.path={own}" in converted.stdout
    assert "choose another folder" in error_line(
        run("convert_checkpoint", f"--checkpoint={tiny_bert}", f"--output={own}")
    )
    trained = run(
        "train",
        "--config=" + os.path.join(os.path.dirname(DIGITS.partition("=")[2]), "goemotions_bert.py"),
        f"--config.data.path={tiny_goemotions}",
        f"--config.encoder.path={own}",
        "--config.data.max_length=8",
        "--config.class_encoder.name=text",
        "--config.interaction.name=cosine",
        "--config.data.held_out=('anger',)",
        "--config.metrics=('top1_error', 'mean_rank')",
        "--config.monitor=mean_rank",
        "--config.steps=3",
        f"--workdir={tmp_path / 'run'}",
    )
    assert trained.returncode == 0, trained.stderr
    assert f"{own}: rank4class folder" in trained.stderr
    assert "test (4 examples)" in trained.stdout


@pytest.mark.slow
def test_data(tmp_path, tiny_goemotions, tiny_bert):
    goemotions = "--config=" + os.path.join(os.path.dirname(DIGITS.partition("=")[2]), "goemotions_bert.py")
    path = tmp_path / "described"
    flags = [goemotions, f"--config.data.path={tiny_goemotions}", f"--config.encoder.path={tiny_bert}"]
    finished = run("data", *flags, "--config.data.max_length=4", f"--output={path}")
    assert finished.returncode == 0, finished.stderr
    words = " ".join(finished.stdout.split())  # lines break where the folder's name lets them
    assert "40 train, 10 validation, 11 test examples of 3 classes." in words
    assert "cuts 100.00% of the training texts" in words
    assert ["test", "train", "11", "100.00", "0"] in [line.split() for line in finished.stdout.splitlines()]
    assert f"Report with plots: {path / 'data.md'}" in finished.stdout
    for name in ("data.md", "classes.png", "lengths.png"):
        assert (path / name).stat().st_size > 500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config.data.pth=x"], "an experiment has no field 'data.pth', did you mean 'data.path'?"),
        (["--config.data.name=goemotions", "--config.data.path=nowhere"], "no file nowhere/emotions.txt"),
        (["--output=FILE"], "FILE"),
        (["--output=FILE/within"], "FILE/within"),
    ],
)
def test_a_mistake_in_describing_is_one_clear_line(tmp_path, arguments, message):
    (tmp_path / "FILE").write_text("in the way")
    flags = [argument.replace("FILE", str(tmp_path / "FILE")) for argument in arguments]
    line = error_line(run("data", DIGITS, f"--output={tmp_path / 'described'}", *flags))
    assert message.replace("FILE", str(tmp_path / "FILE")) in line
    assert not (tmp_path / "described").exists()

"""The common part of all commands: configs by name, help, and flags that are refused at once."""

import os
import subprocess
import sys

import pytest
from absl import flags

from rank4class.models import sorters
from rank4class.pipelines import config, configs
from rank4class.pipelines.sorters import sorter_config, study
from rank4class.scripts import cli
from rank4class.scripts.benchmarks import suites

COMMANDS = [
    file.removesuffix(".py")
    for file in sorted(os.listdir(os.path.dirname(cli.__file__)))
    if file.endswith(".py") and not file.endswith("_test.py") and file not in ("__init__.py", "cli.py")
]
WITH_CONFIG = {"describe_data", "sorter_experiments", "sweep", "train"}

# Runs a command; its last line says how it ended, and whether it has imported TensorFlow.
COMMAND = """
import runpy, sys
name = sys.argv.pop(1)
try:
    runpy.run_module(f"rank4class.scripts.{name}", run_name="__main__", alter_sys=True)
except SystemExit as ended:
    print(ended.code or 0, "tensorflow" in sys.modules)
"""


def run_all(*commands):
    """Runs commands at the same time; returns (output, errors) of each."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", COMMAND, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    return [process.communicate(timeout=300) for process in started]


@pytest.mark.nightly
def test_help_lists_all_flags_and_fields_at_once():
    for command, (output, errors) in zip(
        COMMANDS, run_all(*([name, "--help"] for name in COMMANDS)), strict=True
    ):
        assert output.endswith("\n0 False\n"), errors
        assert f"python -m rank4class.scripts.{command}" in output
        assert "--debug\n" in output
        fields = [line.split() for line in output.splitlines() if line.startswith("  --config.")]
        expected = config.values(config.Experiment()) if command in WITH_CONFIG else {}
        assert [field[0].removeprefix("--config.") for field in fields] == list(expected)
        assert "logtostderr" not in output


def test_help_shows_the_defaults():
    (train, _), (sweep, _), (sorter, _), (benchmark, _), (experiments, _) = run_all(
        ["train", "--config=digits_mlp", "-h"],
        ["sweep", "--helpshort", "--config=digits_mlp"],
        ["train_sorter", "-help"],
        ["benchmark", "--help"],
        ["sorter_experiments", "--help"],
    )
    assert "  --workdir\n      The run's folder. (required)" in train
    assert "  --strategy\n      <default|mirrored|multi_worker|tpu>: " in train
    assert "  --config.batch_size                       64\n" in train
    assert "  --config.loss.name                        'softmax'\n" in train
    assert "(default: 'dot,lc_mlp,concat_mlp')" in sweep
    assert f"<{'|'.join(sorters.LEARNED)}>: What to train. (default: 'equivariant')" in sorter
    assert sorter_config.LEARNED == sorters.LEARNED
    assert f"<{'|'.join(suites.names())}>:" in "".join(benchmark.split("\n      "))
    words = " ".join(experiments.split())
    assert f"<sorting|{'|'.join(study.TASKS)}|multi_label>: " in words
    assert f"(default: '{','.join(study.RANK_FNS)}')" in words
    assert str(list(study.SEEDS)) in words


@pytest.mark.nightly
def test_a_wrong_config_is_refused_at_once(tmp_path):
    (tmp_path / "typed.py").write_text(
        "from rank4class.pipelines import config\n"
        "def get_config():\n"
        "    return config.Experiment(loss='softmax')\n"
    )
    mistakes = {
        (
            "train",
            "--config=nope",
            "--workdir=x",
        ): "--config=nope: neither a file nor a packaged config",
        (
            "sweep",
            "--config",
            "nope",
            "--workdir=x",
        ): "--config=nope: neither a file nor a packaged config",
        ("describe_data", "--config=digits_mpl.py"): "Did you mean --config=digits_mlp? Packaged: cifar10",
        (
            "train",
            "--config=digits_mlp",
            "--config.los.name=x",
        ): "los.name: no such field of an experiment. Did you mean 'loss.name'?",
        ("train", "--config=digits_mlp", "--noconfig.jit_compil"): "Did you mean 'jit_compile'?",
        ("train", "--config=digits_mlp", "--loss=rankmx"): "loss='rankmx': unknown. Did you mean 'rankmax'?",
        ("train", "--config=digits_mlp"): "--workdir: missing. Set --workdir=VALUE; --help shows all flags.",
        ("train", f"--config={tmp_path / 'typed.py'}", "--workdir=x"): "ValueError: loss='softmax': expected "
        "config.Loss. Write config.Loss(name='softmax').",
    }
    for message, (output, errors) in zip(mistakes.values(), run_all(*mistakes), strict=True):
        assert output == "1 False\n"
        assert errors.startswith("error: ")
        assert errors.count("\n") == 1
        assert message in errors


def test_a_config_is_found_by_its_name_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packaged = cli.load_config("digits_mlp")
    assert packaged == cli.load_config(os.path.join(configs.__path__[0], "digits_mlp.py"))
    assert packaged.batch_size == 64
    assert {"digits_mlp", "goemotions_minilm"} < set(cli.packaged_configs())
    (tmp_path / "digits_mlp.py").write_text(
        "from rank4class.pipelines import config\nget_config = lambda: config.Experiment(batch_size=7)\n"
    )
    assert cli.load_config("digits_mlp") == packaged
    assert cli.load_config("digits_mlp.py").batch_size == 7
    (tmp_path / "digits_mlp").mkdir()
    assert cli.load_config("digits_mlp") == packaged
    os.rmdir("digits_mlp")
    os.rename("digits_mlp.py", "digits_mlp")
    assert cli.load_config("digits_mlp").batch_size == 7


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pipelines/configs/digits_mlp.py", r"Did you mean --config=digits_mlp\?"),
        ("goemotion_minilm", r"Did you mean --config=goemotions_minilm\?"),
        ("", "--config=: neither a file nor a packaged config"),
        (".", "neither a file nor a packaged config"),
        ("__init__", "neither a file nor a packaged config"),
    ],
)
def test_what_is_no_config_is_named(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=message):
        cli.load_config(name)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("def get_config(:\n", "cannot be used: SyntaxError"),
        ("import nowhere_to_be_found\n", "cannot be used: ModuleNotFoundError"),
        ("x = 1\n", "cannot be used: KeyError: 'get_config'"),
        ("def get_config():\n    return {}\n", "get_config.. returns dict, not config.Experiment"),
    ],
)
def test_a_config_that_cannot_be_used(tmp_path, program, message):
    (tmp_path / "mine.py").write_text(program)
    with pytest.raises(flags.IllegalFlagValueError, match=message):
        cli.load_config(str(tmp_path / "mine.py"))

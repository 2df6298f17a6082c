"""Configs by name, help, and errors of flags that are reported before TensorFlow is imported."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import sysconfig

import pytest

import rank4class
from rank4class import __main__ as program
from rank4class.pipelines import config
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.scripts import cli

COMMANDS = list(program.summaries())
WITH_CONFIG = {
    "check_labels",
    "describe_data",
    "first_answer",
    "lightgbm_peer",
    "sorter_experiments",
    "sweep",
    "train",
}

# Runs a command; prints the exit code, and whether TensorFlow has been imported.
COMMAND = """
import runpy, sys
from rank4class import __main__ as program
name = sys.argv.pop(1)
try:
    runpy.run_module(program.module_of(name), run_name="__main__", alter_sys=True)
except SystemExit as ended:
    print(ended.code or 0, "tensorflow" in sys.modules)
"""


def run_all(*commands):
    """Runs commands at the same time; returns (output, errors) of each."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([sys.executable, "-c", COMMAND, *command], **streams) for command in commands]
    return [process.communicate(timeout=300) for process in started]


@pytest.mark.nightly
def test_help_lists_all_flags_and_fields_without_importing_tensorflow():
    printed = run_all(*([name, "--help"] for name in COMMANDS))
    for command, (output, errors) in zip(COMMANDS, printed, strict=True):
        assert output.endswith("\n0 False\n"), errors
        assert f"rank4class {command}" in output
        assert "  --[no]debug: " in output
        fields = re.findall(r"^  --(?:\[no\])?config\.(\S+): ", output, re.MULTILINE)
        expected = config.values(config.Experiment()) if command in WITH_CONFIG else {}
        assert sorted(fields) == sorted(expected)
        assert "logtostderr" not in output


def test_version(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rank4class", "--version"])
    program.main()
    assert capsys.readouterr().out == f"rank4class {rank4class.__version__}\n"


def test_help_shows_the_defaults():
    (train, _), (sweep, _), (sorter, _) = run_all(
        ["train", "--config=digits_mlp", "-h"],
        ["sweep", "--help", "--config=digits_mlp"],
        ["train_sorter", "-help"],
    )
    assert "  --workdir: Folder of the run.\n" in train
    assert "\n    rank4class train --config=digits_mlp" in train
    assert "  --strategy: <default|mirrored|multi_worker|tpu>: " in train
    assert "  --config.batch_size: 64\n" in train
    assert "  --config.loss.name: 'softmax'\n" in train
    assert "(default: 'dot,lc_mlp,concat_mlp')" in sweep
    assert "<cnn|lstm|equivariant>: Sorter to train.\n    (default: 'equivariant')" in sorter


TRAIN = "train --workdir=x --config=digits_mlp"
ERRORS = {
    f"{TRAIN} --learning_rate=0.01": "no such flag. Did you mean --config.optimizer.learning_rate?",
    f"{TRAIN} --work_dir=x": "--work_dir: no such flag. Did you mean --workdir?",
    f"{TRAIN} --epochs=3": "Did you mean --config.epochs?",
    "sorter_experiments --loss=mse": "--loss: has no effect without --config. Set both.",
    "train --flagfile=FOLDER/flags --workdir=x": "loss='rankmx': unknown. Did you mean 'rankmax'?",
}
MORE_ERRORS = {
    f"{TRAIN} --data=text_file --data.text-column=words": "Did you mean --config.data.text_column?",
    f"{TRAIN} --data=text_file --encoder=bert --path=x": "--config.data.path or --config.encoder.path?",
    f"{TRAIN} --config.los.name=x": "los.name: no such field of an experiment. Did you mean '--config.loss",
    f"{TRAIN} --noconfig.jit_compil": "Did you mean 'jit_compile'?",
    "predict --workdir=x --input=x --epochs=3": "--epochs: no such flag. --help shows all flags.",
    "sweep --config nope --workdir=x": "--config=nope: neither a file nor a packaged config",
    "describe_data --config=digits_mpl.py": "Did you mean 'digits_mlp'? Packaged: cifar10",
    "train --config.data.path FOLDER/a.csv --workdir=x": "--config: missing. Set --config=VALUE; --help",
    "train --config=digits_mlp": "--workdir: missing. Set --workdir=VALUE; --help shows all flags.",
    "train --config=FOLDER/typed.py --workdir=x": "loss='softmax': expected Loss. Change its type.",
}
TEXTS = "--config=text_file_minilm --config.data.path"
FILE_ERRORS = {
    "train FOLDER/two.csv": "two.csv: a, b may each be the label. Choose with --config.data.label_column.",
    "describe_data FOLDER/no.csv": "no.csv: no such file or folder. Check the path.",
    f"train --workdir=FOLDER/x {TEXTS}=FOLDER/no.csv": "no.csv: no such file or folder. Check the path.",
}
RUN_ERRORS = {
    "export FOLDER/nowhere": "nowhere: no such folder. Give the --workdir of a training.",
    "predict FOLDER/run FOLDER/none.txt": "none.txt: no such file or folder. Check the path.",
    "predict FOLDER/run FOLDER/two.csv --text_column=body": "two.csv: no column 'body'. The columns are",
    "evaluate FOLDER/run --data.path=FOLDER/two.csv": "no column 'label'. The columns are 'text', 'a', 'b'.",
    "compare FOLDER/run FOLDER": ": not the folder of a run, as it has no config.json.",
}
MORE_FILE_ERRORS = {
    f"describe_data {TEXTS}=FOLDER/a.csv --config.data.label_column=lbel": "a.csv: no column 'lbel'. Did you",
    f"train --workdir=FOLDER/x {TEXTS}=FOLDER/a.csv --config.data.text_column=b": "Choose among them with --",
    f"train --workdir=FOLDER/x {TEXTS}=FOLDER/utf16.csv": "utf16.csv: the file is in UTF-16. Save it as",
    f"describe_data {TEXTS}=FOLDER/a.csv --config.data.classes=FOLDER/no.txt": "no.txt: no such file.",
    "describe_data --config=table_mlp --config.data.path=FOLDER/a.parquet": "a.parquet: cannot be read: ",
}


@pytest.mark.parametrize(
    "messages",
    [
        ERRORS,
        FILE_ERRORS,
        RUN_ERRORS,
        *(pytest.param(each, marks=[pytest.mark.nightly]) for each in (MORE_ERRORS, MORE_FILE_ERRORS)),
    ],
)
def test_errors_are_reported_without_importing_tensorflow(tmp_path, messages):
    (tmp_path / "a.csv").write_text("text,label\na text,x\n")
    (tmp_path / "two.csv").write_text("text,a,b\n" + "a text,x,y\nanother text,y,x\n" * 3)
    (tmp_path / "utf16.csv").write_text("text,label\na text,x\n", encoding="utf-16")
    (tmp_path / "a.parquet").write_text("text,label\na text,x\n")
    (tmp_path / "flags").write_text("--config=digits_mlp\n--loss=rankmx\n")
    (tmp_path / "run").mkdir()
    experiment = config.Experiment(data=config.Data("text_file", path="x", text_column="text"))
    (tmp_path / "run" / "config.json").write_text(config.to_json(experiment))
    typed = "def get_config():\n    return config.Experiment(loss='softmax')\n"
    (tmp_path / "typed.py").write_text(f"from rank4class.pipelines import config\n{typed}")
    commands = [command.replace("FOLDER", str(tmp_path)).split() for command in messages]
    for message, (output, errors) in zip(messages.values(), run_all(*commands), strict=True):
        assert output == "1 False\n"
        assert errors.startswith("error: ")
        assert errors.count("\n") == 1
        assert message in errors


FLAGS_OF_A_COMMAND = """
import json, sys
from absl import flags
from rank4class.scripts import cli
cli.define_config()
cli.define_strategy()
workdir = flags.DEFINE_string("workdir", None, "")
flags.DEFINE_float("margin", 0.5, "", lower_bound=0.0)
arguments, messages, wrong = json.loads(sys.argv[1])
cli._parse(["train", *arguments], ["config.data.path"], "runs/{}")
print(workdir.value, sorted(cli.overrides().items()), flags.FLAGS["config"].value.steps)
for message in messages:
    print(cli._with_flags(message))
for flag in wrong:
    flags.FLAGS.unparse_flags()
    try:
        cli._parse(["train", "--config=digits_mlp", flag], [], None)
    except SystemExit:
        pass
"""


def test_fields_among_the_flags_and_in_the_errors_of_a_command():
    arguments = ["--config.steps=3", "--workdir", "x", "--config.jit_compile", "--config.seed", "-1"]
    arguments += ["--noconfig.data.cache", "--config", "text_file_minilm"]
    fields = [("data.cache", False), ("jit_compile", True), ("seed", -1), ("steps", 3)]
    messages = [
        "data.path=nowhere: no such file. Set encoder.path or loss.name, no loss.x.",
        "runs/data.path, data.path.bak, my_data.path, --config.data.path and --tune=optimizer.decay",
        "tune='optimizer.decay=1': optimizer.decay has values already.",
    ]
    as_flags = "--config.data.path=nowhere: no such file. Set --config.encoder.path or --config.loss.name"
    wrong = {
        "--config.optimizer.learning_rate='abc'": "not a number. Write a number.",
        "--config.batch_size='1.5'": "not an integer. Write an integer.",
        "--config.encoder.hidden='x'": "not an integer. Write an integer.",
        "--config.jit_compile='abc'": "not true or false. Write true or false.",
        "--margin=abc": "not a number. Write a number.",
        "--margin=-1": "not a non-negative number. Write a non-negative number.",
        "--strategy=abc": "unknown. Choose one of default|mirrored|multi_worker|tpu.",
    }
    request = json.dumps([arguments, messages, [flag.replace("'", "") for flag in wrong]])
    command = [sys.executable, "-c", FLAGS_OF_A_COMMAND, request]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.stdout.splitlines() == [f"x {fields} 3", f"{as_flags}, no loss.x.", *messages[1:]]
    assert ended.stderr.splitlines() == [f"error: {flag}: {text}" for flag, text in wrong.items()]


def test_a_file_chooses_the_config_and_the_folder(tmp_path):
    rows = "1\ta long text\tx\n2\tno text\ty\n2\tthe text\tx\n" * 3
    (tmp_path / "comments.tsv").write_text(f"n\tmessage\ttopic\n{rows}")
    path = str(tmp_path / "comments.tsv")
    chosen = [("data.feature_columns", ("n",)), ("data.label_column", "topic"), ("data.name", "table")]
    chosen += [("data.path", path)]
    chosen += [("data.text_column", "message"), ("encoder.frozen", True), ("steps", 3)]
    line = f"{path}: texts in column 'message', beside them the columns n, labels in column 'topic' (or "
    named = [("data.path", path), ("steps", 3)]
    for arguments, printed in (
        ([path], ["runs/comments", chosen, line]),
        ([f"--config.data.path={path}", "--workdir=x"], ["x", chosen, line]),
        ([path, "--config", "table_mlp"], ["runs/comments", named, ""]),
    ):
        request = json.dumps([[*arguments, "--config.steps=3"], [], []])
        command = [sys.executable, "-c", FLAGS_OF_A_COMMAND, request]
        *lines, values = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
        assert values == f"{printed[0]} {printed[1]} 3"
        assert "".join(lines).startswith(printed[2])


def test_a_missing_package_is_an_error_of_one_line(command, monkeypatch):
    def fail(*_):
        raise ImportError("lightgbm: not installed. Install it.")

    monkeypatch.setattr(RunDirectory, "experiment", fail)
    ended = command("compare", "--workdir=a", "--workdir=b")
    assert (ended.returncode, ended.stderr) == (1, "error: lightgbm: not installed. Install it.\n")


def test_logs_have_no_prefix_but_the_level_of_a_warning():
    record = logging.LogRecord("absl", logging.WARNING, "rows.py", 3, "%d left out", (2,), None)
    assert cli.Plain().format(record) == "warning: 2 left out"
    record = logging.LogRecord("absl", logging.INFO, "trainer.py", 3, "Going on", (), None)
    assert cli.Plain().format(record) == "Going on"


def test_logs_of_other_packages_are_shown_from_errors_on():
    library = os.path.join(sysconfig.get_path("purelib"), "matplotlib", "font_manager.py")
    for path, level, is_shown in (
        (cli.__file__, logging.INFO, True),
        ("/home/user/my_parts.py", logging.INFO, True),
        (library, logging.WARNING, False),
        (library, logging.ERROR, True),
    ):
        assert cli.is_shown(logging.LogRecord("x", level, path, 3, "a message", (), None)) == is_shown


def test_tensorflow_starts_quietly_without_debug():
    program = f"import os\n{COMMAND}\nprint(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    for debug, level in (((), "3"), (("--debug",), "0")):
        command = [sys.executable, "-c", program, "predict", "--help", *debug]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1"}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert ended.stdout.splitlines()[-1] == level


# Writes as C++ code does, and crashes.
CRASH = """
import os, sys
from rank4class.scripts import cli
cli.filter_stderr()
print("of Python", file=sys.stderr)
os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\\n")
os.write(2, b"I0000 00:00:1795706049.516920    3799 device_compiler.h:196] Compiled cluster using XLA!\\n")
os.write(2, b"E0000 00:00:1795706049.516920    3799 computation_placer.cc:177] already registered\\n")
os.write(2, b"F0000 00:00:1795706049.516920    3799 tensor.cc:3] Check failed\\n")
os.abort()
"""


def test_the_log_of_c_plus_plus_code_is_hidden_except_for_fatal_errors():
    ended = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True)
    message, fatal = ended.stderr.splitlines()
    assert (ended.returncode, message) == (-signal.SIGABRT, "of Python")
    assert fatal.endswith("tensor.cc:3] Check failed")


@pytest.mark.nightly
def test_a_training_prints_and_writes_nothing_else(tmp_path):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0", "HOME": str(tmp_path / "home")}
    for name in ("KERAS_HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME"):
        environment.pop(name, None)
    flags = ["--config=digits_mlp", "--config.steps=1", "--config.jit_compile=True", "--workdir=run"]
    command = [sys.executable, "-m", "rank4class", "train", *flags]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Training: epochs=0.1, steps=1, batch_size=64\nstep 1 of 1, epoch 0.1 of")
    [cache] = (path for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert cache.match(".cache/matplotlib/fontlist-*.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "run"]


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"]])
def test_commands_end_quietly_when_the_reader_of_their_output_has_ended(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "rank4class", *arguments]
    with open(writer, "wb") as pipe:
        ended = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")

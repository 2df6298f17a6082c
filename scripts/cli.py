"""Shared by all commands: config flags, logs, and one-line errors in place of tracebacks.

TensorFlow is imported after the flags are parsed, so that `--help` and wrong flags are reported at once.
"""

from __future__ import annotations

import difflib
import logging as python_logging
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import typing
from collections.abc import Callable, Sequence

from absl import flags, logging

from rank4class import __main__ as program
from rank4class import arguments
from rank4class.pipelines import config, configs
from rank4class.pipelines.training.preemption import Interrupted
from rank4class.registry import DATASETS, FILES

if typing.TYPE_CHECKING:
    import tensorflow as tf

    from rank4class.pipelines.evaluation.trained_model import TrainedModel
    from rank4class.pipelines.task_data.task_data import TaskData

flags.DEFINE_bool(
    "debug", False, "Print the full traceback of an error, and the messages of TensorFlow and other packages."
)
flags.DEFINE_bool("help", False, "Show the flags, and the fields of the config.", short_name="h")
flags.DEFINE_multi_string(
    "import", [], "Python file or module to import first, which registers your parts; may be repeated."
)

_MINUTES = {"minutes", "config.minutes"}  # flags of a time budget
STARTED = time.monotonic()  # before TensorFlow is imported
# Raised for invalid files, flags, classes and numbers, and for packages that are not installed. Any other
# exception is a bug and keeps its traceback.
USER_ERRORS = (ValueError, OSError, FloatingPointError, ImportError)
# Exit code after SIGTERM or the loss of a worker: the same command resumes. Schedulers restart on it.
RESUMABLE = 75
NOT_NONE = "must have a value other than None"  # absl's message of flags that are required
# Messages of absl, and the errors shown instead.
_FLAG_ERRORS = {
    rf"flag --(\w+)=None: .*{NOT_NONE}.": r"--\1: missing. Set --\1=VALUE; --help shows all flags.",
    r"flag --config\.(.*?)=.*: (\1=.*)": r"--config.\2",
    r"flag (--.*): could not convert string to float: .*": r"\1: not a number. Write a number.",
    r"flag (--.*): invalid literal for int\(\).*": r"\1: not an integer. Write an integer.",
    r"flag (--.*): \('Non-boolean argument.*": r"\1: neither true nor false. Write true or false.",
    r"flag (--.*): \S+ is not (an? .*)": r"\1: not \2. Write \2.",
    r"flag (--.*): value should be one of <(.*)>": r"\1: unknown. Choose one of \2.",
}
MODULE = re.compile(r"python -m rank4class\.scripts\.(?:research\.)?(\w+)")  # a command in a docstring
_FIELDS = "fields of the config"  # module of the flags `--config.FIELD`
# Folders of other packages, and of this one if it is installed.
_PACKAGES = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
# Abseil's log in C++, to which XLA and gRPC write, has no environment variable.
_FILTER = r"""
import re, sys
log = re.compile(rb"[IWE]\d{4} [\d:.]+ +\d+ \S+:\d+\] |WARNING: All log messages before absl::InitializeLog")
for line in sys.stdin.buffer:
    if not log.match(line):
        sys.stderr.buffer.write(line)
        sys.stderr.flush()
"""


def define_config(required: bool = True) -> flags.FlagHolder:
    """Defines `--config=NAME`, `--config.FIELD=VALUE` and `--PART=NAME`.

    Returns the holder of `--config`, whose value is a `config.Experiment` once the flags are parsed. Without
    the flag it is that of `configs.for_data` for `--config.data.path`, or if not `required` None.
    """
    holder = flags.DEFINE_string(
        "config",
        None,
        f"A packaged config ({', '.join(configs.names())}), or a Python file that defines get_config().",
    )
    if required:
        flags.mark_flag_as_required("config")
    for kind, part in config.PARTS.items():
        names = [name for name in part.names() if part.entries.module_of_user(name) is None]
        flags.DEFINE_string(kind, None, f"Replaces this part of the config: {', '.join(names)}.")
        flags.DEFINE_string(f"config.{kind}.name", None, "", module_name=_FIELDS)  # the same
    return holder


def define_data(purpose: str) -> tuple[flags.FlagHolder, Callable[[TrainedModel], TaskData]]:
    """Defines `--data.path`, of a labeled file for some purpose, and whether its invalid rows are skipped.

    Returns its holder, and a function that loads the file, or the data of the run, for a trained model.
    """
    path = flags.DEFINE_string(
        "data.path", None, f"Labeled file or folder to {purpose}; None: the data of the run."
    )
    meaning = "Stop at a row of --data.path that cannot be used, or skip it."
    on_invalid_row = flags.DEFINE_enum("data.on_invalid_row", "fail", ["fail", "skip"], meaning)

    return path, lambda trained: trained.load(path.value, on_invalid_row.value)


def define_strategy(names: Sequence[str] = config.STRATEGIES) -> Callable[[], tf.distribute.Strategy]:
    """Defines `--strategy`, and `--tpu` if that is one of the names; returns a function that builds it."""
    *places, last = ["one device", "all GPUs of this machine", "the machines of a job", "a TPU"][: len(names)]
    meaning = f"Run on {', '.join(places)} or {last}."
    name = flags.DEFINE_enum("strategy", "default", names, meaning)
    if "tpu" in names:
        flags.DEFINE_string("tpu", None, "For --strategy=tpu: name of the TPU; None: that of this machine.")

    def get() -> tf.distribute.Strategy:
        from rank4class.pipelines import distribution

        return distribution.get(name.value, flags.FLAGS.tpu if "tpu" in names else None)

    return get


def define_log() -> None:
    """Defines `--log`, which sets the environment variable that this process and its children read."""
    flags.DEFINE_string(
        "log", None, "Experiment trackers that get what TensorBoard gets: mlflow, wandb, or mlflow,wandb."
    )


def define_cache() -> None:
    """Defines `--cache`, which sets the environment variable that this process and its children read."""
    flags.DEFINE_string(
        "cache",
        None,
        "Folder of the outputs of encoders, which runs share; off: the folder of each run; None: the folder "
        "$RANK4CLASS_CACHE, or rank4class in $XDG_CACHE_HOME or ~/.cache.",
    )


def report_folder(output: str | None, kind: str, experiment: config.Experiment) -> str:
    """Returns the folder of a report on data: `output`, or that of the kind and the file or dataset.

    It is created. An error comes before the examples are read.
    """
    from rank4class.pipelines.storage import files

    path = getattr(experiment.data, "path", None)
    folder = output or os.path.join("runs", kind, name_of(path) if path else experiment.data.name)
    files.make_writable(folder, f"--output={folder}")
    return folder


def check_files(experiment: config.Experiment) -> None:
    """Raises the errors of the files of an experiment's dataset that show without TensorFlow."""
    part = experiment.data
    if part.name in FILES:
        with arguments.in_section("data."):
            DATASETS.check(part.name, part.options())
        FILES[part.name](**part.options())


def check_run(workdir: str, path: str | None = None, labeled: bool = True, **selected: str | None) -> None:
    """Raises the errors of a run's folder, and of a file for its model, that show without TensorFlow.

    See `RunDirectory.check_file` for the arguments; None is no file, and no column.
    """
    from rank4class.pipelines.storage.run_directory import RunDirectory

    run_dir = RunDirectory(workdir)
    run_dir.experiment()
    if path is not None:
        columns = {name: column for name, column in selected.items() if column is not None}
        run_dir.check_file(path, labeled, **columns)


def run(
    main: Callable[[], None],
    check: Callable[[], None] = lambda: None,
    *,
    arguments: Sequence[str] = (),
    workdir: str | None = None,
    resumes: bool = False,
) -> None:
    """Parses the flags, calls `check` before it imports TensorFlow, and runs a command.

    Errors are reported in one line. A command that `resumes` continues when it is run again with the same
    --workdir. `arguments` are the flags whose values may come first without a name. `workdir` is the default
    of --workdir, with {} for the name of the data.
    """
    with program.ends_at_closed_pipe():
        _parse(sys.argv, arguments, workdir)
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            check()  # before the logs: the command logs the same when it reads the files
            set_up_logs(flags.FLAGS.debug)
            if not flags.FLAGS.debug:
                python_logging.getLogger("tensorflow").setLevel("ERROR")
            for name in ("cache", "log"):
                if name in flags.FLAGS and flags.FLAGS[name].value is not None:
                    os.environ[f"RANK4CLASS_{name.upper()}"] = flags.FLAGS[name].value
            main()
        except BrokenPipeError:
            raise
        except USER_ERRORS as error:
            if flags.FLAGS.debug:
                raise
            _fail(error, RESUMABLE if isinstance(error, ConnectionError) else 1)
        except Interrupted as error:
            print(error, file=sys.stderr)
            sys.exit(_exit_code(error.signal, True))
        except KeyboardInterrupt as error:
            resumes = resumes and bool(flags.FLAGS.workdir)
            print("Interrupted." + " Run the same command again to resume." * resumes, file=sys.stderr)
            sys.exit(_exit_code(error.args[0] if error.args else signal.SIGINT, resumes))


def _exit_code(number: int, resumes: bool) -> int:
    """Returns the exit code after a signal: that of shells for it, or the one that asks for a restart."""
    return RESUMABLE if resumes and number == signal.SIGTERM else 128 + number


def _interrupt(number: int, _: object) -> typing.NoReturn:
    """Handles SIGTERM as Python handles Ctrl-C: unfinished files are removed."""
    raise KeyboardInterrupt(number)


def _named(argv: list[str], arguments: Sequence[str], workdir: str | None) -> list[str]:
    """Returns a command line with its first arguments as flags, and those that follow from its data."""
    count = next((i for i, each in enumerate(argv[1:]) if each[:1] == "-" != each), len(argv) - 1)
    named = [f"--{name}={value}" for name, value in zip(arguments, argv[1 : 1 + count], strict=False)]
    argv = [argv[0], *named, *argv[1 + len(named) :]]
    given = {m[1]: m[2] for each in argv if (m := re.match(r"--?([\w.]+)=?(.*)", each, re.S))}
    path = given.get("config.data.path")
    if not path or "config" not in flags.FLAGS:
        return argv
    added = {}
    if workdir is not None:
        added["workdir"] = workdir.format(name_of(path))
    if "config" not in given:
        options = {name[12:]: value for name, value in given.items() if name.startswith("config.data.")}
        added["config"], changes, recognized = configs.for_data(
            path,
            options,
            bool(_MINUTES & given.keys()),
            given.get("encoder"),
            "config.encoder.path" in given,
        )
        added |= {f"config.{field}": value for field, value in changes.items()}
        print(recognized)
    return [argv[0], *(f"--{name}={value}" for name, value in added.items()), *argv[1:]]


def name_of(path: str) -> str:
    """Returns the name of a file or folder without its endings, which names the folders of results.

    >>> name_of("data/comments.csv.gz"), name_of("photos/")
    ('comments', 'photos')
    """
    return os.path.basename(os.path.abspath(path)).lstrip(".").partition(".")[0]


def _parse(argv: list[str], arguments: Sequence[str], workdir: str | None) -> None:
    """Parses the flags, imports the modules of `--import`, and builds the experiment of `--config`."""
    problem = None
    rest = argv[:1]
    experiment = None
    # Shells do not expand ~ after a flag.
    argv = [re.sub("^(--[^=]+=)(~.*)", lambda m: m[1] + os.path.expanduser(m[2]), each) for each in argv]
    flags.FLAGS.set_gnu_getopt()  # the values of fields follow, which are not flags yet
    try:
        argv = _named(argv, arguments, workdir)
        try:
            rest = flags.FLAGS(argv, known_only=True)
        except flags.Error as error:  # reported after the help, and an error in a file of the user
            problem = error
        # Files of the user may import TensorFlow.
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0" if flags.FLAGS["debug"].value else "3"
        if not flags.FLAGS["debug"].value:
            filter_stderr()
        for name in flags.FLAGS["import"].value:
            try:
                configs.import_user_module(name)
            except Exception as error:  # the user's file may raise any exception
                reason = f"{type(error).__name__}: {error}"
                raise ValueError(f"--import={name}: cannot be imported. {reason}") from error
        if "config" in flags.FLAGS:
            original, names = _chosen()
            # All fields are known before one of them chooses others.
            experiment = config.override(original, {"optimizer.name": original.optimizer.name, **names})
            _define_fields(experiment)
        if flags.FLAGS["help"].value:
            doc = (sys.modules["__main__"].__doc__ or "").strip()
            helps = map(flags.FLAGS.module_help, (sys.argv[0], __name__, _FIELDS))
            print("\n\n".join([as_typed(doc), *filter(None, (text.partition(":\n")[2] for text in helps))]))
            sys.exit()
        if problem:
            raise problem
        if stray := flags.FLAGS(rest)[1:]:
            first = f", or give {' and '.join(dict.fromkeys(arguments))} before them" if arguments else ""
            raise ValueError(f"{' '.join(stray)}: no argument is taken here. Set --FLAG=VALUE{first}.")
        if experiment is not None:
            _set_experiment(original, names)
    except BrokenPipeError:
        raise
    except flags.UnrecognizedFlagError as error:
        _fail(_unknown_flag(error.flagname, experiment))
    except (flags.Error, *USER_ERRORS) as error:
        message = str(error)
        for pattern, shown in _FLAG_ERRORS.items():
            message = re.sub(pattern, shown, message)
        _fail(message)


def _chosen() -> tuple[config.Experiment, dict[str, typing.Any]]:
    """Returns the experiment of `--config`, or without it the default one, with the parts that flags name."""
    name = flags.FLAGS["config"].value
    try:
        experiment = config.Experiment() if name is None else configs.get_config(name)
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(f"--{error}") from error
    names = {f"{kind}.name": flags.FLAGS[kind].value for kind in config.PARTS} | overrides()
    return experiment, {field: part for field, part in names.items() if part is not None}


class _Field(flags.ArgumentParser):
    """Parses the value of a field of an experiment."""

    def __init__(self, experiment: config.Experiment, name: str):
        self._field = experiment, name

    def parse(self, argument: str) -> typing.Any:
        return config.parse_value(*self._field, argument)


def _define_fields(experiment: config.Experiment) -> None:
    """Defines `--config.FIELD` for the fields of an experiment, whose values are the help."""
    for field, value in config.values(experiment).items():
        if (name := f"config.{field}") in flags.FLAGS:
            flags.FLAGS[name].help = repr(value)
        else:
            parser = _Field(experiment, field)
            is_bool = isinstance(value, bool)
            flag: flags.Flag = flags.Flag(parser, None, name, None, repr(value), boolean=is_bool)
            flags.DEFINE_flag(flag, module_name=_FIELDS)


def _set_experiment(experiment: config.Experiment, names: dict[str, typing.Any]) -> None:
    """Makes an experiment with the fields of the command line the value of `--config`, if that is set."""
    if flags.FLAGS["config"].value is not None:
        flags.FLAGS["config"].value = config.override(experiment, names | overrides())
    else:
        for flag in (*config.PARTS, *(f"config.{field}" for field in overrides())):
            if flags.FLAGS[flag].present:
                raise ValueError(f"--{flag}: has no effect without --config. Set both.")


def overrides() -> dict[str, typing.Any]:
    """Returns the values of the flags `--config.FIELD`, by field."""
    names = (name for name in flags.FLAGS if name.startswith("config.") and flags.FLAGS[name].present)
    return {name.removeprefix("config."): flags.FLAGS[name].value for name in names}


def as_typed(text: str) -> str:
    """Returns a docstring with its commands as a user types them."""
    return MODULE.sub(r"rank4class \1", text)


def _unknown_flag(name: str, experiment: config.Experiment | None) -> str:
    """Returns the error of a flag that the command lacks, with the fields or flags that may be meant."""
    kind, _, field = name.removeprefix("no").partition(".")
    if experiment is not None and kind == "config":
        try:
            config.check_field(experiment, field)
        except ValueError as error:
            return str(error)
    plain = name.replace("-", "_")
    known = list(flags.FLAGS)
    close = [each for each in known if each.startswith("config.") and each.endswith(f".{plain}")]
    close = close or difflib.get_close_matches(plain, known, n=1)
    hint = f"Did you mean {' or '.join(f'--{each}' for each in close)}?" if close else ""
    return f"--{name}: no such flag. {hint or '--help shows all flags.'}"


def _fail(error: object, code: int = 1) -> typing.NoReturn:
    # Keras writes the layer's name before a layer's error, and the layer's arguments after it.
    layer_error = re.fullmatch(
        r"Exception encountered when calling .*?\n\n(.*)\n\nCall arguments.*", str(error), re.S
    )
    print(f"error: {_with_flags(layer_error[1] if layer_error else str(error))}", file=sys.stderr)
    sys.exit(code)


def _with_flags(message: str) -> str:
    """Returns an error message with the fields of parts, such as data.path, as flags of the command."""
    if message.startswith(("tune=", "vary=")):  # fields are values of these flags
        return message

    def as_flag(match: re.Match) -> str:
        names = [name for name in (match[0], f"config.{match[0]}", match[2]) if name in flags.FLAGS]
        is_of_run = names == ["data.path"] and not flags.FLAGS["data.path"].present
        return f"--{names[0]}" if names and not is_of_run else match[0]

    return re.sub(rf"(?<![\w./=-])({'|'.join(config.PARTS)})\.(\w+)(?!\w|\.\w)", as_flag, message)


def set_up_logs(debug: bool) -> None:
    """Shows the logs of this package and of files of the user without a prefix, and of others only errors."""
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.setFormatter(Plain())
    if not debug:
        handler.addFilter(is_shown)


def filter_stderr() -> None:
    """Removes lines of Abseil's log from the errors of this process outside of Python, and of its children.

    Another process filters them, so that the last words of a process that crashes are shown.
    """
    if sys.stderr is None or sys.stderr is not sys.__stderr__:  # closed, or replaced by the calling program
        return
    command = [sys.executable, "-IS", "-c", _FILTER]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # no Ctrl-C for it
    assert process.stdin is not None
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    logging.get_absl_handler().python_handler.stream = sys.stderr
    os.dup2(process.stdin.fileno(), 2)
    process.stdin.close()


def is_shown(record: python_logging.LogRecord) -> bool:
    """Returns whether a log record is an error, or of this package or of a file of the user."""
    root = os.path.dirname(program.__file__)  # in a folder of packages, or a checkout that has one
    folders = [folder for folder in (*_PACKAGES, root) if record.pathname.startswith(folder)]
    return record.levelno >= python_logging.ERROR or max(folders, key=len, default=root) == root


class Plain(python_logging.Formatter):
    """Formats log records as the other output: the message, after the level of a warning or an error."""

    def format(self, record: python_logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno >= python_logging.WARNING else ""
        return level + super().format(record)

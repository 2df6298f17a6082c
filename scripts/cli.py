"""Shared by all commands: config flags, and one-line errors in place of tracebacks.

TensorFlow is imported after the flags are parsed, so that `--help` and wrong flags are reported at once.
"""

from __future__ import annotations

import collections
import difflib
import os
import re
import signal
import sys
import typing
from collections.abc import Callable

from absl import flags

from rank4class import __main__ as program
from rank4class.pipelines import config, configs
from rank4class.pipelines.training.preemption import Interrupted
from rank4class.scripts import console, flag_help

if typing.TYPE_CHECKING:
    import tensorflow as tf

    from rank4class.pipelines.task.task import TaskData
    from rank4class.pipelines.training.rank_training import TrainedModel

flags.DEFINE_bool(
    "debug", False, "Print the full traceback of an error, and the messages of TensorFlow and other packages."
)
flags.DEFINE_bool("help", False, "Show the flags, and the fields of the config.", short_name="h")
flags.DEFINE_multi_string(
    "import", [], "Python file or module to import first, which registers your parts; may be repeated."
)

# Raised for invalid files, flags, classes and numbers, and for packages that are not installed. Any other
# exception is a bug and keeps its traceback.
USER_ERRORS = (ValueError, OSError, FloatingPointError, ImportError)
# Messages of absl for flags that are missing or have no value of their type, and the errors shown instead.
_FLAG_ERRORS = {
    rf"flag --(\w+)=None: .*{flag_help.NOT_NONE}.": r"--\1: missing. Set --\1=VALUE; --help shows all flags.",
    r"flag (--.*): could not convert string to float: .*": r"\1: not a number. Write a number.",
    r"flag (--.*): invalid literal for int\(\).*": r"\1: not an integer. Write an integer.",
    r"flag (--.*): \('Non-boolean argument.*": r"\1: neither true nor false. Write true or false.",
    r"flag (--.*): \S+ is not (an? .*)": r"\1: not \2. Write \2.",
    r"flag (--.*): value should be one of <(.*)>": r"\1: unknown. Choose one of \2.",
}
_overrides: dict[str, typing.Any] = {}  # value of each `--config.FIELD`


def define_config(required: bool = True) -> flags.FlagHolder:
    """Defines `--config=NAME`, `--config.FIELD=VALUE` and `--PART=NAME`.

    Returns the holder of `--config`, whose value is a `config.Experiment` once the flags are parsed.
    """
    holder = flags.DEFINE_string(
        "config",
        None,
        f"A packaged config ({', '.join(configs.names())}), or a Python file that defines get_config().",
    )
    if required:
        flags.mark_flag_as_required("config")
    for kind, part in config.PARTS.items():
        flags.DEFINE_string(kind, None, f"Replaces this part of the config: {', '.join(part.names())}.")
    return holder


def define_run() -> tuple[flags.FlagHolder, flags.FlagHolder]:
    """Defines `--workdir` and `--checkpoint` of a finished run."""
    workdir = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
    meaning = "Checkpoint with the best monitored metric, or the last one."
    return workdir, flags.DEFINE_enum("checkpoint", "best", config.CHECKPOINTS, meaning)


def define_data(purpose: str) -> tuple[flags.FlagHolder, Callable[[TrainedModel], TaskData]]:
    """Defines `--data.path`, of a labeled file for some purpose, and the flags that say how it is read.

    Returns its holder, and a function that loads the file, or the data of the run, for a trained model.
    """
    path = flags.DEFINE_string(
        "data.path", None, f"Labeled file or folder to {purpose}; None: the data of the run."
    )
    meaning = "Stop at a row of --data.path that cannot be used, or skip it."
    options = {"on_invalid_row": flags.DEFINE_enum("data.on_invalid_row", "fail", ["fail", "skip"], meaning)}
    for name, content in (
        ("text_column", "the text"),
        ("text_pair_column", "the second text"),
        ("label_column", "the class"),
    ):
        meaning = f"Column of --data.path: {content}; None: that of the training."
        options[name] = flags.DEFINE_string(f"data.{name}", None, meaning)

    def load(trained: TrainedModel) -> TaskData:
        if path.value is not None:
            return trained.load_labeled(path.value, **{name: flag.value for name, flag in options.items()})
        for flag in options.values():
            if flag.present:
                raise ValueError(f"--{flag.name}: has no effect without --data.path. Set both.")
        return trained.load_task()

    return path, load


def define_strategy(one_machine: bool = False) -> Callable[[], tf.distribute.Strategy]:
    """Defines `--strategy` and, unless the command runs on `one_machine`, `--tpu`.

    Returns a function that builds the strategy of the flags.
    """
    if one_machine:
        names, places = ["default", "mirrored"], "on one device, or on all GPUs of this machine"
    else:
        names = list(config.STRATEGIES)
        places = "on one device, on all GPUs of this machine, on the machines in TF_CONFIG, or on a TPU"
    name = flags.DEFINE_enum("strategy", "default", names, f"Run {places}.")
    if not one_machine:
        flags.DEFINE_string(
            "tpu", "local", "For --strategy=tpu: name of the TPU; local: that of this machine."
        )

    def get() -> tf.distribute.Strategy:
        from rank4class.pipelines import distribution

        if not one_machine and flags.FLAGS["tpu"].present and name.value != "tpu":
            raise ValueError(
                f"--tpu={flags.FLAGS.tpu}: has no effect with --strategy={name.value}. Set --strategy=tpu."
            )
        return distribution.get(name.value, *(() if one_machine else (flags.FLAGS.tpu,)))

    return get


def define_cache() -> None:
    """Defines `--cache`, which sets the environment variable that this process and its children read."""
    flags.DEFINE_string(
        "cache",
        None,
        "Folder of the outputs of encoders, which runs share; off: the folder of each run; None: the folder "
        "$RANK4CLASS_CACHE, or rank4class in $XDG_CACHE_HOME or ~/.cache.",
    )


def run(main: Callable[[], None], *, resumes: bool = False) -> None:
    """Parses the flags and runs a command; reports errors in one line.

    A command that `resumes` continues when it is run again with the same --workdir.
    """
    with program.ends_at_closed_pipe():
        _parse(sys.argv)
        console.set_up_logs(flags.FLAGS.debug)
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            import tensorflow as tf

            if not flags.FLAGS.debug:
                tf.get_logger().setLevel("ERROR")
            if "cache" in flags.FLAGS and flags.FLAGS.cache is not None:
                os.environ["RANK4CLASS_CACHE"] = flags.FLAGS.cache
            main()
        except BrokenPipeError:
            raise
        except USER_ERRORS as error:
            if flags.FLAGS.debug:
                raise
            _fail(error)
        except Interrupted as error:
            print(error, file=sys.stderr)
            sys.exit(128 + error.signal)  # the exit code of shells for this signal
        except KeyboardInterrupt as error:
            hint = " Run the same command again to resume." if resumes and flags.FLAGS.workdir else ""
            print(f"Interrupted.{hint}", file=sys.stderr)
            sys.exit(128 + (error.args[0] if error.args else signal.SIGINT))


def _interrupt(number: int, _: object) -> typing.NoReturn:
    """Handles SIGTERM as Python handles Ctrl-C: unfinished files are removed."""
    raise KeyboardInterrupt(number)


def _parse(argv: list[str]) -> None:
    """Parses the flags, imports the modules of `--import`, and builds the experiment of `--config`."""
    arguments, fields = _split(argv)
    problem = None
    try:
        try:
            stray = flags.FLAGS(arguments)[1:]
        except flags.Error as error:  # reported after the help, and an error in a file of the user
            problem, stray = error, []
        # Files of the user may import TensorFlow.
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0" if flags.FLAGS["debug"].value else "3"
        if not flags.FLAGS["debug"].value:
            console.filter_stderr()
        for name in flags.FLAGS["import"].value:
            try:
                configs.import_user_module(name)
            except Exception as error:  # the user's file may raise any exception
                problem = f"{type(error).__name__}: {error}"
                raise ValueError(f"--import={name}: cannot be imported. {problem}") from error
        experiment = _build_experiment(fields)
        if flags.FLAGS["help"].value:
            print(flag_help.text_of_command(experiment))
            sys.exit()
        if isinstance(problem, flags.UnrecognizedFlagError):
            raise ValueError(_unknown_flag(problem.flagname, experiment))
        if problem:
            raise problem
        if stray:
            raise ValueError(f"{' '.join(stray)}: no positional arguments are accepted. Set --FLAG=VALUE.")
    except BrokenPipeError:
        raise
    except (flags.Error, *USER_ERRORS) as error:
        message = str(error)
        for pattern, shown in _FLAG_ERRORS.items():
            message = re.sub(pattern, shown, message)
        _fail(message)
    if experiment is not None:
        flags.FLAGS["config"].value = experiment


def _split(argv: list[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the arguments without those that set fields of the config, and the text of each field."""
    arguments, fields = [], {}
    remaining = collections.deque(flags.FLAGS.read_flags_from_files(argv, force_gnu=False))
    while remaining:
        argument = remaining.popleft()
        match = re.fullmatch("--?(no)?config\\.([^=]*)(?:=(.*))?", argument, re.DOTALL)
        if match is None:
            arguments.append(argument)
            continue
        negation, field, text = match.groups()
        if text is None:
            has_value = remaining and not negation and not re.match("--?[a-z]", remaining[0])
            text = remaining.popleft() if has_value else str(not negation)
        fields[field] = text
    return arguments, fields


def _build_experiment(fields: dict[str, str]) -> config.Experiment | None:
    """Returns the experiment of `--config` with the parts and fields of the command line, or None."""
    _overrides.clear()
    if "config" not in flags.FLAGS:
        if fields:
            raise ValueError(_unknown_flag(f"config.{next(iter(fields))}", None))
        return None
    parts = {kind: flags.FLAGS[kind].value for kind in config.PARTS if flags.FLAGS[kind].value is not None}
    name = flags.FLAGS["config"].value
    if name is None:
        for flag in (*parts, *(f"config.{field}" for field in fields)):
            raise ValueError(f"--{flag}: has no effect without --config. Set both.")
        return None
    try:
        experiment = configs.get_config(name)
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(f"--{error}") from error
    names = {f"{kind}.name": part for kind, part in parts.items()}
    names |= {field: text for field, text in fields.items() if field.removesuffix(".name") in config.PARTS}
    experiment = config.override(experiment, names)
    for field, text in fields.items():
        config.check_field(experiment, field)
        try:
            _overrides[field] = config.parse_value(experiment, field, text)
        except ValueError as error:
            raise ValueError(f"--config.{error}") from error
    return config.override(experiment, _overrides)


def overrides() -> dict[str, typing.Any]:
    """Returns the values of the flags `--config.FIELD`, by field."""
    return dict(_overrides)


def _unknown_flag(name: str, experiment: config.Experiment | None) -> str:
    """Returns the error of a flag that the command lacks, with the fields or flags that may be meant."""
    fields, plain = [], name.replace("-", "_")
    if "config" in flags.FLAGS:
        fields = [f"config.{field}" for field in config.values(experiment or config.Experiment())]
    known = [*(flag.name for flag in flag_help.flags_of(sys.argv[0])), *fields]
    close = [field for field in fields if field.endswith(f".{plain}")]
    close = close or difflib.get_close_matches(plain, known, n=1)
    hint = f"Did you mean {' or '.join(f'--{each}' for each in close)}?" if close else ""
    return f"--{name}: no such flag. {hint or '--help shows all flags.'}"


def _fail(error: object) -> typing.NoReturn:
    # Keras writes the layer's name before a layer's error, and the layer's arguments after it.
    layer_error = re.fullmatch(
        r"Exception encountered when calling .*?\n\n(.*)\n\nCall arguments.*", str(error), re.S
    )
    print(f"error: {_with_flags(layer_error[1] if layer_error else str(error))}", file=sys.stderr)
    sys.exit(1)


def _with_flags(message: str) -> str:
    """Returns an error message with the fields of parts, such as data.path, as flags of the command."""
    if message.startswith("tune="):  # fields are values of this flag
        return message

    def as_flag(match: re.Match) -> str:
        kind, name = match.groups()
        for flag in (match[0],) if "config" in flags.FLAGS else (match[0], name):
            if flag in flags.FLAGS:
                return f"--{flag}"
        part = config.PARTS[kind]
        is_field = name == "name" or any(name in part.fields_of(entry) for entry in part.names())
        return f"--config.{match[0]}" if "config" in flags.FLAGS and is_field else match[0]

    return re.sub(rf"(?<![\w./=-])({'|'.join(config.PARTS)})\.(\w+)(?!\w|\.\w)", as_flag, message)

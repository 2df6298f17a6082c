"""Shared by all commands: config flags, help, and one-line errors in place of tracebacks.

TensorFlow is imported after the flags are parsed, so that `--help` and wrong flags are reported at once.
"""

from __future__ import annotations

import difflib
import itertools
import logging as python_logging
import os
import re
import signal
import subprocess
import sys
import sysconfig
import textwrap
import typing
from collections.abc import Callable

from absl import app, flags, logging
from ml_collections import config_flags
from ml_collections.config_flags.config_flags import ConfigFileFlagParser

from rank4class import __main__ as program
from rank4class.pipelines import config, configs
from rank4class.pipelines.training.preemption import Interrupted

if typing.TYPE_CHECKING:
    import tensorflow as tf

flags.DEFINE_bool(
    "debug", False, "Print the full traceback of an error, and the messages of TensorFlow and other packages."
)
flags.DEFINE_multi_string(
    "import", [], "Python file or module to import first, which registers parts of your own; may be repeated."
)

# Raised for invalid files, flags, classes and numbers, and for packages that are not installed. Any other
# exception is a bug and keeps its traceback.
USER_ERRORS = (ValueError, OSError, FloatingPointError, ImportError)
MODULE = re.compile(r"python -m rank4class\.scripts\.(?:research\.)?(\w+)")  # a command in a docstring
HELP_WIDTH = 100  # characters
HELP = re.compile("--?(help|helpshort|h|\\?)")
NOT_NONE = "must have a value other than None"  # absl's message of flags that are required
# Messages of absl for flags that are missing or have no value of their type, and the errors shown instead.
_FLAG_ERRORS = {
    rf"flag --(\w+)=None: Flag --\1 {NOT_NONE}\.": r"--\1: missing. Set --\1=VALUE; --help shows all flags.",
    r"flag (--.*): could not convert string to float: .*": r"\1: not a number. Write a number.",
    r"flag (--.*): invalid literal for int\(\).*": r"\1: not an integer. Write an integer.",
    r"flag (--.*): \('Non-boolean argument.*": r"\1: neither true nor false. Write true or false.",
    r"flag (--.*): \S+ is not (an? .*)": r"\1: not \2. Write \2.",
    r"flag (--.*): value should be one of <(.*)>": r"\1: unknown. Choose one of \2.",
}
DEBUG = re.compile("--?debug(=(true|t|1))?", re.IGNORECASE)
_PACKAGES = (
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
)  # of others, and this one if installed
# A flag that replaces a part of the config, such as --loss=rankmax.
PART_FLAG = re.compile(rf"--?(?:config\.)?({'|'.join(config.PARTS)})(?:\.name)?(?:=(.*))?")


def define_config(required: bool = True) -> flags.FlagHolder:
    """Defines `--config=NAME`, `--config.FIELD=VALUE` and `--PART=NAME`.

    Args:
      required: whether the command requires `--config`.

    Returns:
      The holder of `--config`, whose value is a `config.Experiment`.
    """
    holder = config_flags.DEFINE_config_file(
        "config",
        None,
        f"A packaged config ({', '.join(configs.names())}), or a Python file that defines get_config().",
    )
    flags.FLAGS["config"].parser = _ConfigParser("config")
    if required:
        flags.mark_flag_as_required("config")
    for kind, part in config.PARTS.items():
        flags.DEFINE_string(kind, None, f"Replaces this part of the config: {', '.join(part.names())}.")
    return holder


def define_strategy(one_machine: bool = False) -> Callable[[], tf.distribute.Strategy]:
    """Defines `--strategy` and, unless `one_machine`, `--tpu`.

    Args:
      one_machine: whether the command runs on the devices of one machine only.

    Returns:
      A function that builds the strategy of the flags.
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
        "Folder of the outputs of encoders, which runs share; off: each run's own folder; None: the folder "
        "$RANK4CLASS_CACHE, or rank4class in $XDG_CACHE_HOME or ~/.cache.",
    )


def run(main: Callable[[], None], *, resumes: bool = False) -> None:
    """Parses the flags and runs a command; reports errors in one line.

    Args:
      main: the command.
      resumes: whether an interrupted command continues when it is run again with the same --workdir.
    """

    def guarded(_: list[str]) -> None:
        logging.set_verbosity(logging.INFO)
        if not flags.FLAGS.debug:
            logging.get_absl_handler().addFilter(_is_shown)
        logging.get_absl_handler().setFormatter(_Plain())
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

    with program.ends_at_closed_pipe():
        app.run(guarded, flags_parser=_parse)


def _interrupt(number: int, _: object) -> typing.NoReturn:
    """Handles SIGTERM as Python handles Ctrl-C: unfinished files are removed."""
    raise KeyboardInterrupt(number)


# Abseil's log in C++, to which XLA and gRPC write, has no environment variable.
_FILTER = r"""
import re, sys
log = re.compile(rb"[IWE]\d{4} [\d:.]+ +\d+ \S+:\d+\] |WARNING: All log messages before absl::InitializeLog")
for line in sys.stdin.buffer:
    if not log.match(line):
        sys.stderr.buffer.write(line)
        sys.stderr.flush()
"""


def _filter_stderr() -> None:
    """Removes lines of Abseil's log from the errors of this process outside of Python, and of its children.

    Another process filters them, so that the last words of a process that crashes are shown.
    """
    if sys.stderr is None or sys.stderr is not sys.__stderr__:  # closed, or replaced by the calling program
        return
    program = [sys.executable, "-IS", "-c", _FILTER]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, start_new_session=True)  # no Ctrl-C for it
    assert process.stdin is not None
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    logging.get_absl_handler().python_handler.stream = sys.stderr
    os.dup2(process.stdin.fileno(), 2)
    process.stdin.close()


def _is_shown(record: python_logging.LogRecord) -> bool:
    """Returns whether a log record is an error, or of this package or of a file of the user."""
    own = os.path.dirname(program.__file__)  # in a folder of packages, or a checkout that has one
    folders = [folder for folder in (*_PACKAGES, own) if record.pathname.startswith(folder)]
    return record.levelno >= python_logging.ERROR or max(folders, key=len, default=own) == own


class _Plain(python_logging.Formatter):
    """Formats log records as the other output: the message, after the level of a warning or an error."""

    def format(self, record: python_logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno >= python_logging.WARNING else ""
        return level + super().format(record)


def _load_config(name: str) -> config.Experiment:
    """Returns the experiment of `--config=NAME`."""
    try:
        return configs.get_config(name)
    except (FileNotFoundError, ValueError) as error:
        raise flags.IllegalFlagValueError(f"--{error}") from error


def _import_all(argv: list[str]) -> None:
    """Imports the files and modules of `--import`, before the flags that name their parts are parsed."""
    for argument, following in itertools.zip_longest(argv[1:], argv[2:]):
        match = re.fullmatch("--?import(?:=(.*))?", argument)
        name = match and (following if match[1] is None else match[1])
        if not name:
            continue
        try:
            config.import_user_module(name)
        except Exception as error:  # the user's file may raise any exception
            raise flags.IllegalFlagValueError(
                f"--import={name}: cannot be imported. {type(error).__name__}: {error}"
            ) from error


class _ConfigParser(ConfigFileFlagParser):
    """Loads packaged configs by name, replaces parts, and reports errors of files and fields."""

    def parse(self, path: str) -> config.Experiment:
        experiment = _load_config(path)
        try:
            experiment = _replace_parts(experiment, sys.argv)
            for argument in sys.argv[1:]:
                match = re.match(r"--?(?:no)?config\.([^=]*)", argument)
                if match:
                    config.check_field(experiment, match[1])
        except ValueError as error:
            raise flags.IllegalFlagValueError(str(error)) from error
        return experiment


def _replace_parts(experiment: config.Experiment, argv: list[str]) -> config.Experiment:
    """Returns an experiment with the parts that are named on the command line."""
    names = {}
    for argument, following in itertools.zip_longest(argv[1:], argv[2:]):
        match = PART_FLAG.fullmatch(argument)
        if match:
            names[f"{match[1]}.name"] = match[2] if match[2] is not None else following
    return config.override(experiment, names)


def _parse(argv: list[str]) -> list[str]:
    try:
        # The names of parts and fields are looked for here, before absl parses the flags.
        argv = sys.argv = flags.FLAGS.read_flags_from_files(argv, force_gnu=False)
        if any(map(DEBUG.fullmatch, argv)):
            os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
        else:  # before TensorFlow is imported, which files of the user may do
            os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
            _filter_stderr()
        _import_all(argv)
        if any(HELP.fullmatch(argument) for argument in argv[1:]):
            print(_help(argv))
            sys.exit()
        arguments = flags.FLAGS(argv)[1:]
        if arguments:
            raise ValueError(
                f"{' '.join(arguments)}: no positional arguments are accepted. Set --FLAG=VALUE."
            )
        _check_config_is_given()
        _clear_alternatives()
    except BrokenPipeError:
        raise
    except flags.UnrecognizedFlagError as error:
        _fail(_unknown_flag(error.flagname))
    except (flags.Error, *USER_ERRORS) as error:
        message = str(error)
        for pattern, shown in _FLAG_ERRORS.items():
            message = re.sub(pattern, shown, message)
        _fail(message)
    return argv[:1]


def _check_config_is_given() -> None:
    """Raises ValueError if a part is replaced, but there is no config."""
    if "config" in flags.FLAGS and flags.FLAGS["config"].value is None:
        for kind in config.PARTS:
            if flags.FLAGS[kind].value is not None:
                raise ValueError(f"--{kind}: has no effect without --config. Set both.")


def _clear_alternatives() -> None:
    """Applies `config.clear_alternatives` to the fields on the command line."""
    if "config" in flags.FLAGS and flags.FLAGS["config"].value is not None:
        flag = flags.FLAGS["config"]
        config.clear_alternatives(flag.value, config_flags.get_override_values(flag))


def check_used(*parts: str) -> None:
    """Raises ValueError for a part or field of the config on the command line that the command does not use.

    Args:
      *parts: names of the parts and of the fields of the experiment that it uses.
    """
    overrides = [f"config.{field}" for field in config_flags.get_override_values(flags.FLAGS["config"])]
    given = [*(kind for kind in config.PARTS if flags.FLAGS[kind].value is not None), *overrides]
    for name in given:
        if name.removeprefix("config.").partition(".")[0] not in parts:
            raise ValueError(f"--{name}: has no effect on this command. Leave it out.")


def _unknown_flag(name: str) -> str:
    """Returns the error of a flag that the command lacks, with the fields or flags that it may stand for."""
    fields, plain = [], name.replace("-", "_")
    if "config" in flags.FLAGS:
        experiment = flags.FLAGS["config"].value or config.Experiment()  # None without --config
        fields = [f"config.{field}" for field in config.values(experiment)]
    known = [*(flag.name for flag in flags_of(sys.argv[0])), *fields]
    close = [field for field in fields if field.endswith(f".{plain}")]
    close = close or difflib.get_close_matches(plain, known, n=1)
    hint = f"Did you mean {' or '.join(f'--{each}' for each in close)}?" if close else ""
    return f"--{name}: no such flag. {hint or '--help shows all flags.'}"


def flags_of(module: str) -> list[flags.Flag]:
    """Returns the flags that a module and this one define, by name.

    Args:
      module: name of the module; of the running command, `sys.argv[0]`.
    """
    defined = [flag for name in (module, __name__) for flag in flags.FLAGS.get_flags_for_module(name)]
    return sorted(defined, key=lambda flag: flag.name)


def help_of(flag: flags.Flag) -> str:
    """Returns the help of a flag, without the line that absl adds for flags that may be repeated."""
    return flag.help.split(";\n")[0]


def default_of(flag: flags.Flag) -> str:
    """Returns "required", or the default of a flag in words."""
    if is_required(flag):
        return "required"
    return "default: none" if flag.default == [] else f"default: {flag.default_as_str or None}"


def as_typed(text: str) -> str:
    """Returns a docstring with its commands as a user types them.

    >>> as_typed("python -m rank4class.scripts.train --config=digits_mlp")
    'rank4class train --config=digits_mlp'
    """
    return MODULE.sub(r"rank4class \1", text)


def is_required(flag: flags.Flag) -> bool:
    """Returns whether a command cannot do without a flag. Bounds of numbers are validators too."""
    return any(NOT_NONE in validator.message for validator in flag.validators)


def _help(argv: list[str]) -> str:
    """Returns the help of the running command: flags and config fields with their defaults."""
    lines = [as_typed((sys.modules["__main__"].__doc__ or "").strip()), "", "Flags:"]
    for flag in flags_of(sys.argv[0]):
        text = f"{help_of(flag)} ({default_of(flag)})"
        lines += [f"  --{flag.name}", textwrap.indent(textwrap.fill(text, HELP_WIDTH - 6), 6 * " ")]
    if "config" in flags.FLAGS:
        pairs = itertools.zip_longest(argv, argv[1:])
        matches = (
            (re.fullmatch("--?config(?:=(.*))?", argument), following) for argument, following in pairs
        )
        names = [match[1] or following for match, following in matches if match]
        experiment = _replace_parts(_load_config(names[-1]) if names else config.Experiment(), argv)
        values = config.values(experiment)
        width = max(map(len, values))
        lines += ["", f"Config fields, with the values of {names[-1] if names else 'config.Experiment()'}:"]
        lines += [f"  --config.{name:{width}}  {value!r}" for name, value in values.items()]
    return "\n".join(lines)


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
        if match[0] in flags.FLAGS:
            return f"--{match[0]}"
        part = config.PARTS[kind]
        entries = map(part.of, (*part.others, *part.signatures()))
        is_field = name == "name" or any(name in entry.field_names() for entry in entries)
        return f"--config.{match[0]}" if "config" in flags.FLAGS and is_field else match[0]

    return re.sub(rf"(?<![\w./=-])({'|'.join(config.PARTS)})\.(\w+)(?!\w|\.\w)", as_flag, message)

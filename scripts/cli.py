"""The part that all commands share: flags, help, and one line instead of a traceback for a user's mistake.

Nothing here imports TensorFlow before the flags are parsed: a wrong flag or `--help` is answered at once.
"""

import difflib
import itertools
import os
import re
import runpy
import sys
import textwrap
from collections.abc import Callable
from typing import Any, NoReturn

from absl import app, flags, logging
from ml_collections import config_flags
from ml_collections.config_flags.config_flags import ConfigFileFlagParser

from rank4class.pipelines import config, configs
from rank4class.pipelines.training.preemption import Interrupted

flags.DEFINE_bool("debug", False, "Show the whole traceback of an error.")

# What a wrong file, flag, class or number raises; anything else is a bug and keeps its traceback.
USER_ERRORS = (ValueError, OSError, FloatingPointError)
WIDTH = 100  # of the help
HELP = re.compile("--?(help|helpshort|h|\\?)")
MISSING = re.compile(r"flag --(\w+)=None: Flag --\1 must have a value other than None\.")


# A flag that swaps a part of the config, such as --loss=rankmax.
SWAP = re.compile(rf"--?(?:config\.)?({'|'.join(config.PARTS)})(?:\.name)?(?:=(.*))?")


def define_config(required: bool = True) -> flags.FlagHolder:
    """Defines `--config=NAME`, `--config.FIELD=VALUE` and `--PART=NAME`; returns the flag's holder."""
    holder = config_flags.DEFINE_config_file(
        "config",
        None,
        f"A packaged config ({', '.join(packaged_configs())}) or a Python file with get_config().",
    )
    flags.FLAGS["config"].parser = _ConfigParser("config")
    if required:
        flags.mark_flag_as_required("config")
    for kind, part in config.PARTS.items():
        flags.DEFINE_string(kind, None, f"Replaces this part of the config: {', '.join(part.names())}.")
    return holder


def define_strategy() -> Callable[[], Any]:
    """Defines `--strategy` and `--tpu`; returns a function that makes the strategy they name."""
    name = flags.DEFINE_enum(
        "strategy",
        "default",
        config.STRATEGIES,
        "One device, all of this machine, all of the machines in TF_CONFIG, or a TPU.",
    )
    tpu = flags.DEFINE_string("tpu", "local", "For --strategy=tpu: this machine's, or the name of one.")

    def get() -> Any:
        from rank4class.pipelines import distribution

        return distribution.get(name.value, tpu.value)

    return get


def run(main: Callable[[], None], *, resumes: bool = False) -> None:
    """Runs `main()` after parsing the flags; `resumes`: an interrupted command goes on in its --workdir."""

    def guarded(_: list[str]) -> None:
        logging.set_verbosity(logging.INFO)
        try:
            import tensorflow as tf

            tf.get_logger().setLevel("WARNING")  # else it names every exchange among the workers
            main()
        except USER_ERRORS as error:
            if flags.FLAGS.debug:
                raise
            _fail(error)
        except Interrupted as error:
            print(error, file=sys.stderr)
            sys.exit(128 + error.signal)  # what a shell says of a process that the signal ended
        except KeyboardInterrupt:
            hint = ": the same command goes on where it stopped" if resumes and flags.FLAGS.workdir else ""
            print(f"interrupted{hint}", file=sys.stderr)
            sys.exit(130)

    app.run(guarded, flags_parser=_parse)


def packaged_configs() -> list[str]:
    """Returns the names of the configs in `pipelines/configs`."""
    [folder] = configs.__path__
    files = (os.path.splitext(file) for file in sorted(os.listdir(folder)))
    return [name for name, ending in files if ending == ".py" and name != "__init__"]


def load_config(name: str) -> config.Experiment:
    """Returns the experiment of `--config=NAME`: of the file of that path, or else of a packaged config.

    Raises:
      FileNotFoundError: there is neither; the message lists the packaged configs.
      flags.IllegalFlagValueError: the file's program fails, or returns no experiment.
    """
    path = name
    if not os.path.isfile(path):
        packaged = packaged_configs()
        if name not in packaged:
            stem = os.path.splitext(os.path.basename(name))[0]
            close = difflib.get_close_matches(stem, packaged, n=1)
            hint = f"Did you mean --config={close[0]}? " if close else ""
            raise FileNotFoundError(
                f"--config={name}: neither a file nor a packaged config. {hint}"
                f"Packaged: {', '.join(packaged)}."
            )
        path = os.path.join(configs.__path__[0], f"{name}.py")
    try:
        experiment = runpy.run_path(path)["get_config"]()
        if not isinstance(experiment, config.Experiment):
            raise TypeError(f"get_config() returns {type(experiment).__name__}, not config.Experiment")
        config.check_types(experiment)
    except Exception as error:  # the file is the user's program, which can raise anything
        raise flags.IllegalFlagValueError(
            f"{path} cannot be used: {type(error).__name__}: {error}"
        ) from error
    return experiment


class _ConfigParser(ConfigFileFlagParser):
    """Finds packaged configs by name, swaps parts, and reports errors of the file and of fields."""

    def parse(self, path: str) -> config.Experiment:
        experiment = load_config(path)
        try:
            experiment = _swapped(experiment, sys.argv)
            for argument in sys.argv[1:]:
                match = re.match(r"--?(?:no)?config\.([^=]*)", argument)
                if match:
                    config.check_field(experiment, match[1])
        except ValueError as error:
            raise flags.IllegalFlagValueError(str(error)) from error
        return experiment


def _swapped(experiment: config.Experiment, argv: list[str]) -> config.Experiment:
    """Returns an experiment with the parts that a command line names."""
    names = {}
    for argument, following in itertools.zip_longest(argv[1:], argv[2:]):
        match = SWAP.fullmatch(argument)
        if match:
            names[f"{match[1]}.name"] = match[2] if match[2] is not None else following
    return config.override(experiment, names)


def _parse(argv: list[str]) -> list[str]:
    try:
        if any(HELP.fullmatch(argument) for argument in argv[1:]):
            print(_help(argv))
            sys.exit()
        rest = flags.FLAGS(argv)[1:]
        if rest:
            raise ValueError(f"there are no positional arguments: {' '.join(rest)}")
    except (flags.Error, *USER_ERRORS) as error:
        _fail(MISSING.sub(r"--\1: missing. Set --\1=VALUE; --help shows all flags.", str(error)))
    return argv[:1]


def _help(argv: list[str]) -> str:
    """Returns the help of the command that runs: its flags and the fields of its config, with defaults."""
    lines = [(sys.modules["__main__"].__doc__ or "").strip(), "", "Flags:"]
    defined = [
        flag for module in (sys.argv[0], __name__) for flag in flags.FLAGS.get_flags_for_module(module)
    ]
    for flag in sorted(defined, key=lambda flag: flag.name):
        # Only `required=True` and `mark_flag_as_required` add validators here.
        usual = "required" if flag.validators else f"default: {flag.default_as_str or None}"
        text = f"{flag.help} ({usual})"
        lines += [f"  --{flag.name}", textwrap.indent(textwrap.fill(text, WIDTH - 6), 6 * " ")]
    if "config" in flags.FLAGS:
        named = [match[1] for match in (re.fullmatch("--?config=(.*)", a) for a in argv) if match]
        experiment = _swapped(load_config(named[-1]) if named else config.Experiment(), argv)
        values = config.values(experiment)
        width = max(map(len, values))
        lines += [
            "",
            f"Fields of the config, with the values of {named[-1] if named else 'config.Experiment()'}:",
        ]
        lines += [f"  --config.{name:{width}}  {value!r}" for name, value in values.items()]
    return "\n".join(lines)


def _fail(error: object) -> NoReturn:
    # Keras puts what a layer raised between a paragraph on the layer and one on its arguments.
    raised = re.fullmatch(
        r"Exception encountered when calling .*?\n\n(.*)\n\nCall arguments.*", str(error), re.S
    )
    print(f"error: {raised[1] if raised else error}", file=sys.stderr)
    sys.exit(1)

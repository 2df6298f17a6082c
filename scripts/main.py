"""What every door shares: flags, and one clear line instead of a traceback for a user's mistake."""

import os
import re
import runpy
import sys

import tensorflow as tf
from absl import app, flags, logging
from ml_collections import config_flags

from rank4class.pipelines import config, strategies
from rank4class.pipelines.interruption import Interrupted

flags.DEFINE_bool("debug", False, "Show the whole traceback of an error.")

# What a wrong file, flag, class or number raises; anything else is a bug and keeps its traceback.
USER_ERRORS = (ValueError, OSError, FloatingPointError)


def define_config(required=True):
    """Defines `--config=FILE` with `--config.FIELD=VALUE`; returns the flag's holder."""
    holder = config_flags.DEFINE_config_file(
        "config", None, "Python file with get_config(); see pipelines/configs."
    )
    if required:
        flags.mark_flag_as_required("config")
    return holder


def define_strategy():
    """Defines `--strategy` and `--tpu`; returns a function that makes the strategy they name."""
    name = flags.DEFINE_enum(
        "strategy",
        "default",
        strategies.STRATEGIES,
        "One device, all of this machine, all of the machines in TF_CONFIG, or a TPU.",
    )
    tpu = flags.DEFINE_string("tpu", "local", "For --strategy=tpu: this machine's, or the name of one.")
    return lambda: strategies.get(name.value, tpu.value)


def run(main, *, resumes=False):
    """Runs `main()` after parsing the flags; `resumes`: an interrupted command goes on in its --workdir."""

    def guarded(_):
        logging.set_verbosity(logging.INFO)
        tf.get_logger().setLevel("WARNING")  # else it names every exchange among the workers
        try:
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


def _parse(argv):
    try:
        _check_config_flags(argv)
        rest = flags.FLAGS(argv)[1:]
        if rest:
            raise ValueError(f"there are no positional arguments: {' '.join(rest)}")
    except (flags.Error, *USER_ERRORS) as error:
        _fail(error)
    return argv[:1]


def _check_config_flags(argv):
    """Says what is wrong with a config's file or field better than its parser would."""
    for argument in argv[1:]:
        name, _, value = argument.lstrip("-").partition("=")
        if name == "config" and value:
            _check_config_file(value)
        if name.startswith("config."):
            config.check_field(name.removeprefix("config."))


def _check_config_file(path):
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no config file {path}")
    try:
        experiment = runpy.run_path(path)["get_config"]()
    except Exception as error:  # it is the user's own program: it can raise anything
        raise ValueError(f"{path} cannot be used: {type(error).__name__}: {error}") from error
    if not isinstance(experiment, config.Experiment):
        raise ValueError(f"{path}: get_config() returns {type(experiment).__name__}, not config.Experiment")


def _fail(error):
    # Keras puts what a layer raised between a paragraph on the layer and one on its arguments.
    raised = re.fullmatch(
        r"Exception encountered when calling .*?\n\n(.*)\n\nCall arguments.*", str(error), re.S
    )
    print(f"error: {raised[1] if raised else error}", file=sys.stderr)
    sys.exit(1)

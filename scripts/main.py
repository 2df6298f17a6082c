"""What every door shares: flags, and one clear line instead of a traceback for a user's mistake."""

import sys

from absl import app, flags, logging
from ml_collections import config_flags

flags.DEFINE_bool("debug", False, "Show the whole traceback of an error.")

# What a wrong file, flag, class or number raises; anything else is a bug and keeps its traceback.
USER_ERRORS = (ValueError, OSError, FloatingPointError)


def define_config():
    """Defines `--config=FILE` with `--config.FIELD=VALUE`; returns the flag's holder."""
    return config_flags.DEFINE_config_file(
        "config", None, "Python file with get_config(); see pipelines/configs."
    )


def run(main):
    """Runs `main()` after parsing the flags."""

    def guarded(arguments):
        if len(arguments) > 1:
            raise app.UsageError(f"there are no positional arguments: {' '.join(arguments[1:])}")
        logging.set_verbosity(logging.INFO)
        try:
            main()
        except USER_ERRORS as error:
            if flags.FLAGS.debug:
                raise
            _fail(str(error))

    app.run(guarded, flags_parser=_parse)


def _parse(argv):
    try:
        return flags.FLAGS(argv)
    except (flags.Error, KeyError, AttributeError, FileNotFoundError, TypeError, ValueError) as error:
        # ml_collections raises KeyError for a field that the config does not have.
        return _fail(error.args[0] if error.args else str(error))


def _fail(message):
    print(f"error: {message}", file=sys.stderr)
    sys.exit(1)

"""The output of commands: without the messages of other packages, unless `--debug` is set."""

import logging as python_logging
import os
import subprocess
import sys
import sysconfig

from absl import logging

from rank4class import __main__ as program

# Folders of other packages, and of this one if it is installed.
_PACKAGES = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))


def set_up_logs(debug: bool) -> None:
    """Shows the logs of this package and of files of the user without a prefix, and of others only errors."""
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.setFormatter(Plain())
    if not debug:
        handler.addFilter(is_shown)


# Abseil's log in C++, to which XLA and gRPC write, has no environment variable.
_FILTER = r"""
import re, sys
log = re.compile(rb"[IWE]\d{4} [\d:.]+ +\d+ \S+:\d+\] |WARNING: All log messages before absl::InitializeLog")
for line in sys.stdin.buffer:
    if not log.match(line):
        sys.stderr.buffer.write(line)
        sys.stderr.flush()
"""


def filter_stderr() -> None:
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

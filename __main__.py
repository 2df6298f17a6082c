"""The command `rank4class`: one program for all commands of `rank4class.scripts`."""

import ast
import contextlib
import difflib
import os
import pathlib
import runpy
import signal
import sys
from collections.abc import Iterator

SCRIPTS = pathlib.Path(__file__).parent / "scripts"
USAGE = """Multiclass classification as ranking.

  rank4class COMMAND [--FLAG=VALUE ...]
  rank4class COMMAND --help

Commands:
"""


@contextlib.contextmanager
def ends_at_closed_pipe() -> Iterator[None]:
    """Ends the program without a message if the reader of its output, such as `head`, has ended."""
    try:
        try:
            yield
        finally:
            print(end="", flush=True)  # an error while Python itself ends could not be caught
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)  # the exit code of shells for this signal


@ends_at_closed_pipe()
def main() -> None:
    """Runs the command that the first argument names, as `python -m rank4class.scripts.COMMAND` does."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name.lstrip("-") in ("help", "h", "?"):
        print(_help())
        return
    commands = summaries()
    if name not in commands:
        close = difflib.get_close_matches(name, commands, n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        sys.exit(f"error: {name}: no command. {hint}There are: {', '.join(commands)}.")
    sys.argv[:2] = [f"rank4class {name}"]
    try:
        runpy.run_module(f"rank4class.scripts.{name}", run_name="__main__", alter_sys=True)
    except ImportError as error:
        sys.exit(f"error: {error}")


def summaries() -> dict[str, str]:
    """Returns the first sentence of each command's docstring, by its name."""
    sources = {path.stem: path.read_text() for path in sorted(SCRIPTS.glob("*.py"))}
    return {
        name: (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
        for name, source in sources.items()
        if '\nif __name__ == "__main__":' in source
    }


def _help() -> str:
    commands = summaries()
    width = max(map(len, commands))
    return USAGE + "\n".join(f"  {name:{width}}  {summary}" for name, summary in commands.items())


if __name__ == "__main__":
    main()

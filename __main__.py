"""The command `rank4class`: one program for all commands of `rank4class.scripts`."""

import ast
import contextlib
import os
import pathlib
import runpy
import signal
import sys
from collections.abc import Iterator

from rank4class import __version__
from rank4class.registry import did_you_mean

SCRIPTS = pathlib.Path(__file__).parent / "scripts"
USAGE = """Multiclass classification as ranking.

  rank4class train FILE
  rank4class COMMAND [--FLAG=VALUE ...]
  rank4class COMMAND --help
  rank4class --version

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
    """Runs the command that the first argument names, as `python -m` does with its module."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name.lstrip("-") in ("help", "h", "?", "research"):
        print(_help(SCRIPTS / "research" if name == "--research" else SCRIPTS))
        return
    if name == "--version":
        print(f"rank4class {__version__}")
        return
    commands = files()
    if name not in commands:
        hint = did_you_mean(name, commands)
        sys.exit(f"error: {name}: no command. {hint}There are: {', '.join(commands)}.")
    sys.argv[:2] = [f"rank4class {name}"]
    try:
        runpy.run_module(module_of(name), run_name="__main__", alter_sys=True)
    except ImportError as error:
        sys.exit(f"error: {error}")


def files() -> dict[str, pathlib.Path]:
    """Returns the file of each command, by its name. Those of research are in a checkout, not in a wheel."""
    paths = [*SCRIPTS.glob("*.py"), *SCRIPTS.glob("research/*.py")]
    is_command = '\nif __name__ == "__main__":'
    return {
        path.stem: path
        for path in sorted(paths, key=lambda path: path.stem)
        if is_command in path.read_text()
    }


def module_of(name: str) -> str:
    """Returns the module of a command.

    >>> module_of("train"), module_of("reproduce")
    ('rank4class.scripts.train', 'rank4class.scripts.research.reproduce')
    """
    relative = files()[name].relative_to(SCRIPTS.parent).with_suffix("")
    return ".".join(["rank4class", *relative.parts])


def summaries() -> dict[str, str]:
    """Returns the first sentence of each command's docstring, by its name."""
    docstrings = {name: ast.get_docstring(ast.parse(path.read_text())) for name, path in files().items()}
    return {name: (docstring or "").partition("\n")[0] for name, docstring in docstrings.items()}


def _help(folder: pathlib.Path) -> str:
    """Returns the usage and the commands in a folder, and how to list those of research."""
    shown = {name: text for name, text in summaries().items() if files()[name].parent == folder}
    width = max(map(len, shown), default=0)
    lines = [f"  {name:{width}}  {summary}" for name, summary in shown.items()]
    if folder == SCRIPTS and (SCRIPTS / "research").is_dir():
        lines += ["", "Commands of research: rank4class --research"]
    return USAGE + "\n".join(["Commands:", *lines])


if __name__ == "__main__":
    main()

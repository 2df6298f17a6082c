"""The version of the code that runs."""

import os
import subprocess

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def git_commit() -> str | None:
    """Returns the commit of the package, followed by "-dirty" if files differ from it.

    None if the package is not a Git checkout, such as an installed wheel: the checkout around it, if there is
    one, is someone else's.
    """
    try:
        if _git("rev-parse", "--show-prefix"):  # the path of the package inside the checkout
            return None
        return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "-C", _PACKAGE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

"""The version of the code that runs, and of the code that has run; settings of its arithmetic."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

ENVIRONMENT = ("TF_ENABLE_ONEDNN_OPTS", "TF_SET_ONEDNN_FPMATH_MODE", "NVIDIA_TF32_OVERRIDE")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def git_commit() -> str | None:
    """Returns the commit of the package, with "-dirty" if files differ; None if it is no Git checkout."""
    try:
        if _git("rev-parse", "--show-prefix"):  # the path of the package inside the checkout
            return None
        return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return None


def numeric_environment() -> dict[str, str]:
    """Returns the environment variables that change the arithmetic of TensorFlow, as far as they are set."""
    return {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}


def commits(sessions: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the commits of several starts of commands, "unknown" for those outside a checkout.

    >>> commits([{"git": "5eed"}, {"git": None}, {"git": "5eed"}])
    ['5eed', 'unknown']
    """
    return sorted({session["git"] or "unknown" for session in sessions})


def versions(sessions: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the versions of each package, several of them separated by commas.

    >>> versions([{"packages": {"numpy": "2.0"}}, {"packages": {"numpy": "1.26", "scipy": "1.14"}}])
    {'numpy': '1.26, 2.0', 'scipy': '1.14'}
    """
    names: dict[str, set[str]] = {}
    for session in sessions:
        for package, version in session["packages"].items():
            names.setdefault(package, set()).add(version)
    return {package: ", ".join(sorted(of_package)) for package, of_package in names.items()}


def _git(*arguments: str) -> str:
    command = ["git", "-C", _PACKAGE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

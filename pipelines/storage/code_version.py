"""The version of the code that runs."""

import os
import subprocess


def git_commit() -> str | None:
    """Returns the commit of the code, followed by "-dirty" if files differ from it; None outside Git."""
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        command = ["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None

"""Session log."""

import contextlib
import datetime
import importlib.metadata
import platform
import sys
import time
from typing import Any

import tensorflow as tf

from rank4class.pipelines.storage.code_version import git_commit, numeric_environment
from rank4class.pipelines.storage.run_directory import RunDirectory

PACKAGES = (
    "rank4class",
    "tensorflow",
    "tensorflow-ranking",
    "tf-models-official",
    "tensorflow-text",
    "numpy",
    "scikit-learn",
)


class Session:
    """The line of `sessions.jsonl` about this start of the command, from a step on."""

    def __init__(self, run_dir: RunDirectory, strategy: tf.distribute.Strategy, step: int):
        self._run_dir = run_dir
        self._earlier = run_dir.sessions()
        self._started = time.monotonic()
        self.line = {
            "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "command": sys.orig_argv,
            **provenance(),
            "python": platform.python_version(),
            "host": platform.node(),
            "strategy": type(strategy).__name__,
            "replicas": strategy.num_replicas_in_sync,
            "from_step": step,
        }

    def write(self, step: int) -> None:
        """Writes the line with the number of steps so far and the seconds since the start."""
        seconds = round(time.monotonic() - self._started, 1)
        self._run_dir.write_sessions([*self._earlier, {**self.line, "to_step": step, "seconds": seconds}])


def provenance() -> dict[str, Any]:
    """Returns the "git" commit, the versions of "packages" and the "environment" that determine results."""
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # run from a folder of sources
            versions[name] = importlib.metadata.version(name)
    return {"git": git_commit(), "packages": versions, "environment": numeric_environment()}

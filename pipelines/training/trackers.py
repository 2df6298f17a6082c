"""Experiment trackers, MLflow and Weights & Biases, which get what TensorBoard gets, and the final files.

A thread sends it, with the settings of the tracker's own environment variables: a training neither waits for
a tracker nor fails because of one.
"""

import contextlib
import importlib.util
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from rank4class import arguments
from rank4class.pipelines.storage import files

VARIABLE = "RANK4CLASS_LOG"  # names, joined by commas
SECONDS = 30.0  # for the last messages at the end of a training

Values = Mapping[str, Any]
# Functions of name -> value of the fields, of name -> value at a step, and of the paths of files.
Client = tuple[Callable[[Values], Any], Callable[[Values, int], Any], Callable[[Sequence[str]], Any]]


class _Incomplete(Exception):
    """Tells a tracker that the training stopped before its end."""


class Tracker:
    """Sends the fields, values and files of a run to a tracker; the first error ends it with a warning."""

    def __init__(self, name: str, folder: str):
        self._name = name
        self._folder = folder
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        self._thread.start()

    def put_fields(self, fields: Values) -> None:
        self._queue.put((0, fields))

    def put_values(self, values: Values, step: int) -> None:
        self._queue.put((1, {name: float(value) for name, value in values.items()}, step))

    def put_files(self, paths: Sequence[str]) -> None:
        self._queue.put((2, paths))

    def close(self, is_complete: bool) -> None:
        """Ends the run there, as failed if it is not complete; waits for it for half a minute at most."""
        self._queue.put(is_complete)
        self._thread.join(SECONDS)

    def _send_all(self) -> None:
        try:
            with TRACKERS[self._name](self._folder) as client:
                while not isinstance(message := self._queue.get(), bool):
                    kind, *content = message
                    client[kind](*content)
                if not message:
                    raise _Incomplete
        except _Incomplete:
            return
        except Exception as error:  # trackers raise any exception
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            logging.warning("--log=%s: %s. The training continues without it.", self._name, reason)


@contextlib.contextmanager
def _mlflow(folder: str) -> Iterator[Client]:
    import mlflow

    path = os.path.join(folder, "mlflow_run.txt")
    run_id = files.read_text(path) if files.exists(path) else None
    with mlflow.start_run(run_id, run_name=os.path.basename(folder), log_system_metrics=False) as run:
        files.write(path, run.info.run_id)

        def log(values: Values, step: int) -> None:
            mlflow.log_metrics({name.replace("@", "_at_"): value for name, value in values.items()}, step)

        yield mlflow.log_params, log, lambda paths: [mlflow.log_artifact(path) for path in paths]


@contextlib.contextmanager
def _wandb(folder: str) -> Iterator[Client]:
    import wandb

    run_id = files.sha256(os.path.abspath(folder))[:16]
    with wandb.init(id=run_id, resume="allow", name=os.path.basename(folder), dir=folder) as run:

        def save(paths: Sequence[str]) -> None:
            for path in paths:
                run.save(path, base_path=os.path.dirname(path), policy="now")

        yield run.config.update, lambda values, step: run.log(values, step=step), save


TRACKERS = {"mlflow": _mlflow, "wandb": _wandb}


def start(folder: str) -> list[Tracker]:
    """Starts the trackers that the environment names; ValueError or ImportError: one that there is not."""
    names = [name for name in os.environ.get(VARIABLE, "").split(",") if name]
    for name in names:
        arguments.check_choice(TRACKERS, log=name)
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"log={name!r}: not installed. Run: pip install {name}")
    return [Tracker(name, folder.rstrip("/")) for name in names]

"""A run's folder: what it holds, whose it is, and what a restart may trust.

config.json      the experiment
data.json        hashes of the classes and of each split's examples
class_texts.json what described the classes, where something did
metrics.jsonl    one line an evaluation: step, training loss, learning rate, validation metrics
sessions.jsonl   one line a start of the command: when, where, with what code, how far it came
tensorboard/     the same for TensorBoard
checkpoints/     last/ to resume from, best/ by the monitored metric
features-*.npz   a frozen encoder's outputs
results.json     written once, at the end
not_finite.json  the step that stopped the run, if one did
lock             held by the process that trains
"""

import fcntl
import math
import os
import platform
import re

from rank4class.data.readers import strict_json
from rank4class.pipelines import config
from rank4class.pipelines.storage import files


class RunDirectory:
    """The folder of one experiment's run, on disk or in object storage.

    Args:
      path: of the folder.
      kind: the experiment's dataclass.
    """

    def __init__(self, path, kind=config.Experiment):
        path = os.fspath(path)
        if not path:
            raise ValueError("--workdir is empty: name a folder")
        if "[" in path:
            raise ValueError(
                f"{path} has a bracket, by which TensorFlow looks for checkpoints of other names"
            )
        self.path, self._kind = path, kind
        self.checkpoints = os.path.join(path, "checkpoints")
        self.tensorboard = os.path.join(path, "tensorboard")
        self._config = os.path.join(path, "config.json")
        self._data = os.path.join(path, "data.json")
        self._class_texts = os.path.join(path, "class_texts.json")
        self._metrics = os.path.join(path, "metrics.jsonl")
        self._sessions = os.path.join(path, "sessions.jsonl")
        self.not_finite = os.path.join(path, "not_finite.json")
        self._results = os.path.join(path, "results.json")
        self._lock = None

    def lock(self):
        """Keeps other processes from training in the folder until `unlock`, or until this one ends.

        Object storage knows no locks: there nobody is kept out.

        Raises:
          ValueError: another process trains in it.
          OSError: it cannot be written.
        """
        if self._lock or not files.is_local(self.path):
            return
        path = os.path.join(self.path, "lock")
        lock = open(path, "a+", encoding="utf-8")  # noqa: SIM115, it is held while it is open
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise ValueError(
                f"another process trains in {self.path} ({lock.read().strip()}): wait for it or choose "
                "another --workdir"
            ) from error
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {platform.node()}\n")
        lock.flush()
        self._lock = lock

    def unlock(self):
        if self._lock:
            self._lock.close()
            self._lock = None

    def check_owner(self, experiment):
        """Raises ValueError where the folder belongs to another experiment."""
        if not files.exists(self._config):
            return
        try:
            there = self.experiment()
        except ValueError as error:
            raise ValueError(f"{error}; choose another --workdir") from error
        difference = config.first_difference(there, experiment)
        if difference:
            field, there, here = difference
            raise ValueError(
                f"{self.path} holds another experiment: {field} is {there!r} there and {here!r} here; "
                "choose another --workdir"
            )

    def check_data(self, hashes):
        """Raises ValueError where the run was made with other classes or examples.

        Args:
          hashes: `task.Task.hashes`.
        """
        if not files.exists(self._data):
            return
        kept = read_json(self._data)
        for name, value in hashes.items():
            if kept.get(name) != value:
                what = "classes" if name == "classes" else f"examples of the {name} split"
                raise ValueError(
                    f"{self.path} was made with other {what}: restore the data, or choose another --workdir"
                )

    def check_class_texts(self, texts):
        """Raises ValueError where the run was made with other texts of the classes."""
        if not files.exists(self._class_texts):
            return
        kept = read_json(self._class_texts).get("texts")
        if kept != list(texts or ()):
            raise ValueError(
                f"{self.path} was made with other class texts: restore those in {self._class_texts}, or "
                "choose another --workdir"
            )

    def claim(self, experiment, hashes, class_texts=None):
        """Makes the folder this experiment's own, and locks it.

        Raises:
          ValueError: another process trains in it, or it has become another experiment's meanwhile.
          OSError: it cannot be written.
        """
        files.make_folder(self.path)
        self.lock()
        self.check_owner(experiment)
        if not files.exists(self._config):
            write_json(self._data, hashes)
            if class_texts is not None:
                write_json(self._class_texts, {"texts": class_texts})
            files.write(self._config, config.to_json(experiment))

    def check_shared(self, experiment, hashes):
        """Raises ValueError where a worker's folder, flags or data are not those of the chief.

        Args:
          experiment, hashes: the worker's own; the chief has claimed the folder.
        """
        if not files.exists(self._config):
            raise ValueError(
                f"{self.path} is not the chief's folder: all workers need one and the same --workdir"
            )
        self.check_owner(experiment)
        self.check_data(hashes)

    def experiment(self):
        """Returns the experiment that the folder belongs to.

        Raises:
          FileNotFoundError, ValueError: there is none, or it is broken.
        """
        if not files.exists(self._config):
            raise FileNotFoundError(f"{self.path} is not a run's folder: it has no config.json")
        return config.from_json(files.read_text(self._config), self._config, self._kind)

    def results(self):
        """Returns the finished run's results, or None."""
        if not files.exists(self._results):
            return None
        results = read_json(self._results)
        if not all(isinstance(results.get(split), dict) for split in ("validation", "test")):
            raise ValueError(f"{self._results}: no results of a finished run. Restore it, or remove it.")
        return results | {split: _restored(results[split]) for split in ("validation", "test")}

    def write_results(self, results):
        write_json(self._results, results)

    def write_not_finite(self, report):
        write_json(self.not_finite, report)

    def history(self):
        """Returns the evaluations so far, oldest first."""
        return [_restored(line) for line in _read_lines(self._metrics)]

    def write_history(self, history):
        _write_lines(self._metrics, history)

    def sessions(self):
        """Returns the starts of the command so far, oldest first."""
        return _read_lines(self._sessions)

    def write_sessions(self, sessions):
        _write_lines(self._sessions, sessions)


TUNING = "tuning"  # the folder of a grid's runs that were to choose by
RUN = ("config.json", "data.json")  # files that every run's folder has
_SORTER_STUDY = re.compile(r".+-rate.+-seed\d+\.json")


def check_folder(path, kind):
    """Returns the path of a folder to write to, as a string.

    Args:
      path: of the folder, which need not exist.
      kind: of what is to be written: "training", "sweep" or "study of sorters".

    Raises:
      ValueError: the path is empty, or the folder holds what another command has written.
    """
    path = os.fspath(path)
    if not path:
        raise ValueError("--workdir is empty: name a folder")
    present = _kind_in(path)
    if present not in (None, kind):
        raise ValueError(f"{path}: the folder holds a {present}. Choose another --workdir.")
    return path


def _kind_in(path):
    names = files.names_in(path)
    if set(names) >= set(RUN):
        return "training"
    if any(map(_SORTER_STUDY.fullmatch, names)):
        return "study of sorters"
    if any(_holds_run(os.path.join(path, name)) for name in names):
        return "sweep"
    tuning = os.path.join(path, TUNING)
    if TUNING in names and any(_holds_run(os.path.join(tuning, name)) for name in files.names_in(tuning)):
        return "sweep"
    return None


def _holds_run(path):
    return all(files.exists(os.path.join(path, name)) for name in RUN)


def read_json(path):
    """Returns the object that a file holds; raises ValueError, with a remedy, where it is damaged."""
    return _parse(files.read_text(path), path)


def write_json(path, value):
    files.write(path, files.to_json(value, indent=2) + "\n")


def _restored(metrics):
    """Returns metrics as they were written: those that are not finite, null in JSON, are infinite."""
    return {name: math.inf if value is None else value for name, value in metrics.items()}


def _read_lines(path):
    if not files.exists(path):
        return []
    lines = files.read_text(path).splitlines()
    return [_parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def _write_lines(path, values):
    files.write(path, "".join(files.to_json(value) + "\n" for value in values))


def _parse(text, where):
    try:
        parsed = strict_json.parse(text)
    except ValueError as error:
        raise ValueError(f"{where} is damaged ({error}): remove it, or choose another --workdir") from error
    if not isinstance(parsed, dict):
        raise ValueError(f"{where} is damaged (no JSON object): remove it, or choose another --workdir")
    return parsed

"""The folder of a run, see `docs/reference/files.md`, and the checks before a command uses its files."""

import contextlib
import fcntl
import io
import json
import math
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

import numpy as np

from rank4class import strict_json
from rank4class.data.readers import tables
from rank4class.data.readers.columns import Columns
from rank4class.pipelines import config
from rank4class.pipelines.storage import files


class RunDirectory:
    """The folder of one experiment's run, on disk or in object storage."""

    def __init__(self, path: str | os.PathLike):
        self.path = files.check_folder_name("--workdir", os.fspath(path))
        self.checkpoints = os.path.join(self.path, "checkpoints")
        self.model = os.path.join(self.path, "model")
        self.not_finite = os.path.join(self.path, "not_finite.json")
        self._config = os.path.join(self.path, "config.json")
        self._data = os.path.join(self.path, "data.json")
        self._user_parts = os.path.join(self.path, "user_parts.json")
        self._class_texts = os.path.join(self.path, "class_texts.json")
        self._metrics = os.path.join(self.path, "metrics.jsonl")
        self._sessions = os.path.join(self.path, "sessions.jsonl")
        self._results = os.path.join(self.path, "results.json")
        self._test_values = os.path.join(self.path, "test_values.npz")
        self._class_vectors = os.path.join(self.path, "classes.npy")
        self._lock: TextIO | None = None

    def lock(self) -> None:
        """Keeps other processes from the folder until `unlock`; raises ValueError if one trains in it."""
        if self._lock or not files.is_local(self.path) or not files.exists(self.path):
            return  # object storage has no locks
        path = os.path.join(self.path, "lock")
        lock = open(path, "a+", encoding="utf-8")  # noqa: SIM115, the open file holds the lock
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise ValueError(
                f"{self.path}: another process trains in it ({lock.read().strip()}). Wait for it, or choose "
                "another --workdir."
            ) from error
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {platform.node()}\n")
        lock.flush()
        self._lock = lock

    def unlock(self) -> None:
        """Releases the lock, if this process holds it."""
        if self._lock:
            self._lock.close()
            self._lock = None

    def check_owner(self, experiment: config.Experiment) -> None:
        """Raises ValueError if the folder belongs to another experiment."""
        if not files.exists(self._config):
            return
        if difference := config.first_difference(self.experiment(), experiment):
            field, there, here = difference
            raise ValueError(
                f"{self.path}: holds another experiment ({field} is {there!r} there and {here!r} here). "
                "Choose another --workdir."
            )

    def check_data(self, hashes: dict[str, str], class_texts: tuple[str, ...] | None = None) -> None:
        """Raises ValueError if the run was made with other data, by the hashes of a `TaskData`, or texts."""
        if not files.exists(self._config):  # a kill left it unclaimed
            return
        saved = read_json(self._data)
        for name, value in hashes.items():
            if saved.get(name, value) != value:
                changed = f"another file of {name}" if "." in name else f"other examples of the {name} split"
                raise ValueError(
                    f"{self.path}: made with {'other classes' if name == 'classes' else changed}. Restore "
                    "the data, or choose another --workdir."
                )
        if class_texts is None or not files.exists(self._class_texts):
            return
        if read_json(self._class_texts).get("texts") != list(class_texts):
            raise ValueError(
                f"{self.path}: made with other class texts. Restore those in {self._class_texts}, or choose "
                "another --workdir."
            )

    def data_hashes(self) -> dict[str, str]:
        return read_json(self._data)

    def experiment(self) -> config.Experiment:
        """Returns the folder's experiment; ValueError if the module of a part of the user is not imported."""
        if not files.exists(self._config):
            problem = "not the folder of a run, as it has no config.json. Give the --workdir of a training."
            if not files.exists(self.path):
                problem = "no such folder. Give the --workdir of a training."
            elif run := _run_in(self.path):
                problem = f"the folder of a sweep. Give that of one of its runs, such as {run}."
            raise FileNotFoundError(f"{self.path}: {problem}")
        parts = read_json(self._user_parts) if files.exists(self._user_parts) else {}
        for kind, part in parts.items():
            if part["name"] not in config.PARTS[kind].names():
                raise ValueError(
                    f"{self.path}: {kind}={part['name']!r} is not registered. Import the module that "
                    f"registers it before you load the run; commands do with --import={part['module']}."
                )
        text = files.read_text(self._config)
        return config.from_json(text, self._config)

    def check_file(self, path: str, labeled: bool, **selected: str) -> None:
        """Raises the errors of a file or folder for the model that its existence and its columns show.

        Args:
          path: of the file.
          labeled: whether it has labels.
          selected: columns in place of those of the training, by the option of the dataset.
        """
        columns = Columns.of_options(self.experiment().data.options() | selected)
        tables.check_inputs(path, columns if labeled else columns.without_labels())

    def results(self) -> dict[str, Any] | None:
        """Returns the results of a finished run, or None."""
        if not files.exists(self._results):
            return None
        results = read_json(self._results)
        return results | {split: _null_to_inf(summary) for split, summary in evaluations(results).items()}

    def write_results(self, results: dict[str, Any]) -> None:
        write_json(self._results, results)

    def final_files(self) -> list[str]:
        """Returns the paths of the experiment, the hashes of its data, its history and its results."""
        return [self._config, self._data, self._metrics, self._results]

    def test_values(self) -> dict[str, np.ndarray]:
        """Returns metric -> its values for the test examples, float32 `[N]`."""
        return files.read_npz(self._test_values)

    def write_test_values(self, names: Iterable[str], values: np.ndarray) -> None:
        """Writes the metrics of the test examples, float32 `[N, M]`."""
        files.write_npz(self._test_values, dict(zip(names, values.T, strict=True)))

    def class_vectors(self) -> np.ndarray | None:
        """Returns the vectors of the classes, float32 `[n, d]`, if the run has written them."""
        if not files.exists(self._class_vectors):
            return None
        return np.load(io.BytesIO(files.read_bytes(self._class_vectors)))

    def write_class_vectors(self, vectors: np.ndarray) -> None:
        with files.writing(self._class_vectors) as file:
            np.save(file, np.asarray(vectors, np.float32))

    def fitted(self, name: str, from_json: Callable[..., Any]) -> Any:
        """Returns "calibration", "thresholds" or "prediction_sets" by the inverse of `to_json`; or None."""
        path = os.path.join(self.path, f"{name}.json")
        return from_json(read_json(path)) if files.exists(path) else None

    def write_fitted(self, name: str, content: dict[str, Any]) -> None:
        write_json(os.path.join(self.path, f"{name}.json"), content)

    def fitted_arrays(self, name: str) -> dict[str, np.ndarray] | None:
        """Returns the arrays of "detector", if the run has written them."""
        path = os.path.join(self.path, f"{name}.npz")
        return files.read_npz(path) if files.exists(path) else None

    def write_fitted_arrays(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        files.write_npz(os.path.join(self.path, f"{name}.npz"), arrays)

    def history(self) -> list[dict[str, float]]:
        """Returns the evaluations so far, oldest first."""
        return [_null_to_inf(line) for line in _read_lines(self._metrics)]

    def write_history(self, history: list[dict[str, float]]) -> None:
        _write_lines(self._metrics, history)

    def sessions(self) -> list[dict[str, Any]]:
        """Returns the starts of the command so far, oldest first."""
        return _read_lines(self._sessions)

    def write_sessions(self, sessions: list[dict[str, Any]]) -> None:
        _write_lines(self._sessions, sessions)


class TrainingDirectory(RunDirectory):
    """The folder of a run to train, which a checked experiment claims."""

    def __init__(self, path: str | os.PathLike, experiment: config.Experiment):
        super().__init__(check_folder(path, "training"))
        self._experiment = experiment
        self.check_owner(experiment)

    def claim(
        self,
        hashes: dict[str, str],
        class_texts: tuple[str, ...] | None = None,
        describe: Callable[[str], None] = files.make_folder,
    ) -> None:
        """Creates the folder, locks it, and describes the model in it; `config.json` is its last file."""
        files.make_folder(self.path)
        self.lock()
        self.check_owner(self._experiment)
        if not files.exists(self._config):
            self._remove_partial_claim()
            write_json(self._data, hashes)
            if class_texts is not None:
                write_json(self._class_texts, {"texts": class_texts})
            if parts := config.user_parts(self._experiment):
                write_json(self._user_parts, parts)
            describe(self.model)
            files.write(self._config, config.to_json(self._experiment))

    def _remove_partial_claim(self) -> None:
        """Removes the files of a claim that was killed, whose first file is data.json."""
        written = (self._data, self.model, self._class_texts, self._user_parts)
        if path := next(filter(files.exists, written), None):
            saved = {"": ""}
            with contextlib.suppress(OSError, ValueError):
                saved = read_json(self._data)
            if not all(re.fullmatch("[0-9a-f]{64}", str(value)) for value in saved.values()):
                raise ValueError(
                    f"{path}: not written by a run, which would replace it. Choose another --workdir."
                )
        files.remove([self.model, self._class_texts, self._user_parts])

    def check_shared(self, hashes: dict[str, str], class_texts: tuple[str, ...] | None = None) -> None:
        """Raises ValueError if a worker's folder, experiment or data differ from those the chief claimed."""
        if not files.exists(self._config):
            raise ValueError(
                f"{self.path}: not the chief's folder. Give all workers one and the same --workdir."
            )
        self.check_owner(self._experiment)
        self.check_data(hashes, class_texts)


def run_hash(experiment: config.Experiment, hashes: dict[str, str]) -> str:
    """Returns a hash of an experiment and of its data's hashes."""

    def plain(value: Any) -> str | float:  # 3 and 3.0 epochs are equal
        if isinstance(value, tuple) and any(isinstance(each, float) for each in value):
            return str(tuple(map(float, value)))
        return float(value) if isinstance(value, int | float) else str(value)

    fields = {name: plain(value) for name, value in config.changed_fields(experiment).items()}
    return files.sha256(json.dumps([fields, hashes], sort_keys=True))


def evaluations(results: Mapping[str, Any]) -> dict[str, Any]:
    """Returns split -> its summary in results; those of data in memory have no test split."""
    return {split: results[split] for split in ("validation", "test") if split in results}


TUNING = "tuning"  # folder of the runs that select a grid's hyperparameters
SEARCH = "search.json"  # file of the last search of a grid
RUN = ("config.json", "data.json")  # files in every run's folder


def is_run(path: str) -> bool:
    """Returns whether a folder is that of a run."""
    return set(files.names_in(path)) >= set(RUN)


def check_folder(path: str | os.PathLike, kind: str) -> str:
    """Returns the path of a folder; ValueError if it holds a training or a sweep, and is for another kind."""
    path = files.check_folder_name("--workdir", os.fspath(path))
    is_training = is_run(path)
    if is_training != (kind == "training") and (is_training or _run_in(path)):
        present = "training" if is_training else "sweep"
        raise ValueError(f"{path}: the folder holds a {present}. Choose another --workdir.")
    return path


def _run_in(path: str) -> str | None:
    """Returns the folder of a run of a sweep, a final one if there are any; None if there is no run."""
    for folder in (path, os.path.join(path, TUNING)):
        for name in files.names_in(folder):
            run = os.path.join(folder, name)
            if all(files.exists(os.path.join(run, file)) for file in RUN):
                return run
    return None


def read_json(path: str) -> dict[str, Any]:
    """Returns the object in a JSON file."""
    return strict_json.parse_object(path, files.read_text(path))


def write_json(path: str, value: Any) -> None:
    """Writes a JSON file for people to read."""
    files.write(path, files.to_json(value, indent=2) + "\n")


def _null_to_inf(metrics: dict[str, Any]) -> dict[str, Any]:
    """Returns metrics as they were written: JSON holds null for those that are not finite."""
    return {
        name: math.inf if value is None else _null_to_inf(value) if name in ("seen", "unseen") else value
        for name, value in metrics.items()
    }


def _read_lines(path: str) -> list[dict[str, Any]]:
    if not files.exists(path):
        return []
    lines = files.read_text(path).splitlines()
    return [strict_json.parse_object(f"{path}:{number}", line) for number, line in enumerate(lines, 1)]


def _write_lines(path: str, values: Iterable[Any]) -> None:
    files.write(path, "".join(files.to_json(value) + "\n" for value in values))

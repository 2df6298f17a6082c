"""Checkpoints of a run, by step: written whole, and checked before they are trusted."""

import os
import re
import tempfile
from collections.abc import Collection

import tensorflow as tf
from absl import logging

from rank4class import compat
from rank4class.pipelines.storage import files

_INDEX = re.compile(r"step-(\d+)\.index")
# Errors of reading a damaged checkpoint or one of another model.
UNUSABLE = (tf.errors.OpError, AssertionError, IndexError, RuntimeError, ValueError)
_PARTIAL = "partial-"
_REMEDY = "Restore it, or choose another --workdir."


def steps_in(folder: str) -> list[int]:
    """Returns the steps of the complete checkpoints in a folder, oldest first."""
    matches = filter(None, map(_INDEX.fullmatch, files.names_in(folder)))
    return sorted(int(match[1]) for match in matches)


class Owner(tf.train.experimental.PythonState):
    """Marks a checkpoint as that of the run with a `run_hash`."""

    def __init__(self, run: str):
        self._run = run

    def serialize(self) -> str:
        return self._run

    def deserialize(self, string_value: str | bytes) -> None:
        if tf.compat.as_text(string_value) != self._run:
            raise ValueError("it was made by another experiment or with other data")


class Checkpoints:
    """A folder of checkpoints `step-N` of one object; a checkpoint exists if and only if its index does.

    All workers write together, as some variables are read from all; those without `writes` write to a
    temporary folder.
    """

    def __init__(self, folder: str, checkpoint: tf.train.Checkpoint, writes: bool = True):
        self.folder = folder
        self._checkpoint = checkpoint
        self._writes = writes

    def steps(self) -> list[int]:
        """Returns the steps of the checkpoints, oldest first."""
        return steps_in(self.folder)

    def write(self, step: int) -> None:
        """Writes a checkpoint; raises OSError if that fails. Earlier checkpoints stay."""
        if not self._writes:
            with tempfile.TemporaryDirectory() as folder:
                self._checkpoint.write(os.path.join(folder, "discarded"))
            return
        files.make_folder(self.folder)
        partial = _PARTIAL + f"step-{step}"
        try:
            self._checkpoint.write(os.path.join(self.folder, partial))
            # Otherwise new data would appear under the old index of the same step.
            files.remove(self._files_of(f"step-{step}"))
            for path in reversed(self._files_of(partial)):
                name = os.path.basename(path).removeprefix(_PARTIAL)
                tf.io.gfile.rename(path, os.path.join(self.folder, name), overwrite=True)
        except tf.errors.OpError as error:
            files.remove(self._files_of(partial))
            raise OSError(
                f"{self._prefix(step)}: the checkpoint cannot be written ({compat.reason(error)}). Remove "
                "the cause, and run the same command again: the checkpoints before it stay."
            ) from error

    def check(self, step: int) -> None:
        """Raises ValueError if the checkpoint of a step is damaged."""
        prefix = self._prefix(step)
        try:
            reader = tf.compat.v1.train.NewCheckpointReader(prefix)
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
        except UNUSABLE as error:
            raise ValueError(
                f"{prefix}: the checkpoint is damaged ({compat.reason(error)}). {_REMEDY}"
            ) from error

    def read(self, step: int) -> None:
        """Restores the checkpoint of a step; raises ValueError if it is damaged or of another run."""
        self.check(step)
        prefix = self._prefix(step)
        try:
            status = self._checkpoint.read(prefix)
            status.assert_existing_objects_matched().assert_consumed()
        except UNUSABLE as error:
            raise ValueError(
                f"{prefix}: a checkpoint of another run ({compat.reason(error)}). {_REMEDY}"
            ) from error

    def read_newest(self) -> int | None:
        """Restores the newest usable checkpoint, or raises ValueError; returns its step, None without any."""
        steps = self.steps()
        for step in reversed(steps):
            try:
                self.read(step)
                return step
            except ValueError as error:
                logging.warning("%s Going back to the one before.", error)
        if steps and not self._writes and self.steps() != steps:  # another process replaced them meanwhile
            return self.read_newest()
        if steps:
            raise ValueError(f"{self.folder}: none of the checkpoints can be used. {_REMEDY}")
        return None

    def keep(self, steps: Collection[int | None]) -> None:
        """Removes all other checkpoints and the incomplete files of a killed run, no other files."""
        if not self._writes:
            return
        kept_stems = {f"step-{step}" for step in steps}
        stems = {name.split(".")[0].removesuffix("_temp") for name in files.names_in(self.folder)}
        for stem in stems - kept_stems:
            if re.fullmatch(rf"({_PARTIAL})?step-\d+", stem):
                files.remove(self._files_of(stem))

    def _prefix(self, step: int) -> str:
        return os.path.join(self.folder, f"step-{step}")

    def _files_of(self, stem: str) -> list[str]:
        """Returns the paths of a checkpoint's files, the index first."""
        names = [
            name
            for name in files.names_in(self.folder)
            if name == f"{stem}_temp" or name.startswith(f"{stem}.")
        ]
        names.sort(key=lambda name: not name.endswith(".index"))
        return [os.path.join(self.folder, name) for name in names]


def best_checkpoints(folder: str, model: tf.keras.Model, run: str, writes: bool = True) -> Checkpoints:
    """Returns the `Checkpoints` of a run's best models."""
    best = tf.train.Checkpoint(model=model, owner=Owner(run))
    return Checkpoints(os.path.join(folder, "best"), best, writes)

"""Checkpoints of a run, by step: written whole, and checked before they are trusted."""

import os
import re
import tempfile

import tensorflow as tf
from absl import logging

from rank4class.pipelines.storage import files

_INDEX = re.compile(r"step-(\d+)\.index")
# What reading and restoring raise where something does not fit.
UNUSABLE = (tf.errors.OpError, AssertionError, IndexError, RuntimeError, ValueError)
_PARTIAL = "partial-"
_UNREADABLE = "unreadable-"


class Checkpoints:
    """A folder of checkpoints `step-N` of one object.

    A checkpoint is written under another name, then its data get their own name, and its index last: it
    is there from the moment its index is. Its tensors carry checksums, which are compared before
    anything is restored.

    Args:
      folder: on disk or in object storage.
      checkpoint: a `tf.train.Checkpoint`.
      writes: whether this process's files count. Several workers have to write together, for some
        variables are read from all of them; those of the others go to a folder that is removed.
    """

    def __init__(self, folder, checkpoint, writes=True):
        self.folder = folder
        self._checkpoint = checkpoint
        self._writes = writes

    def steps(self):
        """Returns the steps of the checkpoints that are there, oldest first."""
        found = filter(None, map(_INDEX.fullmatch, files.names_in(self.folder)))
        return sorted(int(match[1]) for match in found)

    def write(self, step):
        """Writes a checkpoint; raises OSError where it cannot, and what was there stays."""
        if not self._writes:
            with tempfile.TemporaryDirectory() as folder:
                self._checkpoint.write(os.path.join(folder, "thrown-away"))
            return
        files.make_folder(self.folder)
        partial = _PARTIAL + f"step-{step}"
        try:
            self._checkpoint.write(os.path.join(self.folder, partial))
            # One of the same step would stand there with new data under its old index.
            files.remove(self._files_of(f"step-{step}"))
            for path in reversed(self._files_of(partial)):
                name = os.path.basename(path).removeprefix(_PARTIAL)
                tf.io.gfile.rename(path, os.path.join(self.folder, name), overwrite=True)
        except tf.errors.OpError as error:
            files.remove(self._files_of(partial))
            raise OSError(
                f"checkpoint {self._prefix(step)} cannot be written ({files.reason(error)}): those before it "
                "stay, mend that and run the same command again"
            ) from error

    def check(self, step):
        """Raises ValueError where the checkpoint of a step is damaged."""
        prefix = self._prefix(step)
        try:
            reader = tf.compat.v1.train.NewCheckpointReader(prefix)
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
        except UNUSABLE as error:
            raise ValueError(f"checkpoint {prefix} is damaged: {files.reason(error)}") from error

    def read(self, step):
        """Restores the checkpoint of a step.

        Raises:
          ValueError: it is damaged, or of another run; some variables may have taken its values.
        """
        self.check(step)
        prefix = self._prefix(step)
        try:
            status = self._checkpoint.read(prefix)
            status.assert_existing_objects_matched().assert_consumed()
        except UNUSABLE as error:
            raise ValueError(f"checkpoint {prefix} is of another run: {files.reason(error)}") from error

    def read_newest(self):
        """Restores the newest checkpoint that can be, and says which it passes over.

        Returns:
          Its step, or None where there is no checkpoint at all.

        Raises:
          ValueError: there are checkpoints, but none can be used.
        """
        steps = self.steps()
        bad = []
        for step in reversed(steps):
            try:
                self.read(step)
            except ValueError as error:
                logging.warning("%s; going back to the one before", error)
                bad.append(step)
                continue
            self._set_aside(bad)
            return step
        if steps:
            raise ValueError(
                f"none of the checkpoints in {self.folder} can be used, and nothing is overwritten: restore "
                "one of them, or choose another --workdir"
            )
        return None

    def keep(self, steps):
        """Removes all checkpoints but these, and what a killed run left half written."""
        if not self._writes:
            return
        kept = {f"step-{step}" for step in steps}
        stems = {name.split(".")[0].removesuffix("_temp") for name in files.names_in(self.folder)}
        for stem in stems:
            if stem not in kept and not stem.startswith(_UNREADABLE):
                files.remove(self._files_of(stem))

    def _set_aside(self, steps):
        """Renames bad checkpoints: a later start need not try them, and nothing is lost."""
        for step in steps if self._writes else ():
            for path in self._files_of(f"step-{step}"):
                folder, name = os.path.split(path)
                with files.errors_of(path):
                    tf.io.gfile.rename(path, os.path.join(folder, _UNREADABLE + name), overwrite=True)

    def _prefix(self, step):
        return os.path.join(self.folder, f"step-{step}")

    def _files_of(self, stem):
        """The paths of a checkpoint, its index first: without it the others count for nothing."""
        every = files.names_in(self.folder)
        names = [name for name in every if name == f"{stem}_temp" or name.startswith(f"{stem}.")]
        names.sort(key=lambda name: not name.endswith(".index"))
        return [os.path.join(self.folder, name) for name in names]

"""Claims of work in a folder that several processes share."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import TextIO

from rank4class.pipelines.storage import files


class Claims:
    """The work that this process has claimed, so that no other process does it as well.

    A claim is a locked file in the folder. The system releases it when the process ends in any way, and
    another process can claim the work. The processes may run on several machines if the file system of the
    folder supports `flock` between them. Object storage has no locks: there every claim succeeds, and one
    process at a time may use the folder.

    Args:
      folder: of the files, which need not exist.
    """

    def __init__(self, folder: str):
        self._folder = folder
        self._held: dict[str, TextIO | None] = {}

    def __enter__(self) -> "Claims":
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._held):
            self.release(name)

    def take(self, name: str) -> bool:
        """Claims the work of a name; returns False if a process has claimed it, this one included."""
        if name in self._held:
            return False
        if not files.is_local(self._folder):
            self._held[name] = None
            return True
        file = self._open(name)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        if not _is_in_place(file):  # its process has released it between the two lines above
            file.close()
            return False
        self._held[name] = file
        return True

    def release(self, name: str) -> None:
        """Ends a claim of this process."""
        file = self._held.pop(name)
        if file is not None:
            with contextlib.suppress(FileNotFoundError):  # the user has removed the folder
                os.remove(file.name)
            file.close()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lets one process at a time enter the block."""
        if not files.is_local(self._folder):
            yield
            return
        with self._open("exclusive") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _open(self, name: str) -> TextIO:
        files.make_folder(self._folder)
        return open(os.path.join(self._folder, f".{name}.claim"), "a", encoding="utf-8")


def _is_in_place(file: TextIO) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(file.name))
    except FileNotFoundError:
        return False

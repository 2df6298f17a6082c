"""The cache of outputs of encoders, which all runs of a user share.

Its folder is `$RANK4CLASS_CACHE`, which the flag `--cache` sets; the default is `rank4class` in
`$XDG_CACHE_HOME` or `~/.cache`. With "off" each run keeps the outputs in its folder.
"""

import contextlib
import os
from collections.abc import Callable

from absl import logging

from rank4class.data import lazy_arrays
from rank4class.pipelines.storage import files


class Cache:
    """Files whose names have the hash of everything that their contents depend on.

    The folder of the run is searched too, and written to where the shared folder cannot be.
    """

    def __init__(self, workdir: str | os.PathLike):
        shared = lazy_arrays.cache_folder()
        folders = [os.fspath(workdir)]
        if shared != "off":
            folders.insert(0, files.check_folder_name("--cache", shared))
        self._searched, self._writable = tuple(folders), folders

    def find(self, name: str) -> str | None:
        """Returns the path of a file, or None."""
        for folder in self._searched:
            with contextlib.suppress(OSError):  # the folder may not be readable
                if files.exists(os.path.join(folder, name)):
                    return os.path.join(folder, name)
        return None

    def write(self, write: Callable[[str], None]) -> str:
        """Calls `write` with the folder to write to, and returns the folder."""
        while True:
            try:
                files.make_folder(self._writable[0], f"--cache={self._writable[0]}")
                write(self._writable[0])
                return self._writable[0]
            except OSError as error:
                if len(self._writable) == 1:
                    raise
                self._writable.pop(0)
                reason = str(error).rstrip(".")
                logging.warning("%s. The outputs of the encoder go to %s", reason, self._writable[0])

"""The cache of outputs of encoders, which all runs of a user share.

Its folder is `$RANK4CLASS_CACHE`, which the flag `--cache` sets; the default is `rank4class` in
`$XDG_CACHE_HOME` or `~/.cache`. With "off" each run keeps the outputs in its folder.
"""

import os

from rank4class.data import lazy_arrays
from rank4class.pipelines.storage import files


class Cache:
    """A folder of files whose names have the hash of everything that their contents depend on."""

    def __init__(self, workdir: str | os.PathLike):
        shared = lazy_arrays.cache_folder()
        self._is_shared = shared != "off"
        self.folder = files.check_folder_name("--cache", shared) if self._is_shared else os.fspath(workdir)

    def find(self, name: str) -> str | None:
        """Returns the path of a file, or None."""
        path = os.path.join(self.folder, name)
        return path if files.exists(path) else None

    def path(self, name: str) -> str:
        """Returns the path of a file to write; raises OSError if the folder cannot be written."""
        files.make_writable(self.folder, f"--cache={self.folder}" if self._is_shared else None)
        return os.path.join(self.folder, name)

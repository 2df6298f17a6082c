"""The cache of the outputs of encoders, which all runs of a user share."""

import contextlib
import io
import os
import re
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from rank4class.data import lazy_arrays
from rank4class.pipelines.storage import files

LARGEST = 20 * 10**9  # bytes of a shared cache, beyond which the oldest outputs are removed


class Cache:
    """The folder of the outputs of encoders.

    The names of the files have the hash of everything that their contents depend on. The folder is
    `$RANK4CLASS_CACHE`, which the flag `--cache` sets; the default is `rank4class` in `$XDG_CACHE_HOME` or
    `~/.cache`. With "off" each run keeps the outputs in its folder. `progress` is whether the encoding is
    shown.
    """

    def __init__(self, workdir: str | os.PathLike, progress: bool = True):
        self.progress = progress
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

    def vectors(self, group: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields keys `[N]` and vectors `[N, d]` of each file of a group."""
        for name in files.names_in(self.folder):
            if re.fullmatch(rf"{group}-[0-9a-f]{{16}}\.npz", name):
                with contextlib.suppress(OSError):  # another process may have removed it
                    content = files.read_bytes(os.path.join(self.folder, name))
                    with np.load(io.BytesIO(content)) as file:
                        yield file["keys"], file["vectors"]

    def add(self, group: str, keys: np.ndarray, vectors: np.ndarray) -> None:
        """Writes a file of a group; the oldest files of a shared cache that is too large make room."""
        path = self.path(f"{group}-{files.sha256(keys.tobytes())[:16]}.npz")
        files.write_npz(path, {"keys": keys, "vectors": vectors})
        if self._is_shared:
            left = LARGEST
            for _, size, each in sorted(stored(self.folder, "features"), reverse=True):
                left -= size
                if left < 0 and each != path:
                    files.remove([each])


def stored(folder: str, kind: str = "features|encoder") -> list[tuple[float, int, str]]:
    """Returns the time, the bytes and the path of each file of a cache, and of no other one in its folder."""
    found = []
    for name in files.names_in(folder):
        if re.match(rf"({kind})-[0-9a-f]{{16}}[-.]", name):
            path = os.path.join(folder, name)
            with contextlib.suppress(tf.errors.NotFoundError):  # another process may have removed it
                stat = tf.io.gfile.stat(path)
                found.append((stat.mtime_nsec / 1e9, stat.length, path))
    return found

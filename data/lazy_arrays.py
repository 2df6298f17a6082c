"""Arrays whose rows are made or read when they are used."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

CACHE = "RANK4CLASS_CACHE"  # environment variable
BLOCK_BYTES = 2**24
IN_MEMORY_BYTES = 2**28  # of a collected array


class StoredRows:
    """Rows of an array `[N, ...]` in a file, which are read when they are used.

    Indices, a mask or a slice select rows without reading them, and `np.asarray` reads them. Nothing of the
    file stays in memory.

    Args:
      file: an open file that holds an array in C order.
      dtype, shape: of the array.
      offset: first byte of the array.
      rows: int `[M]`, the rows that are selected; None are all.

    Raises:
      ValueError: when rows are read, the file ends before them.
    """

    def __init__(
        self,
        file: BinaryIO,
        dtype: np.dtype | type,
        shape: tuple[int, ...],
        offset: int = 0,
        rows: np.ndarray | None = None,
    ):
        self.dtype = np.dtype(dtype)
        self._array = (file, dtype, shape, offset)
        self._rows = np.arange(shape[0], dtype=np.min_scalar_type(shape[0])) if rows is None else rows
        self.shape = (len(self._rows), *shape[1:])

    @classmethod
    def of_npy(cls, path: str | os.PathLike) -> "StoredRows":
        """Returns the rows of a `.npy` file; raises ValueError if it is not in C order."""
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not array.flags.c_contiguous:
            raise ValueError(f"{path}: the array is not in C order. Write it with numpy.ascontiguousarray.")
        return cls(open(path, "rb"), array.dtype, array.shape, array.offset)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: Any) -> "StoredRows":
        return StoredRows(*self._array, self._rows[key])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy  # always one
        file, _, _, offset = self._array
        values: Any = np.empty(self.shape, self.dtype)
        content = memoryview(values.reshape(-1).view(np.uint8))
        size = values[:1].nbytes
        rows = self._rows.astype(np.int64)
        starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)  # of runs of consecutive rows
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=False):
            run = content[start * size : end * size]
            position = offset + int(rows[start]) * size
            while run:
                count = os.preadv(file.fileno(), [run], position)
                if not count:
                    raise ValueError(f"{file.name}: truncated. Write it again.")
                run = run[count:]
                position = position + count
        return values if dtype is None else values.astype(dtype, copy=False)


class Collector:
    """Collects blocks of rows, arrays or one `csr_array` or `StoredRows`; those beyond memory in a file."""

    def __init__(self) -> None:
        self._blocks: list[Any] = []
        self._file: Any = None
        self._count = 0  # of the rows in the file

    def append(self, block: Any) -> None:
        """Adds rows."""
        self._blocks.append(block)
        is_stored = isinstance(block, np.ndarray) and block.dtype != object
        if is_stored and sum(each.nbytes for each in self._blocks) > IN_MEMORY_BYTES:
            self._write()

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=_folder())  # noqa: SIM115
        for block in self._blocks:
            self._file.write(block.tobytes())
            self._count += len(block)
        self._last = self._blocks[-1]
        self._blocks = []

    def array(self) -> Any:
        """Returns all rows, `[N, ...]`."""
        if self._file is not None:
            if self._blocks:
                self._write()
            self._file.flush()
            return StoredRows(self._file, self._last.dtype, (self._count, *self._last.shape[1:]))
        return self._blocks[0] if len(self._blocks) == 1 else np.concatenate(self._blocks)


def cache_folder() -> str:
    """Returns the folder of the cache, or "off"; see `pipelines.storage.cache.Cache`."""
    parent = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get(CACHE, os.path.join(parent, "rank4class"))


def _folder() -> str | None:
    """Returns a folder for temporary files, that of the cache if it is on disk: others may be in memory."""
    folder = cache_folder()
    if folder in ("", "off") or "://" in folder:
        return None
    os.makedirs(folder, exist_ok=True)
    return folder


class Origins(Sequence[str]):
    """Names of rows in messages, `path:line` or `path[index]`, which are made when they are used.

    Args:
      names: of files, with `{}` in place of the number of a row.
      files: int `[N]`, the index of the file of each row.
      numbers: int `[N]`, the number of each row in its file.

    >>> origins = Origins(["a.csv:{}", "b.csv:{}"], np.array([0, 1, 1]), np.array([2, 2, 5]))
    >>> origins[2], list(origins[[1, 0]])
    ('b.csv:5', ['b.csv:2', 'a.csv:2'])
    """

    def __init__(self, names: Sequence[str], files: np.ndarray, numbers: np.ndarray):
        self._names = names
        self.files = files
        self._numbers = numbers
        self.shape = (len(numbers),)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, key: Any) -> Any:
        file = self.files[key]
        number = self._numbers[key]
        if np.ndim(number):
            return Origins(self._names, file, number)
        head, tail = self._names[file].rsplit("{}", 1)
        return f"{head}{number}{tail}"


def blocks(array: Any) -> Iterator[np.ndarray]:
    """Yields consecutive parts of an array in memory."""
    row = max(1, int(np.prod(array.shape[1:])) * array.dtype.itemsize)
    size = max(1, BLOCK_BYTES // row)
    for start in range(0, array.shape[0], size):
        yield np.asarray(array[start : start + size])

"""Arrays whose rows are made or read when they are used."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

BLOCK_BYTES = 2**24


class StoredRows:
    """Rows of an array `[N, ...]` in a file, which are read when they are used.

    Indices, a mask or a slice select rows without reading them, and `np.asarray` reads them.

    Args:
      array: an array on disk, as of `np.load(path, mmap_mode="r")`.
      rows: int `[M]`, the rows that are selected; None are all.
    """

    def __init__(self, array: np.memmap, rows: np.ndarray | None = None):
        self._array, self.dtype = array, array.dtype
        self._rows = np.arange(len(array), dtype=np.min_scalar_type(len(array))) if rows is None else rows
        self.shape = (len(self._rows), *array.shape[1:])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: Any) -> "StoredRows":
        return StoredRows(self._array, self._rows[key])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy  # always one
        return np.asarray(self._array[self._rows], dtype)


class Origins:
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
        self._names, self._files, self._numbers = names, files, numbers
        self.shape = (len(numbers),)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, key: Any) -> Any:
        file, number = self._files[key], self._numbers[key]
        if np.ndim(number):
            return Origins(self._names, file, number)
        head, tail = self._names[file].rsplit("{}", 1)
        return f"{head}{number}{tail}"

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del dtype, copy
        return np.array(list(self), object)


def blocks(array: Any) -> Iterator[np.ndarray]:
    """Yields consecutive parts of an array in memory."""
    row = max(1, int(np.prod(array.shape[1:])) * array.dtype.itemsize)
    size = max(1, BLOCK_BYTES // row)
    for start in range(0, array.shape[0], size):
        yield np.asarray(array[start : start + size])

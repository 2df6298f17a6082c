"""Arrays whose rows are made or read when they are used."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

BLOCK_BYTES = 2**24


class StoredRows:
    """Rows of an array `[N, ...]` in a file, which are read when they are used.

    Indices, a mask or a slice select rows without reading them, and `np.asarray` reads them. Nothing of the
    file stays in memory.

    Args:
      path: of a file that holds an array in C order.
      dtype, shape: of the array.
      offset: first byte of the array.
      rows: int `[M]`, the rows that are selected; None are all.
    """

    def __init__(
        self,
        path: str,
        dtype: np.dtype | type,
        shape: tuple[int, ...],
        offset: int = 0,
        rows: np.ndarray | None = None,
    ):
        self.dtype, self._array = np.dtype(dtype), (path, dtype, shape, offset)
        self._rows = np.arange(shape[0], dtype=np.min_scalar_type(shape[0])) if rows is None else rows
        self.shape = (len(self._rows), *shape[1:])

    @classmethod
    def of_npy(cls, path: str | os.PathLike) -> "StoredRows":
        """Returns the rows of a `.npy` file; raises ValueError if it is not in C order."""
        file = np.load(path, mmap_mode="r", allow_pickle=False)
        if not file.flags.c_contiguous:
            raise ValueError(f"{path}: the array is not in C order. Write it with numpy.ascontiguousarray.")
        return cls(os.fspath(path), file.dtype, file.shape, file.offset)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: Any) -> "StoredRows":
        return StoredRows(*self._array, self._rows[key])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy  # always one
        path, _, _, offset = self._array
        values: Any = np.empty(self.shape, self.dtype)
        content = memoryview(values.reshape(-1).view(np.uint8))
        size = values[:1].nbytes
        rows = self._rows.astype(np.int64)
        starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)  # of runs of consecutive rows
        with open(path, "rb") as file:
            for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)], strict=True):
                file.seek(offset + int(rows[start]) * size)
                if file.readinto(content[start * size : end * size]) != (end - start) * size:
                    raise ValueError(f"{path}: truncated. Write it again.")
        return values if dtype is None else values.astype(dtype, copy=False)


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
    """Yields consecutive parts of an array in memory.

    >>> list(blocks(np.arange(3)))
    [array([0, 1, 2])]
    """
    row = max(1, int(np.prod(array.shape[1:])) * array.dtype.itemsize)
    size = max(1, BLOCK_BYTES // row)
    for start in range(0, array.shape[0], size):
        yield np.asarray(array[start : start + size])

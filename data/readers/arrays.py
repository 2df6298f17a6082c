"""Vectors and labels from `.npz`, `.npy` and SVMlight files."""

import os
import zipfile
import zlib
from typing import Any

import numpy as np
import scipy.sparse
from absl import logging

from rank4class.data.lazy_arrays import StoredRows

PAIR = ("x.npy", "y.npy")  # in one folder
SVMLIGHT = (".svmlight", ".svm", ".libsvm")
ENDINGS = (".npz", ".npy", *SVMLIGHT)


def is_arrays(path: str) -> bool:
    """Whether a file holds vectors, and labels if any, without columns."""
    return path.lower().endswith(ENDINGS)


def read(path: str, is_labeled: bool, width: int | None) -> tuple[Any, list[Any] | None]:
    """Returns the vectors `[N, d]` of a file, as a feature of a `Split`, and their labels, or None.

    A label is a name, a number, or a list of names or numbers. SVMlight rows of fewer features than `width`
    have zeros in place of the others, those of more lose them.
    """
    if path.lower().endswith(SVMLIGHT):
        return _read_svmlight(path, width)
    x: Any = load(path, "x")
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise ValueError(f"{path}: x has shape {x.shape} and type {x.dtype}. Give numbers [N, d].")
    if isinstance(x, np.memmap) and x.dtype == np.float32 and x.flags.c_contiguous:
        x = StoredRows.of_npy(path)
    else:
        with np.errstate(over="ignore"):  # overflow gives infinity
            x = np.asarray(x).astype(np.float32, copy=False)
    if width not in (None, x.shape[1]):
        raise ValueError(f"{path}: vectors of {x.shape[1]} values, expected {width}. Give as many.")
    if not is_labeled:
        return x, None
    y = load(path if path.lower().endswith(".npz") else os.path.join(os.path.dirname(path), PAIR[1]), "y")
    return x, _labels(path, y, x.shape[0])


def load(path: str, *names: str) -> np.ndarray:
    """Returns the array of a `.npy` file, which stays on disk, or the first of the named ones of an `.npz`.

    A file of inputs alone may have another name for its only array.
    """
    try:
        file = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(file, np.ndarray):
            return file
        with file:
            present = [name for name in names if name in file]
            if not present and len(file.files) == 1 and "y" not in names:
                present = file.files
            if present:
                return file[present[0]]
            others = ", ".join(file.files)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read: {error}. Write it with numpy.save or savez.") from error
    raise ValueError(f"{path}: arrays {others}, no array named {names[0]!r}. Rename one.")


def _labels(path: str, y: np.ndarray, size: int) -> list[Any]:
    if y.shape[:1] != (size,) or y.ndim > 2:
        raise ValueError(
            f"{path}: y has shape {y.shape}, but x has {size} rows. Give [N], or 0 and 1 [N, n]."
        )
    if y.ndim == 1:
        return y.tolist()
    if not np.isin(y, (0, 1)).all():
        raise ValueError(f"{path}: y has other values than 0 and 1. Give 1 for each class of a row.")
    return [np.flatnonzero(row).tolist() for row in y]


def _read_svmlight(path: str, width: int | None) -> tuple[scipy.sparse.csr_array, list[Any]]:
    with open(path, "rb") as file:
        several = any(b"," in line.lstrip().partition(b" ")[0] for line in file)
    matrix, y = svmlight(path, "LABEL", multilabel=several)
    x = scipy.sparse.csr_array(matrix)
    if width and x.shape[1] > width:
        logging.warning("%s: the training has no features after %d. They are left out", path, width)
    x.resize(x.shape[0], width or x.shape[1])
    return x, [list(each) for each in y] if several else y.tolist()


def svmlight(path: str, head: str, **options: Any) -> tuple[Any, ...]:
    """Returns scikit-learn's arrays, float32, of SVMlight rows with a head such as "LABEL", for messages."""
    import sklearn.datasets  # slow to import

    try:
        with np.errstate(over="ignore"):  # overflow gives infinity
            return sklearn.datasets.load_svmlight_file(path, dtype=np.float32, zero_based=False, **options)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{path}: cannot be read: {error}. Write rows {head} FEATURE:VALUE ..., with features numbered "
            "from 1 in rising order."
        ) from error

"""Raw inputs without labels, as (name, features) one after another, for predictions."""

import itertools
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class.data.datasets import image_folder, letor
from rank4class.data.readers import files, rows, text_rows

RawInput = tuple[str, dict[str, Any]]
NO_IDS: Mapping[str, int] = {}


def read(
    path: str,
    specs: dict[str, tf.TensorSpec],
    bad_rows: rows.BadRows,
    *,
    columns: text_rows.Columns,
    ids: Mapping[str, int] = NO_IDS,
) -> Iterator[RawInput]:
    """Yields the raw inputs of a file or folder, as a model takes them.

    Args:
      path: texts as `.txt` (one per line), `.tsv`, `.csv` or `.jsonl`, or "-" for one per line of standard
        input; an image, or a folder of images and of other such folders, without those whose names begin with
        a dot; vectors or arrays of images as `.npy` or `.npz` `[N, ...]`, in the range of the training data;
        ids as texts are; or queries as SVMlight rows. Endings are in any case, links are followed.
      specs: name -> `tf.TensorSpec` of the raw features of a batch.
      bad_rows: the policy for invalid rows, and for images that are not files.
      columns: of texts or ids.
      ids: name -> id, for a model of ids.

    Yields:
      The name, `path:line`, `path[index]` or the image's path, and feature -> value.

    Raises:
      FileNotFoundError: no such file or folder.
      ValueError: an empty file, one of another format, or an invalid row.
    """
    if not (os.path.exists(path) or (path == text_rows.STANDARD_INPUT and _has_rows(specs))):
        raise FileNotFoundError(f"{path}: no such file or folder. Check the path.")
    if "text_pair" not in specs and columns.pair is not None:
        raise ValueError(f"text_pair_column={columns.pair}: the model takes one text. Leave it out.")
    if "text_pair" in specs and columns.pair is None:
        raise ValueError("text_pair_column=None: the model takes pairs of texts. Name the second column.")
    if "text_pair" in specs and not text_rows.has_columns(path):
        raise ValueError(
            f"{path}: one text per line, but the model takes pairs of texts. Give a file with columns."
        )
    if "text" in specs:
        return _texts(path, bad_rows, columns)
    if "id" in specs:
        return _ids(path, bad_rows, columns, ids)
    if "image_bytes" in specs:
        return _images(path, bad_rows)
    if "items" in specs:
        return _queries(path, specs["items"].shape[2])
    [(name, spec)] = specs.items()
    return _arrays(path, name, spec, bad_rows)


def check_columns(path: str, specs: dict[str, tf.TensorSpec], **columns: str | None) -> None:
    """Raises ValueError for a column that cannot be read.

    Args:
      path, specs: see `read`.
      **columns: name of an argument -> the column that it selects, or None.
    """
    for name, column in columns.items():
        if column is not None and not _has_rows(specs):
            raise ValueError(f"{name}={column}: the inputs of the model have no columns. Leave it out.")
        if column is not None and not text_rows.has_columns(path):
            raise ValueError(f"{name}={column}: {path} has no columns. Leave it out, or give a .tsv or .csv.")


def _has_rows(specs: dict[str, tf.TensorSpec]) -> bool:
    return not specs.keys().isdisjoint({"text", "id"})


def features_of(
    value: Any, specs: dict[str, tf.TensorSpec], ids: Mapping[str, int] = NO_IDS, where: str = "input"
) -> dict[str, Any]:
    """Returns the raw features of one input.

    Args:
      value: a text, or a pair of texts; the path of an image; the name of an id; or an array.
      specs: name -> `tf.TensorSpec` of the raw features of a batch.
      ids: name -> id, for a model of ids.
      where: name of the input in messages.

    Raises:
      ValueError: the model takes other inputs.

    >>> features_of("good", {"text": tf.TensorSpec([None], tf.string)})
    {'text': 'good'}
    """
    if "text" in specs:
        is_pair = isinstance(value, Iterable) and not isinstance(value, str | bytes)
        texts = list(value) if is_pair else [value]
        expected = ["text", "text_pair"] if "text_pair" in specs else ["text"]
        if len(texts) != len(expected) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{where}={value!r}: the model takes {' and '.join(expected)}. Give strings.")
        return dict(zip(expected, texts, strict=True))
    if "image_bytes" in specs:
        if not isinstance(value, str | os.PathLike):
            raise ValueError(f"{where}={value!r}: the model takes paths of images. Give strings.")
        return {"image_bytes": _bytes(value)}
    if "id" in specs:
        if str(value) not in ids:
            raise ValueError(
                f"{where}={value!r}: not in the training data, whose first ids are {_first(ids)}. Remove it."
            )
        return {"id": np.int32(ids[str(value)])}
    [(name, spec)] = specs.items()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{where}: not an array ({error}). Give all its rows one length.") from error
    if not spec.shape[1:].is_compatible_with(array.shape):
        raise ValueError(f"{where}: shape {array.shape}, but the model takes {spec.shape[1:]}. Reshape it.")
    return {name: _numbers(where, array, name, spec)}


def _texts(path: str, bad_rows: rows.BadRows, columns: text_rows.Columns) -> Iterator[RawInput]:
    for example in text_rows.read(path, columns, bad_rows):
        features = {"text": example.text}
        yield example.where, features if columns.pair is None else {**features, "text_pair": example.pair}


def _ids(
    path: str, bad_rows: rows.BadRows, columns: text_rows.Columns, ids: Mapping[str, int]
) -> Iterator[RawInput]:
    for where, name, _, _ in text_rows.read(path, columns, bad_rows):
        with bad_rows.row():
            if name.strip() not in ids:
                raise ValueError(
                    f"{where}: {name.strip()[:80]!r} is not in the training data, whose first ids are "
                    f"{_first(ids)}. Remove the row."
                )
            yield name.strip(), {"id": np.int32(ids[name.strip()])}


def _first(ids: Mapping[str, int]) -> str:
    return ", ".join(itertools.islice(ids, 3))


def _images(path: str, bad_rows: rows.BadRows) -> Iterator[RawInput]:
    if os.path.isfile(path):
        yield path, {"image_bytes": _bytes(path)}
        return
    found = False
    for image in _files_below(path, (), bad_rows):
        with bad_rows.row():
            image_folder.check_ending(image)
            files.check_name(image)
            found = True
            yield image, {"image_bytes": _bytes(image)}
    if not found:
        raise ValueError(f"{path}: no image ({', '.join(image_folder.ENDINGS)}). Add one.")


def _files_below(folder: str, above: tuple[str, ...], bad_rows: rows.BadRows) -> Iterator[str]:
    """Yields the files of a folder, then those of its folders, except hidden ones.

    Args:
      folder: its path.
      above: the folders through which it was reached, without links.
      bad_rows: the policy for links that lead back to one of them.
    """
    above = (*above, os.path.realpath(folder))
    paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if not name.startswith(".")]
    yield from itertools.filterfalse(os.path.isdir, paths)
    for path in filter(os.path.isdir, paths):
        if os.path.realpath(path) not in above:
            yield from _files_below(path, above, bad_rows)
            continue
        with bad_rows.row():
            raise ValueError(f"{path}: a link to a folder that holds it. Remove it.")


def _bytes(path: str | os.PathLike) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}. Correct or remove it.") from error


def _arrays(path: str, name: str, spec: tf.TensorSpec, bad_rows: rows.BadRows) -> Iterator[RawInput]:
    array = _load(path, name)
    if array.dtype.kind not in "biuf" or not spec.shape.is_compatible_with(array.shape):
        expected = ", ".join("N" if size is None else str(size) for size in spec.shape)
        raise ValueError(
            f"{path}: {array.dtype} {list(array.shape)}, expected {spec.dtype.name} [{expected}]. Convert it."
        )
    _numbers(path, array[:0], name, spec)  # refuses the type once for all rows
    if not len(array):
        raise ValueError(f"{path}: no row. Give an array with rows.")
    for i, row in enumerate(array):
        with bad_rows.row():
            yield f"{path}[{i}]", {name: _numbers(f"{path}[{i}]", row, name, spec)}


def _numbers(source: str, array: np.ndarray, name: str, spec: tf.TensorSpec) -> np.ndarray:
    """Returns numbers in the dtype of the training; raises ValueError if they show another range."""
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{source}: {array.dtype}, expected {spec.dtype.name}. Convert the array.")
    with np.errstate(over="ignore"):  # overflow gives infinity
        numbers = array.astype(spec.dtype.as_numpy_dtype)
    if spec.dtype.is_integer and (array.dtype.kind not in "iu" or np.any(numbers != array)):
        limits = f"in {spec.dtype.min}..{spec.dtype.max}"
        raise ValueError(f"{source}: {array.dtype}, expected {spec.dtype.name} {limits}. Convert the array.")
    if name == "image" and spec.dtype.is_floating and array.dtype.kind in "iu":
        raise ValueError(
            f"{source}: {array.dtype}, expected {spec.dtype.name} in the range of the training data. Scale "
            "the array."
        )
    if not np.isfinite(numbers).all():
        raise ValueError(f"{source}: a number is not finite. Correct it.")
    return numbers


def _load(path: str, name: str) -> np.ndarray:
    if not path.lower().endswith((".npy", ".npz")):
        raise ValueError(f"{path}: unknown format. Give an array as .npy or .npz.")
    try:
        file = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(file, np.ndarray):
            return file
        with file:
            if name in file or len(file.files) == 1:
                return file[name if name in file else file.files[0]]
            names = ", ".join(file.files)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read: {error}. Write it with numpy.save or savez.") from error
    raise ValueError(f"{path}: arrays {names}, of which none is {name!r}. Name one of them so.")


def _queries(path: str, width: int) -> Iterator[RawInput]:
    if os.path.isdir(path):
        raise ValueError(f"{path}: a folder. Give a file of queries.")
    queries = letor.read_queries(path)
    if queries.values.shape[1] > width:
        raise ValueError(
            f"{path}: features up to {queries.values.shape[1]}, but the model takes {width}. Give the "
            "features of its training."
        )
    for origin, (first, end) in zip(queries.origins, itertools.pairwise(queries.bounds), strict=True):
        items = np.zeros([end - first, width], np.float32)
        items[:, : queries.values.shape[1]] = queries.values[first:end].toarray()
        yield str(origin), {"items": items}

"""Parquet and Arrow files, read batch by batch with pyarrow."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from rank4class import strict_json

ENDINGS = (".parquet", ".arrow", ".feather")
BATCH = 2**14  # rows
INDEX = "__index_level_"  # pandas writes the index of a frame under such a name


def is_arrow(path: str) -> bool:
    """Whether a path ends as Parquet and Arrow files do."""
    return path.lower().endswith(ENDINGS)


def column_kinds(path: str) -> list[tuple[str, str]]:
    """Returns each column, and whether it holds a "number" or a "vector" per row, otherwise ""."""
    with _errors(path):
        types = [(each.name, each.type) for each in _schema(path) if not each.name.startswith(INDEX)]
    return [(n, "number" if _is_numeric(t) else "vector" if _is_vector(t) else "") for n, t in types]


def batches(path: str, columns: Sequence[str], vector_column: str | None) -> Iterator[dict[str, Any]]:
    """Yields the cells of some rows by column, the names of classes in place of Hugging Face's ids."""
    with _errors(path):
        features = _features(path)
        for batch in _batches(path, list(columns)):
            yield {
                name: _vectors(batch.column(name)) if name == vector_column
                else _cells(batch.column(name), features.get(name))
                for name in columns
            }  # fmt: skip


def rows(cells: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a batch."""
    return (dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True))


def _cells(column: pa.Array, feature: Any) -> Iterable[Any]:
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    names = _class_names(feature)
    return (column if names is None else _named(column, pa.array([*names, None]))).to_pylist()


def _vectors(column: pa.Array) -> Iterable[Any]:
    """Returns the rows of a column of lists, arrays if they have one length."""
    if _is_vector(column.type) and not column.null_count:
        lengths = np.unique(pa.compute.list_value_length(column))
        if len(lengths) == 1:
            return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), lengths[0])
    return column.to_pylist()


def _is_numeric(kind: pa.DataType) -> bool:
    types = pa.types
    return any(f(kind) for f in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal))


def _is_vector(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_list(kind) for is_list in lists) and _is_numeric(kind.value_type)


@contextlib.contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(f"{path}: cannot be read: {reason}. Write it again.") from error


def _schema(path: str) -> pa.Schema:
    if path.lower().endswith(".parquet"):
        return pa.parquet.read_schema(path)
    with pa.OSFile(path) as file:
        return _reader(file).schema


def _reader(file: Any) -> Any:
    """Returns the reader of an Arrow file, or of an Arrow stream, as Hugging Face writes it."""
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    return pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)


def _batches(path: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    if path.lower().endswith(".parquet"):
        with pa.parquet.ParquetFile(path, pre_buffer=False) as file:  # or pyarrow keeps all that it has read
            yield from file.iter_batches(BATCH, columns=columns)
        return
    with pa.OSFile(path) as file:
        reader = _reader(file)
        is_file = hasattr(reader, "num_record_batches")
        stream = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
        for batch in stream:
            yield batch.select(columns)


def _features(path: str) -> dict[str, Any]:
    """Returns the description of a file's columns by Hugging Face, {} without one."""
    info = os.path.join(os.path.dirname(path), "dataset_info.json")
    if os.path.isfile(info):
        return strict_json.read_object(info).get("features") or {}
    metadata = (_schema(path).metadata or {}).get(b"huggingface")
    return json.loads(metadata).get("info", {}).get("features") or {} if metadata else {}


def _class_names(feature: Any) -> list[str] | None:
    """Returns the names of a `ClassLabel`, or of one in a list, None for another feature."""
    if isinstance(feature, list):
        feature = feature[0]
    while isinstance(feature, dict) and "feature" in feature:
        feature = feature["feature"]
    is_label = isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
    return feature["names"] if is_label else None


def _named(column: pa.Array, names: pa.Array) -> pa.Array:
    """Returns the names of ids or lists of ids; -1, as Hugging Face has it for no label, is null."""
    if not pa.types.is_integer(column.type):
        offsets = pa.compute.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        ends = pa.array(np.concatenate([[0], np.cumsum(offsets)]), pa.int32())
        return pa.ListArray.from_arrays(ends, _named(column.flatten(), names))
    ids = pa.compute.if_else(pa.compute.less(column, 0), len(names) - 1, column)
    return names.take(ids)

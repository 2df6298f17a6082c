"""Random access to TFRecords: an index with the position and some fields of each record."""

import functools
import hashlib
import io
import json
import multiprocessing.pool
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import compat

FRAME = 16  # bytes of a record besides its content: its length, and two checksums
THREADS = 16


def index(
    paths: Sequence[str], fields: dict[str, tf.io.FixedLenFeature], folder: str
) -> dict[str, np.ndarray]:
    """Returns an index of TFRecord files, which one pass builds, and stores in the folder if possible.

    Its arrays `[N]` are `shard` (index of the file in `paths`), `number` (of the record in its file, from 1),
    `offset` (first byte of the record) and the fields of each `tf.train.Example` by name.
    """
    with multiprocessing.pool.ThreadPool(THREADS) as pool:
        states = pool.map(_state, paths)
        key = json.dumps([states, sorted(fields)])
        path = os.path.join(folder, f"records-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz")
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path, "rb") as file, np.load(io.BytesIO(file.read())) as arrays:
                return dict(arrays)
        print(f"Reading {len(paths)} files of records once, for their index {path}")
        parts = pool.map(functools.partial(_read, fields=fields), paths)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns["shard"] = np.repeat(np.arange(len(parts)), [len(part["offset"]) for part in parts])
    _store(path, columns)
    return columns


def _state(path: str) -> tuple[str, int, int]:
    try:
        state = tf.io.gfile.stat(path)
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(f"{path}: no such file. Copy it there.") from error
    return os.path.basename(path), state.length, state.mtime_nsec


def _read(path: str, fields: dict[str, Any]) -> dict[str, np.ndarray]:
    def length_and_fields(record: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return tf.strings.length(record), tf.io.parse_single_example(record, fields)

    lengths, examples = [], []
    try:
        for length, example in tf.data.TFRecordDataset(path).map(length_and_fields).as_numpy_iterator():
            lengths.append(length)
            examples.append(example)
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        reason = compat.reason(error)
        raise ValueError(
            f"{path}: record {len(examples) + 1} cannot be read: {reason}. Copy the file again."
        ) from error
    ends = np.cumsum(np.array(lengths, np.int64) + FRAME)
    # The reader treats a remainder shorter than a record's header as the end of the file.
    if not examples or tf.io.gfile.stat(path).length != ends[-1]:
        raise ValueError(f"{path}: truncated after record {len(examples)}. Copy the file again.")
    columns = {name: np.array([example[name] for example in examples]) for name in fields}
    return {"offset": ends - lengths - FRAME, "number": np.arange(1, len(examples) + 1), **columns}


def _store(path: str, arrays: dict[str, Any]) -> None:
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    folder, name = os.path.split(path)
    partial = os.path.join(folder, f"partial-{os.getpid()}-{name}")
    try:
        tf.io.gfile.makedirs(folder)
        with tf.io.gfile.GFile(partial, "wb") as file:
            file.write(content.getvalue())
        tf.io.gfile.rename(partial, path, overwrite=True)
    except tf.errors.OpError as error:  # read-only, full or forbidden: the error depends on the file system
        logging.warning("%s: cannot be stored and will be rebuilt at every start: %s", path, error.message)

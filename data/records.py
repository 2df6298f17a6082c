"""Files of TFRecords as examples that are read at random: where each record starts, and what it says."""

import functools
import hashlib
import io
import json
import multiprocessing.pool
import os
import zipfile
import zlib

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class.data import sources
from rank4class.data.batching import op_reason

FRAME = 16  # bytes of a record beside its content: its length, and a checksum of each
THREADS = 16
MOST_BYTES = 10**9  # of a column of an index, 8 for each record


def index(paths, fields, folder):
    """Finds the records of files, by reading them once; the index is kept for the next time.

    Args:
      paths: of the files, local or in object storage.
      fields: name -> `tf.io.FixedLenFeature`: what to keep of each `tf.train.Example`.
      folder: where the index is kept, under a name that follows from the files' names, sizes and times.
        Where nothing can be written there it is made anew each time, which is logged.

    Returns:
      A dict of arrays `[N]`: `shard` (the place of its file in `paths`), `number` (of the record in its
      file, from 1), `offset` (the byte where it starts) and the fields by name.

    Raises:
      FileNotFoundError: a file is missing.
      ValueError: a file is truncated or damaged, the message names file and record; or the index is.
    """
    with multiprocessing.pool.ThreadPool(THREADS) as pool:
        states = pool.map(_state, paths)
        key = json.dumps([states, sorted(fields)])
        kept = os.path.join(folder, f"records-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz")
        if tf.io.gfile.exists(kept):
            return _load(kept)
        print(f"Reading {len(paths)} files of records, once, for their index {kept}")
        parts = pool.map(functools.partial(_read, fields=fields), paths)
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    found["shard"] = np.repeat(np.arange(len(parts)), [len(part["offset"]) for part in parts])
    _keep(kept, found)
    return found


def _state(path):
    try:
        state = tf.io.gfile.stat(path)
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(f"no file {path}") from error
    return os.path.basename(path), state.length, state.mtime_nsec


def _read(path, fields):
    def described(record):
        return tf.strings.length(record), tf.io.parse_single_example(record, fields)

    lengths, rows = [], []
    try:
        for length, row in tf.data.TFRecordDataset(path).map(described).as_numpy_iterator():
            lengths.append(length)
            rows.append(row)
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        raise ValueError(f"{path}: record {len(rows) + 1} cannot be read: {op_reason(error)}") from error
    if not rows:
        raise ValueError(f"{path} is truncated: it has no record")
    ends = np.cumsum(np.array(lengths, np.int64) + FRAME)
    # The reader takes what is less than the head of a record for the end.
    if tf.io.gfile.stat(path).length != ends[-1]:
        raise ValueError(f"{path} is truncated: bytes are left over after record {len(rows)}")
    columns = {name: np.array([row[name] for row in rows]) for name in fields}
    return {"offset": ends - lengths - FRAME, "number": np.arange(1, len(rows) + 1), **columns}


def _load(path):
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        with np.load(io.BytesIO(content)) as arrays:
            for member in arrays.zip.infolist():
                sources.check_inflated_size(path, member, MOST_BYTES)
            return dict(arrays)
    # A single array is no context, which is a TypeError.
    except (
        zipfile.BadZipFile,
        zlib.error,
        ValueError,
        EOFError,
        TypeError,
        NotImplementedError,
        MemoryError,
    ) as error:
        raise ValueError(f"{path} is damaged: remove it, and it is made again") from error


def _keep(path, arrays):
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    folder, name = os.path.split(path)
    partial = os.path.join(folder, f"partial-{os.getpid()}-{name}")
    try:
        tf.io.gfile.makedirs(folder)
        with tf.io.gfile.GFile(partial, "wb") as file:
            file.write(content.getvalue())
        tf.io.gfile.rename(partial, path, overwrite=True)
    except tf.errors.OpError as error:  # read-only, full, not allowed: every file system has its own
        logging.warning(
            "the index of the records is made anew each time, it cannot be kept: %s", error.message
        )

"""ImageNet: as folders, or as records."""

import functools
import hashlib
import io
import json
import multiprocessing.pool
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import compat
from rank4class.data.dataset import Dataset, Split
from rank4class.data.datasets import image_folder
from rank4class.data.readers import rows
from rank4class.data.registry import DATASETS

LAYOUTS = "train/ and val/, or with records"
FRAME = 16  # bytes of a record of a TFRecord file besides its content: its length, and two checksums
THREADS = 16


@DATASETS.register("imagenet")
def imagenet(path: str, tfds_dir: str | None = None, on_invalid_row: str = "fail") -> Dataset:
    """ImageNet, or images in one of its layouts.

    Validation and test are both the images published for validation, as in the paper.

    Args:
      path: folder with one of
        - `train/<synset>/*` and `val/<synset>/*` (or `validation/`) with `files.IMAGE_ENDINGS`. The
          classes are the folders of `train`, sorted; other files are ignored.
        - records prepared by TensorFlow Datasets (with `dataset_info.json`; `tfds build imagenet2012
          --manual_dir=FOLDER` makes them of the published archives), or the Model Garden's
          (`train-00000-of-01024` ..., `validation-00000-of-00128` ...), also in object storage.
      tfds_dir: folder of an index of the records, which one pass builds; None stores it next to them.
      on_invalid_row: "fail" or "skip" for images that cannot be read, when they are read.

    Returns:
      A `Dataset` with the feature `file`, strings `[N]`, the paths of the images; or of TFRecord files with
      `offset` int64 `[N]`, the first byte of a record.
    """
    rows.BadRows(on_invalid_row)  # raises for an unknown policy
    names = set(tf.io.gfile.listdir(path)) if tf.io.gfile.isdir(path) else set()
    if "dataset_info.json" in names:
        class_names, train, validation = _from_tfds(path, tfds_dir or path)
    elif any(re.fullmatch(r"train-\d{5}-of-\d{5}", name) for name in names):
        class_names, train, validation = _from_model_garden(path, names, tfds_dir or path)
    elif os.path.isdir(os.path.join(path, "train")):
        class_names, train, validation = _from_folders(path)
    else:
        raise FileNotFoundError(f"data.path={path}: no folder with {LAYOUTS}. Set it to one.")
    return Dataset(class_names, {"train": train, "validation": validation, "test": validation})


def _from_folders(path):
    """Returns the class names, and the training and validation `Split`."""
    train, *others = (os.path.join(path, name) for name in ("train", "val", "validation"))
    validation = next(filter(os.path.isdir, others), None)
    if validation is None:
        raise FileNotFoundError(f"{others[0]}: no such folder, nor {others[1]}. Add one.")
    ignored = rows.BadRows("skip")  # published folders have other files, such as lists of synsets
    images = {folder: image_folder.images_by_class(folder, ignored) for folder in (train, validation)}
    class_names = tuple(images[train])
    return class_names, *(image_folder.examples(each, images[each], class_names, train) for each in images)


def _from_tfds(path, index_folder):
    import tensorflow_datasets as tfds  # slow to import

    info = tfds.builder_from_directory(path).info
    splits = []
    for name in ("train", "validation"):
        paths = [str(file) for file in info.splits[name].filepaths]
        index = read_index(paths, {"label": tf.io.FixedLenFeature([], tf.int64)}, index_folder)
        splits.append(_split(paths, index, index["label"]))
    return tuple(info.features["label"].names), *splits


def _from_model_garden(path, names, index_folder):
    fields = {
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/class/synset": tf.io.FixedLenFeature([], tf.string),
    }
    splits = []
    synsets = []
    for paths in [_shards(path, name, names) for name in ("train", "validation")]:
        index = read_index(paths, fields, index_folder)
        splits.append(_split(paths, index, index["image/class/label"] - 1))  # the Model Garden's start at 1
        synsets.append(index["image/class/synset"])
    return _class_names(splits, np.concatenate(synsets)), *splits


def _shards(path, name, names):
    """Returns the paths of a split's files, as many as their names state."""
    totals = sorted({file[-5:] for file in names if re.fullmatch(rf"{name}-\d{{5}}-of-\d{{5}}", file)})
    if not totals:
        raise FileNotFoundError(f"{path}: no files {name}-*-of-*. Copy them there.")
    return [os.path.join(path, f"{name}-{i:05}-of-{totals[0]}") for i in range(int(totals[0]))]


def _class_names(splits, synsets):
    """Returns the synsets of the classes, which the records number from 1 without gaps."""
    labels = np.concatenate([split.labels for split in splits])
    pairs = sorted(set(zip(labels.tolist(), synsets.tolist(), strict=True)))
    for expected, (label, synset) in enumerate(pairs):
        if label != expected:
            raise ValueError(
                f"image/class/label={label + 1}: of {synset!r}, expected {expected + 1}. Number the classes "
                "from 1 without gaps, each with one synset."
            )
    return tuple(synset.decode() for _, synset in pairs)


def _split(paths, index, labels):
    shards = np.array(paths, object)[index["shard"]]
    origins = [f"{shard} record {number}" for shard, number in zip(shards, index["number"], strict=True)]
    features = {"file": shards, "offset": index["offset"]}
    return Split(features, labels.astype(np.int32), np.array(origins, object))


def read_index(
    paths: Sequence[str], fields: dict[str, tf.io.FixedLenFeature], folder: str
) -> dict[str, np.ndarray]:
    """Returns an index of TFRecord files, which one pass builds, and stores in the folder if possible.

    Its arrays `[N]` are `shard` (index of the file in `paths`), `number` (of the record in its file, from 1),
    `offset` (first byte of the record) and the fields of each `tf.train.Example` by name.
    """
    with multiprocessing.pool.ThreadPool(THREADS) as pool:
        states = pool.map(_state_of, paths)
        key = json.dumps([states, sorted(fields)])
        path = os.path.join(folder, f"records-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz")
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path, "rb") as file, np.load(io.BytesIO(file.read())) as arrays:
                return dict(arrays)
        print(f"Reading {len(paths)} files of records once, for their index {path}")
        parts = pool.map(functools.partial(_read_records, fields=fields), paths)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns["shard"] = np.repeat(np.arange(len(parts)), [len(part["offset"]) for part in parts])
    _store(path, columns)
    return columns


def _state_of(path: str) -> tuple[str, int, int]:
    try:
        state = tf.io.gfile.stat(path)
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(f"{path}: no such file. Copy it there.") from error
    return os.path.basename(path), state.length, state.mtime_nsec


def _read_records(path: str, fields: dict[str, Any]) -> dict[str, np.ndarray]:
    def length_and_fields(record: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return tf.strings.length(record), tf.io.parse_single_example(record, fields)

    lengths = []
    examples = []
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

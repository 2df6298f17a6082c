"""The outputs of a frozen encoder, computed once and cached."""

import dataclasses
import functools
import json
import os
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import data, models
from rank4class.data.dataset import map_splits
from rank4class.data.kinds.arrays import digests
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.cache import Cache
from rank4class.pipelines.storage.code_version import numeric_environment
from rank4class.pipelines.task_data import hashing
from rank4class.pipelines.task_data.inputs import with_lengths, write_encoder
from rank4class.pipelines.task_data.task_data import TaskData

_VERSION = 2  # of the outputs: raise it when code changes those of an unchanged encoder
TEXTS = 32  # texts that are encoded at a time


def encode_splits(encoder_name: str, batch_size: int, cache: Cache, raw: TaskData) -> TaskData:
    """Returns a task whose features are the outputs of its frozen encoder, which the cache keeps."""
    encoder, weights = _initial(raw, encoder_name)
    raw, rows = _by_length(raw, batch_size)
    outputs = encode(raw, encoder, weights, rows, cache, "examples")
    splits = {
        name: dataclasses.replace(raw.splits[name], features={"embedding": h}, lengths=None)
        for name, h in outputs.items()
    }
    return dataclasses.replace(
        raw,
        splits=splits,
        preprocess=None,
        hashes=raw.hashes | {"encoder.path": weights},
        inputs=dataclasses.replace(raw.inputs, encoder=encoder),
        encoder_files=lambda: _encoder_files(raw, encoder, weights, cache),
        make_encoder=lambda: models.get("encoder", "identity", width=encoder.width),
    )


def encode_train(task_data: TaskData, encoder_name: str, batch_size: int, cache: Cache) -> np.ndarray:
    """Returns the outputs of the initial encoder for training examples, float32 `[N, d]`; see `encode`."""
    encoder, weights = _initial(task_data, encoder_name)
    train, rows = _by_length(task_data.without("words").of_splits("train"), batch_size)
    return encode(train, encoder, weights, rows, cache, "examples")["train"]


def _by_length(raw: TaskData, batch_size: int) -> tuple[TaskData, int]:
    """Returns a task with the lengths of its texts, if it has any, and the number of examples in a batch."""
    tokenizer = raw.inputs.tokenizer
    if tokenizer is None or raw.preprocess is None:
        return raw, batch_size
    splits = map_splits(lambda s: with_lengths(s, tokenizer) if s.lengths is None else s, raw.splits)
    return dataclasses.replace(raw, splits=splits), TEXTS


def _initial(raw: TaskData, encoder_name: str) -> tuple[tf.keras.layers.Layer, str]:
    """Returns a new encoder, and the hash of its weights and its tokenizer."""
    encoder = raw.build_encoder(encoder_name)
    settings = raw.inputs.tokenizer.settings if raw.inputs.tokenizer else {}
    return encoder, hashing.encoder_hash(settings, encoder)


def encode(
    raw: TaskData, encoder: tf.keras.layers.Layer, weights: str, rows: int, cache: Cache, kind: str
) -> dict[str, np.ndarray]:
    """Returns the outputs of an encoder for each split, float32 `[N, d]`; the cache keeps each example's.

    Batches hold `rows` texts of one padded length: on CPUs the output of a text is then the same to the bit
    whichever others are with it, and those of the cache are those of a first run.
    """
    preprocess: Any = raw.preprocess
    of_inputs = {} if preprocess is None else preprocess.settings
    group = f"features-{files.sha256(f'{_settings(encoder, weights)} {rows} {of_inputs}')[:16]}"
    keys = {name: _keys(split) for name, split in raw.splits.items()}
    distinct, where = np.unique(np.concatenate([*keys.values()]), return_inverse=True)
    outputs = np.empty([len(distinct), encoder.width], np.float32)
    is_known = np.zeros(len(distinct), bool)
    for stored, vectors in cache.vectors(group):
        if is_known.all():
            break
        places = np.minimum(np.searchsorted(distinct, stored), len(distinct) - 1)
        is_asked = distinct[places] == stored
        outputs[places[is_asked]] = vectors[is_asked]
        is_known[places[is_asked]] = True
    is_new = ~is_known
    if cache.progress:
        print(f"Vectors of {len(where):,} {kind} in {cache.folder}, {is_new.sum():,} of them new", flush=True)
    if is_new.any():
        cache.path(group)  # raises its error before the encoder, which may take long
        # A partial, since TensorFlow warns if many encoders trace one and the same function.
        encode = tf.function(
            functools.partial(encoder, training=False), autograph=False, reduce_retracing=True
        )
        title = "encoding" if cache.progress else ""
        unlabeled = raw.without_labels()
        for name, split in unlabeled.splits.items():
            places = np.searchsorted(distinct, keys[name])
            first = np.sort(np.unique(places, return_index=True)[1])
            order = _in_batches(split, first[~is_known[places[first]]], rows)
            if len(order):
                ordered = dataclasses.replace(split.select(order), lengths=None)
                one = dataclasses.replace(unlabeled, splits={name: ordered})
                found = one.collect(name, rows, lambda x: {"h": encode(x)}, title)["h"]
                outputs[places[order]] = found
                is_known[places[order]] = True
        cache.add(group, distinct[is_new], outputs[is_new])
    ends = np.cumsum([len(split) for split in raw.splits.values()])[:-1]
    return dict(zip(raw.splits, np.split(outputs[where], ends), strict=True))


def _in_batches(split: data.Split, indices: np.ndarray, rows: int) -> np.ndarray:
    """Returns indices of examples, grouped by length; repeats fill the last batch of each length."""
    if split.lengths is None:
        return indices
    lengths = split.lengths[indices]
    groups = (indices[lengths == length] for length in np.unique(lengths)[::-1])
    return np.concatenate([np.pad(group, (0, -len(group) % rows), "edge") for group in groups] or [indices])


def _keys(split: data.Split) -> np.ndarray:
    """Returns a digest of each example's features, `[N]`, of an image file by its path, size and time."""
    columns: list[Any] = []
    for name, values in split.features.items():
        if name == "file":  # reading every image would take as long as encoding it
            stats = map(tf.io.gfile.stat, values)
            columns += [values, [f"{state.length} {state.mtime_nsec}" for state in stats]]
        else:
            columns.append(values if values.dtype == object else data.Kind().contents({name: values}))
    return digests(repr(row).encode() for row in zip(*columns, strict=True))


def _encoder_files(raw: TaskData, encoder: tf.keras.layers.Layer, weights: str, cache: Cache) -> str:
    """Returns the path, without endings, of the encoder's files, which are written if there are none."""
    specs = dict(raw.evaluation_batches("train", 1).element_spec[0])
    name = f"encoder-{files.sha256(f'{_settings(encoder, weights)} {specs}')[:16]}"
    if cache.find(f"{name}.json") is None:  # written last
        write_encoder(cache.path(name), encoder, specs)
    return os.path.join(cache.folder, name)


def _settings(encoder: tf.keras.layers.Layer, weights: str) -> str:
    # The name of a layer counts those before it.
    settings = {**encoder.get_config(), "name": type(encoder).__name__, "weights": weights}
    return json.dumps([_VERSION, tf.version.VERSION, numeric_environment(), settings], sort_keys=True)

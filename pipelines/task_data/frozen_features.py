"""The outputs of a frozen encoder, computed once and cached."""

import dataclasses
import functools
import hashlib
import io
import json
import os
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import models
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.code_version import numeric_environment
from rank4class.pipelines.storage.files import Cache
from rank4class.pipelines.task_data import hashing
from rank4class.pipelines.task_data.inputs import write_encoder
from rank4class.pipelines.task_data.task_data import TaskData

_VERSION = 1  # of the outputs: raise it when code changes those of an unchanged encoder


def encode_splits(encoder_name: str, batch_size: int, cache: Cache, raw: TaskData) -> TaskData:
    """Returns a task whose features are the outputs of its frozen encoder, which the cache keeps."""
    encoder, weights = _initial(raw, encoder_name)
    outputs = encode(raw, encoder, weights, batch_size, cache, "examples")
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
    train = task_data.without_words().of_splits("train")
    return encode(train, encoder, weights, batch_size, cache, "examples")["train"]


def _initial(raw: TaskData, encoder_name: str) -> tuple[tf.keras.layers.Layer, str]:
    """Returns a new encoder, and the hash of its weights and its tokenizer."""
    encoder = raw.build_encoder(encoder_name)
    settings = raw.inputs.tokenizer.settings if raw.inputs.tokenizer else {}
    return encoder, hashing.encoder_hash(settings, encoder)


def encode(
    raw: TaskData, encoder: tf.keras.layers.Layer, weights: str, batch_size: int, cache: Cache, kind: str
) -> dict[str, np.ndarray]:
    """Returns the outputs of an encoder for each split, float32 `[N, d]`, from the cache if it has them."""
    name = f"features-{_fingerprint(raw, encoder, weights, batch_size)}.npz"
    count = sum(map(len, raw.splits.values()))
    path = cache.find(name)
    if path is None:
        path = cache.path(name)  # before the encoder, which may take long
        size = f"{4 * count * encoder.width / 1e6:,.1f} MB"
        if cache.progress:
            print(f"Encoding {count:,} {kind} once: {path} ({size})", flush=True)
        # A partial, since TensorFlow warns if many encoders trace one and the same function.
        encode = tf.function(
            functools.partial(encoder, training=False), autograph=False, reduce_retracing=True
        )
        title = "encoding" if cache.progress else ""
        unlabeled = raw.without_labels()
        encoded = {
            split: unlabeled.collect(split, batch_size, lambda x: {"h": encode(x)}, title)["h"]
            for split in raw.splits
        }
        files.write_npz(path, encoded)
        return encoded
    content = files.read_bytes(path)
    if cache.progress:
        print(f"Vectors of {count:,} {kind}: {path} ({len(content) / 1e6:,.1f} MB)", flush=True)
    with np.load(io.BytesIO(content)) as file:
        return {split: file[split] for split in raw.splits}


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


def _fingerprint(raw: TaskData, encoder: tf.keras.layers.Layer, weights: str, batch_size: int) -> str:
    """Returns a hash of settings, weights, examples and batches, which determine the outputs."""
    preprocess: Any = raw.preprocess
    digest = hashlib.sha256(f"{_settings(encoder, weights)} {batch_size}".encode())
    if preprocess is not None:
        digest.update(json.dumps(preprocess.settings, sort_keys=True).encode())
    for name, split in raw.splits.items():
        digest.update(f"{name} {len(split)} {split.lengths is None}".encode())
        for part in hashing.feature_bytes(split):
            digest.update(part)
        for path in hashing.image_files(split):
            state = tf.io.gfile.stat(path)  # reading every image would take as long as encoding it
            digest.update(f"{state.length} {state.mtime_nsec}".encode())
    return digest.hexdigest()[:16]

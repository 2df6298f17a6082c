"""The outputs of a frozen encoder, computed once and cached."""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class import data, models
from rank4class.pipelines import config
from rank4class.pipelines.progress import Progress
from rank4class.pipelines.storage import files
from rank4class.pipelines.task import hashing
from rank4class.pipelines.task.inputs import write_encoder
from rank4class.pipelines.task.task import Task


def encode_splits(experiment: config.Experiment, raw: Task, cache_dir: str) -> Task:
    """Returns a task whose features are the outputs of its frozen encoder.

    Args:
      experiment: its batch size of evaluations and its encoder are used.
      raw: the task with the encoder's inputs.
      cache_dir: folder of the outputs, which are computed if neither it nor the two folders above it have
        them.

    Raises:
      ValueError: the file of the outputs is damaged.
      OSError: the folder cannot be written.
    """
    encoder = raw.build_encoder(experiment)
    fingerprint = _fingerprint(experiment.encoder.name, raw, encoder)
    path = _cached(cache_dir, f"features-{fingerprint}.npz")
    if path is None:
        path = os.path.join(cache_dir, f"features-{fingerprint}.npz")
        files.make_writable(cache_dir)
        print(f"Computing the outputs of the frozen encoder once: {path}", flush=True)
        encode = tf.function(
            lambda features: encoder(features, training=False), autograph=False, reduce_retracing=True
        )
        encoded: dict[str, Any] = {
            split: _outputs(raw, split, experiment.evaluation_batch_size, encode) for split in raw.splits
        }
        content = io.BytesIO()
        np.savez(content, **encoded)
        files.write(path, content.getvalue())
    try:
        with np.load(io.BytesIO(files.read_bytes(path))) as file:
            files.check_stored(file)
            outputs = {split: file[split] for split in raw.splits}
    # A file of a single array is no context manager, which is a TypeError.
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, TypeError, MemoryError) as error:
        raise ValueError(f"{path}: damaged. Remove it to compute it again.") from error
    splits = {
        name: dataclasses.replace(raw.splits[name], features={"embedding": h}, lengths=None)
        for name, h in outputs.items()
    }
    return dataclasses.replace(
        raw,
        splits=splits,
        preprocess=None,
        hashes=raw.hashes | {"encoder.path": hashing.encoder_hash(raw.preprocess, encoder)},
        inputs=dataclasses.replace(raw.inputs, encoder=encoder),
        encoder_files=_encoder_files(raw, encoder, cache_dir, f"encoder-{fingerprint}"),
        augment=None,
        make_encoder=lambda: models.get("encoder", "identity", width=encoder.width),
    )


def _encoder_files(raw: Task, encoder: tf.keras.layers.Layer, cache_dir: str, name: str) -> str:
    """Returns the path, without endings, of the encoder's files, which are written if there are none."""
    cached = _cached(cache_dir, f"{name}.json")  # written last
    if cached is not None:
        return cached.removesuffix(".json")
    files.make_folder(cache_dir)
    prefix = os.path.join(cache_dir, name)
    write_encoder(prefix, encoder, dict(raw.evaluation_batches("train", 1).element_spec[0]))
    return prefix


def _cached(folder: str, name: str) -> str | None:
    """Returns the path of a file in a folder or the two above it, or None.

    The runs of a sweep share one cache: they are in `ROOT/run` and `ROOT/tuning/run`. The name has the
    hash of everything that the outputs depend on.
    """
    if files.exists(os.path.join(folder, name)):
        return os.path.join(folder, name)
    above = os.path.abspath(folder) if files.is_local(folder) else folder.rstrip("/")
    for _ in range(2):
        above = os.path.dirname(above)
        with contextlib.suppress(OSError):  # the folders above may not be readable
            if files.exists(os.path.join(above, name)):
                return os.path.join(above, name)
    return None


def _outputs(raw: Task, split: str, batch_size: int, encode: Callable) -> np.ndarray:
    progress = Progress(f"encoding {split}", "example", len(raw.splits[split]))
    outputs, indices = [], []
    for features, _, batch_indices in progress.over(raw.read(split, batch_size), batch_size):
        outputs.append(encode(features).numpy())
        indices.append(batch_indices.numpy())
    return data.in_order(np.concatenate(outputs), np.concatenate(indices))


def _fingerprint(encoder_name: str, raw: Task, encoder: tf.keras.layers.Layer) -> str:
    """Returns a hash of settings, weights and examples, which determine the outputs."""
    settings = {**encoder.get_config(), "name": encoder_name}
    preprocess: Any = raw.preprocess
    if preprocess is not None:
        settings["preprocess"] = preprocess.settings
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for weight in encoder.get_weights():
        digest.update(weight.tobytes())
    for name, split in raw.splits.items():
        digest.update(f"{name} {len(split)}".encode())
        for part in hashing.feature_bytes(split):
            digest.update(part)
        for path in hashing.image_files(split):
            state = tf.io.gfile.stat(path)  # reading every image would take as long as encoding it
            digest.update(f"{state.length} {state.mtime_nsec}".encode())
    return digest.hexdigest()[:16]

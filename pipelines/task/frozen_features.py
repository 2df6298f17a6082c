"""The outputs of a frozen encoder, computed once and cached."""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import sys
import zipfile

import numpy as np
import tensorflow as tf

from rank4class import models
from rank4class.pipelines.storage import files
from rank4class.pipelines.task import hashing


def encode_splits(experiment, raw, cache_dir):
    encoder = raw.build_encoder(experiment)
    name = f"features-{_fingerprint(experiment, raw, encoder)}.npz"
    path = _kept(cache_dir, name)
    if path is None:
        path = os.path.join(cache_dir, name)
        files.make_writable(cache_dir)
        print(f"Computing the frozen encoder's outputs, once, to {path}")
        encode = tf.function(lambda features: encoder(features, training=False), autograph=False)
        encoded = {split: _outputs(experiment, raw, encode, split) for split in raw.splits}
        content = io.BytesIO()
        np.savez(content, **encoded)
        files.write(path, content.getvalue())
    try:
        with np.load(io.BytesIO(files.read_bytes(path))) as file:
            files.check_stored(file)
            outputs = {split: file[split] for split in raw.splits}
    # A single array is no context, which is a TypeError.
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, TypeError, MemoryError) as error:
        raise ValueError(f"{path} is damaged: remove it, and it is computed again") from error
    splits = {
        name: dataclasses.replace(raw.splits[name], features={"embedding": h}) for name, h in outputs.items()
    }
    return dataclasses.replace(
        raw,
        splits=splits,
        preprocess=None,
        augment=None,
        make_encoder=lambda: models.get("encoder", "identity", width=encoder.width),
    )


def _kept(folder, name):
    """Returns the path of a file in a folder or the two above it, or None.

    A grid keeps one cache for all of its runs, which are in `ROOT/run` and `ROOT/tuning/run`. The name
    says what the cache depends on, so it does not matter whose it is.
    """
    if files.exists(os.path.join(folder, name)):
        return os.path.join(folder, name)
    above = os.path.abspath(folder) if files.is_local(folder) else folder.rstrip("/")
    for _ in range(2):
        above = os.path.dirname(above)
        with contextlib.suppress(OSError):  # what is above a run's folder may be closed to us
            if files.exists(os.path.join(above, name)):
                return os.path.join(above, name)
    return None


def _outputs(experiment, raw, encode, split):
    total = len(raw.evaluation_batches(experiment, split))
    bar = tf.keras.utils.Progbar(total, verbose=1 if sys.stdout.isatty() else 2, unit_name="batch")
    outputs = []
    for features, _, weights in raw.read(experiment, split):
        outputs.append(encode(features).numpy()[weights.numpy() > 0])
        bar.add(1)
    return np.concatenate(outputs)


def _fingerprint(experiment, raw, encoder):
    """A hash of all that decides the outputs: settings, weights and the examples, wherever they lie."""
    settings = {**encoder.get_config(), "name": experiment.encoder.name}
    if raw.preprocess is not None:
        settings["preprocess"] = raw.preprocess.settings
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for weight in encoder.get_weights():
        digest.update(weight.tobytes())
    for split in raw.splits.values():
        for part in hashing.feature_bytes(split):
            digest.update(part)
        for path in hashing.image_files(split):
            state = tf.io.gfile.stat(path)  # to read every image would take as long as to encode it
            digest.update(f"{state.length} {state.mtime_nsec}".encode())
    return digest.hexdigest()[:16]

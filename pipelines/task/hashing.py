"""Hashes of a dataset, by which a run recognizes its data."""

import hashlib

import numpy as np
import tensorflow as tf


def data_hashes(class_names, splits):
    different = {id(split): split for split in splits.values()}  # one may be two splits
    of_split = {key: _hash(split) for key, split in different.items()}
    classes = hashlib.sha256(repr(class_names).encode()).hexdigest()
    return {"classes": classes, **{name: of_split[id(split)] for name, split in splits.items()}}


def _hash(split):
    digest = hashlib.sha256()
    for part in (*_label_bytes(split.labels), *_label_bytes(split.excluded), *feature_bytes(split)):
        digest.update(part)
    for path in image_files(split):
        digest.update(str(tf.io.gfile.stat(path).length).encode())
    return digest.hexdigest()


def _label_bytes(labels):
    """Yields what tells labels, or what is excluded, from others."""
    if isinstance(labels, np.ndarray):
        yield labels.tobytes()
    elif labels is not None:
        yield from (repr(labels.shape).encode(), labels.data.tobytes())
        yield from (ids.astype(np.int64).tobytes() for ids in (labels.indices, labels.indptr))


def feature_bytes(split):
    for array in split.features.values():
        yield repr(array.tolist()).encode() if array.dtype == object else array.tobytes()


def image_files(split):
    return np.unique(split.features.get("file", []))

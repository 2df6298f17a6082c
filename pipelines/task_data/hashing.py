"""Hashes of a dataset, by which a run recognizes its data."""

import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf

from rank4class import data
from rank4class.data import lazy_arrays
from rank4class.data.dataset import map_splits
from rank4class.pipelines import config
from rank4class.pipelines.storage import files


def data_hashes(class_names: tuple[str, ...], splits: Mapping[str, data.Split]) -> dict[str, str]:
    """Returns the SHA-256 of the class names, "classes", and of each split with all its arrays."""
    return {"classes": files.sha256(repr(class_names)), **map_splits(_hash, splits)}


def file_hashes(experiment: config.Experiment) -> dict[str, str]:
    """Returns field -> SHA-256 of the files of weights of the classes and of a sorter, if they exist."""
    paths = {"data.class_weights": experiment.data.class_weights, "loss.sorter": experiment.loss.sorter}
    return {
        field: files.sha256(files.read_bytes(path))
        for field, path in paths.items()
        if path not in (None, "none", "balanced") and os.path.isfile(path)
    }


def encoder_hash(settings: Mapping[str, Any], encoder: tf.keras.layers.Layer | None = None) -> str:
    """Returns the SHA-256 of the settings of an encoder's tokenizer, {} without one, and of its weights."""
    weights = encoder.get_weights() if encoder else ()
    return files.sha256(json.dumps(settings), *(weight.tobytes() for weight in weights))


def _hash(split: data.Split) -> str:
    labels = [array for array in (split.labels, split.excluded, split.weights) if array is not None]
    sizes = (str(tf.io.gfile.stat(path).length).encode() for path in image_files(split))
    digest = hashlib.sha256()
    for part in itertools.chain(*map(_array_bytes, labels), feature_bytes(split), sizes):
        digest.update(part)
    return digest.hexdigest()


def feature_bytes(split: data.Split) -> Iterator[bytes]:
    """Yields the content of each feature; image files are features by their paths."""
    for array in split.features.values():
        yield from _array_bytes(array)


def _array_bytes(array: Any) -> Iterator[bytes]:
    """Yields the content of an array, part by part."""
    if isinstance(array, scipy.sparse.csr_array):
        yield from (repr(array.shape).encode(), array.data.tobytes())
        yield from (ids.astype(np.int64).tobytes() for ids in (array.indices, array.indptr))
    elif array.dtype == object:
        yield repr(array.tolist()).encode()
    else:
        yield from (block.tobytes() for block in lazy_arrays.blocks(array))


def image_files(split: data.Split) -> np.ndarray:
    """Returns the distinct paths of a split's image files."""
    return np.unique(split.features.get("file", []))

"""Descriptions of the classes, as features or vectors of a text encoder."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.sparse
import tensorflow as tf
from absl import logging

from rank4class import data, models
from rank4class.models import checkpoints
from rank4class.pipelines import config
from rank4class.pipelines.storage.cache import Cache
from rank4class.pipelines.task_data import frozen_features, hashing, inputs
from rank4class.pipelines.task_data.task_data import TaskData


def add(
    encoder: config.Encoder,
    class_encoder: config.ClassEncoder,
    max_length: int,
    cache: Cache,
    task_data: TaskData,
) -> TaskData:
    """Returns a task with the descriptions of the classes, if they are read.

    For a class encoder of texts, `class_inputs` has their tokens, "features", or their "vectors" by its text
    encoder and the "shape" of these.
    """
    if not are_read(class_encoder):
        return task_data
    path = class_encoder.path or encoder.path
    if not path:
        field = "class_encoder.path" if "path" in class_encoder.fields else "encoder.path"
        raise ValueError(
            f"{field}=None: class encoder {class_encoder.name!r} needs a text encoder. Set it to its folder."
        )
    texts = task_data.class_names
    if class_encoder.texts:
        texts = tuple(data.class_descriptions(class_encoder.texts, task_data.class_names))
    task_data = dataclasses.replace(task_data, class_texts=texts)
    options = models.CLASS_ENCODERS.options(class_encoder.name)
    prefix = "" if class_encoder.path else getattr(encoder, "prefix", "")
    tokenizer = inputs.tokenizer(path, max_length, prefix)
    if "features" in options:
        tokens = _tokens(tokenizer, texts)
        return dataclasses.replace(task_data, class_inputs={"features": tokens})
    if "vectors" not in options:
        return task_data
    kwargs = {"pooling": "mean"} if class_encoder.path else encoder.options()
    layer = models.get("encoder", checkpoints.find(path).encoder, **{**kwargs, "path": path})
    vectors = encode(texts, layer, tokenizer, cache)
    return dataclasses.replace(task_data, class_inputs={"vectors": vectors, "shape": vectors.shape})


def add_examples(most: int, cache: Cache, task_data: TaskData) -> TaskData:
    """Returns a task of a frozen text encoder whose training examples are the names of the classes too.

    They are those of the classes that have at most `most` examples, if the nearest name tells the class of
    examples more often than chance, by three standard errors. They are in no fold.
    """
    train = task_data.splits["train"]
    encoder = task_data.inputs.encoder
    n = len(task_data.class_names)
    if (
        encoder is None
        or task_data.inputs.tokenizer is None
        or train.multi_label
        or task_data.seen is not None
    ):
        return task_data
    is_few = (train.class_counts(n) <= most) & (most > 0)
    ids = np.flatnonzero(is_few).astype(train.labels.dtype)
    if task_data.inputs.cells is not None or not len(ids):  # names of classes have no cells
        return task_data
    texts = [name.replace("_", " ") for name in task_data.class_names]
    vectors = encode(texts, encoder, task_data.inputs.tokenizer, cache)
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    is_right = (train.features["embedding"] @ directions.T).argmax(axis=1) == train.labels
    if is_right.mean() < 1.0 / n + 3.0 * np.sqrt((1.0 - 1.0 / n) / n / len(train)):
        return task_data
    logging.info("The names of %d classes are training examples too", len(ids))
    texts = [texts[i] for i in ids]
    added = {"embedding": vectors[ids]}
    if task_data.inputs.words is not None:
        added["words"] = task_data.inputs.words.rows({"text": np.array(texts, object)})
    joined = {
        name: scipy.sparse.csr_array(scipy.sparse.vstack([values, added[name]]))
        if name == "words"
        else np.concatenate([values, added[name]])
        for name, values in train.features.items()
    }
    origins = np.array([*map(train.origin, range(len(train))), *(f"class {text}" for text in texts)], object)
    weights = None if train.weights is None else np.append(train.weights, np.ones(len(ids), np.float32))
    examples = data.Split(joined, np.concatenate([train.labels, ids]), origins, weights=weights)
    folds = task_data.folds
    folds = None if folds is None else np.concatenate([folds, np.full(len(ids), -1, folds.dtype)])
    return dataclasses.replace(task_data, splits={**task_data.splits, "train": examples}, folds=folds)


def are_read(class_encoder: config.ClassEncoder) -> bool:
    """Returns whether the vectors of the classes come from their descriptions."""
    options = models.CLASS_ENCODERS.options(class_encoder.name)
    return bool({"features", "vectors"} & set(options)) or class_encoder.init == "names"


def encode(
    texts: Sequence[str],
    encoder: tf.keras.layers.Layer,
    tokenizer: data.Tokenizer,
    cache: Cache,
) -> np.ndarray:
    """Returns the vectors of texts by an encoder, float32 `[n, e]`; see `frozen_features`."""
    split = data.Split({"text": np.array(texts, object)}, np.arange(len(texts), dtype=np.int32))
    splits = {"classes": inputs.with_lengths(split, tokenizer)}
    raw = TaskData(tuple(texts), splits, tokenizer, lambda: encoder, inputs.Inputs({}))
    weights = hashing.encoder_hash(tokenizer.settings, encoder)
    rows = frozen_features.TEXTS
    return frozen_features.encode(raw, encoder, weights, rows, cache, "class texts")["classes"]


def _tokens(tokenizer: data.Tokenizer, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Returns the tokens of texts, int32 `[n, length]` of the longest."""
    tokenize = tokenizer.with_static_length()
    blocks = [
        tokenize({"text": tf.constant(texts[i : i + inputs.BLOCK])})
        for i in range(0, len(texts), inputs.BLOCK)
    ]
    tokens = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    longest = tokens["input_mask"].sum(axis=1).max()
    return {name: values[:, :longest] for name, values in tokens.items()}

"""Descriptions of the classes, as features or vectors of a text encoder."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from rank4class import data, models
from rank4class.models import checkpoints
from rank4class.pipelines import config
from rank4class.pipelines.storage.files import Cache
from rank4class.pipelines.task import frozen_features, hashing, inputs
from rank4class.pipelines.task.task import TaskData


def add(
    task: TaskData,
    encoder: config.Encoder,
    class_encoder: config.ClassEncoder,
    max_length: int,
    batch_size: int,
    cache: Cache,
) -> TaskData:
    """Returns a task with the descriptions of the classes, tokenized for the class encoder's text encoder."""
    if not are_read(class_encoder):
        return task
    path = class_encoder.path or encoder.path
    if not path:
        field = "class_encoder.path" if "path" in class_encoder.fields else "encoder.path"
        raise ValueError(
            f"{field}=None: class encoder {class_encoder.name!r} needs a text encoder. Set it to its folder."
        )
    texts = task.class_names
    if class_encoder.texts:
        texts = tuple(data.class_descriptions(class_encoder.texts, task.class_names))
    tokenizer = inputs.tokenizer(path, max_length)
    tokens = _tokens(tokenizer, texts)
    if "features" in models.CLASS_ENCODERS.options(class_encoder.name):
        return dataclasses.replace(task, class_texts=texts, class_features=tokens)
    kwargs = {"pooling": "mean"} if class_encoder.path else encoder.options()
    layer = models.get("encoder", checkpoints.find(path).encoder, **{**kwargs, "path": path})
    vectors = encode(texts, layer, tokenizer, batch_size, cache)
    vectors = unit(vectors) if class_encoder.init == "names" else vectors
    return dataclasses.replace(task, class_texts=texts, class_vectors=vectors)


def are_read(class_encoder: config.ClassEncoder) -> bool:
    """Returns whether the vectors of the classes come from their descriptions."""
    options = models.CLASS_ENCODERS.options(class_encoder.name)
    return bool({"features", "vectors"} & set(options)) or class_encoder.init == "names"


def encode(
    texts: Sequence[str],
    encoder: tf.keras.layers.Layer,
    tokenizer: data.Tokenizer,
    batch_size: int,
    cache: Cache,
) -> np.ndarray:
    """Returns the vectors of texts by a pretrained encoder, float32 `[n, e]`; see `frozen_features`."""
    split = data.Split({"text": np.array(texts, object)}, np.arange(len(texts), dtype=np.int32))
    splits = {"classes": inputs.with_lengths(split, tokenizer)}
    raw = TaskData(tuple(texts), splits, tokenizer, lambda: encoder, inputs.Inputs({}))
    weights = hashing.encoder_hash(tokenizer.settings, encoder)
    return frozen_features.encode(raw, encoder, weights, batch_size, cache, "class texts")["classes"]


def unit(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors of length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


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

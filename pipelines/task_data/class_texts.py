"""Descriptions of the classes, as features or vectors of a text encoder."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from rank4class import data, models
from rank4class.models import checkpoints
from rank4class.pipelines import config
from rank4class.pipelines.storage.files import Cache
from rank4class.pipelines.task_data import frozen_features, hashing, inputs
from rank4class.pipelines.task_data.task_data import TaskData


def add(
    encoder: config.Encoder,
    class_encoder: config.ClassEncoder,
    max_length: int,
    batch_size: int,
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
    if "features" in options:
        tokens = _tokens(inputs.tokenizer(path, max_length), texts)
        return dataclasses.replace(task_data, class_inputs={"features": tokens})
    if "vectors" not in options:
        return task_data
    kwargs = {"pooling": "mean"} if class_encoder.path else encoder.options()
    layer = models.get("encoder", checkpoints.find(path).encoder, **{**kwargs, "path": path})
    vectors = encode(texts, layer, inputs.tokenizer(path, max_length), batch_size, cache)
    return dataclasses.replace(task_data, class_inputs={"vectors": vectors, "shape": vectors.shape})


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
    """Returns the vectors of texts by an encoder, float32 `[n, e]`; see `frozen_features`."""
    split = data.Split({"text": np.array(texts, object)}, np.arange(len(texts), dtype=np.int32))
    splits = {"classes": inputs.with_lengths(split, tokenizer)}
    raw = TaskData(tuple(texts), splits, tokenizer, lambda: encoder, inputs.Inputs({}))
    weights = hashing.encoder_hash(tokenizer.settings, encoder)
    return frozen_features.encode(raw, encoder, weights, batch_size, cache, "class texts")["classes"]


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

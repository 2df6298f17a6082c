"""Starts of the head: the weights of single classes before the first step, by `class_encoder.init`.

A start is a function of `Sources` to a `Head`. It reads the training examples, and "probe" chooses its
strength by validation; none reads the examples that calibrate or test. It is called for a new model, and not
for one that a checkpoint restores.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf

from rank4class.pipelines import config
from rank4class.pipelines.storage.cache import Cache
from rank4class.pipelines.task_data import class_texts, frozen_features
from rank4class.pipelines.task_data.task_data import TaskData


class Head(NamedTuple):
    """Weights of single classes. The scale of the scores is the length of the vectors."""

    vectors: np.ndarray  # of class encoder "embedding", `[n, d]`
    bias: np.ndarray | None = None  # of interaction "dot", `[n]`; None leaves it at 0


class Sources(NamedTuple):
    """What starts read."""

    task_data: TaskData
    encoder_name: str
    batch_size: int  # of the examples that are encoded at a time
    cache: Cache
    solved: Head | None  # by optimizer "lbfgs" for the initial encoder, if the start is "probe"


def start(model: tf.keras.Model, part: config.ClassEncoder, sources: Sources) -> None:
    """Assigns the head of a class encoder's start to a new model; the model has random ones, and zeros.

    Raises:
      ValueError: the class encoder, one of a user, has no `table` for the vectors.
    """
    if part.init not in STARTS:
        return
    if (table := getattr(model.class_encoder, "table", None)) is None:
        problem = f"class encoder {part.name!r} has no variable `table`. Choose 'random' or 'zeros'."
        raise ValueError(f"class_encoder.init={part.init!r}: {problem}")
    head = STARTS[part.init](sources)
    table.assign(head.vectors)
    if head.bias is not None:
        model.interaction.bias.assign(head.bias)


def probe(sources: Sources) -> Head:
    """Returns the head that is solved for the initial encoder.

    References:
      Kumar, Raghunathan, Jones, Ma, Liang (2022), "Fine-tuning can distort pretrained features and
      underperform out-of-distribution", section 3.4.
    """
    assert sources.solved is not None
    return sources.solved


def names(sources: Sources) -> Head:
    """Returns the directions of the vectors of the class texts by the initial instance encoder."""
    task_data = sources.task_data
    encoder = task_data.inputs.encoder or task_data.build_encoder(sources.encoder_name)
    texts = task_data.class_texts
    tokenizer = task_data.inputs.preprocess
    assert texts is not None
    return Head(_unit(class_texts.encode(texts, encoder, tokenizer, sources.cache)))


def means(sources: Sources) -> Head:
    """Returns the direction of the mean training vector of each class, or 0 for a class without an example.

    The vectors are those of the initial instance encoder.
    """
    task_data = sources.task_data
    vectors = train_vectors(task_data, sources.encoder_name, sources.batch_size, sources.cache)
    sums = task_data.splits["train"].class_matrix(task_data.num_scored("train")).T @ vectors
    means = np.zeros([len(task_data.class_names), vectors.shape[1]])
    seen = ... if task_data.seen is None else task_data.seen
    means[seen] = _unit(sums.toarray() if scipy.sparse.issparse(sums) else sums)
    return Head(means)


def train_vectors(task_data: TaskData, encoder_name: str, batch_size: int, cache: Cache) -> Any:
    """Returns the vectors of the training examples by the initial encoder, `[N, d]`, dense or sparse."""
    vectors = task_data.splits["train"].features.get("embedding")
    if vectors is None:
        vectors = frozen_features.encode_train(task_data, encoder_name, batch_size, cache)
    return vectors if scipy.sparse.issparse(vectors) else np.asarray(vectors)  # reads stored rows


STARTS: dict[str, Callable[[Sources], Head]] = {"names": names, "means": means, "probe": probe}


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors of length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)

"""Loads the task of an experiment: its dataset and encoder."""

import dataclasses
import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from rank4class import data, models
from rank4class.pipelines import config
from rank4class.pipelines.storage.cache import Cache
from rank4class.pipelines.task import frozen_features, hashing, preprocessing
from rank4class.pipelines.task.inputs import Inputs
from rank4class.pipelines.task.task import TaskData
from rank4class.progress import Progress

_MANY_BATCHES = 10  # of class texts in each step, from which on a warning names their costs


def load(experiment: config.Experiment, cache_dir: str, trained: Inputs | None = None) -> TaskData:
    """Loads the task of an experiment.

    With a frozen encoder the features are its outputs, and the encoder returns them unchanged. They are
    computed once and kept in a file; see `storage.cache`.

    Args:
      experiment: a checked experiment.
      cache_dir: folder of the run, for the outputs of a frozen encoder if runs share no cache.
      trained: the inputs of a trained model, for which the task is loaded; None for a new model.

    Raises:
      FileNotFoundError, ValueError: the dataset or the encoder cannot be loaded, or they do not fit together.
    """
    data_config = experiment.data
    dataset = read_dataset(data_config)
    check_class_weights(data_config, dataset.splits["train"])
    splits = limit_examples(data_config, dataset.splits)
    inputs = trained or Inputs(
        dataset.splits["train"].kind.specs(dataset.splits["train"].features),
        preprocessing.build_preprocess(data_config, experiment.encoder, dataset.splits["train"]),
    )
    preprocess = inputs.preprocess
    if data_config.on_invalid_row == "skip":
        splits = _without_unreadable(dataset.class_names, splits, preprocess)
    hashes = hashing.data_hashes(dataset.class_names, splits)
    if inputs.kind.tokenizes:
        splits = _with_lengths(data_config, splits, preprocess)
        hashes["encoder.path"] = hashing.encoder_hash(preprocess.settings)
    cache = Cache(cache_dir)
    class_fields = _class_fields(experiment, dataset.class_names, cache) if trained is None else {}
    task = TaskData(
        dataset.class_names,
        splits,
        preprocess,
        _encoder_factory(experiment.encoder, splits) if trained is None else lambda: trained.encoder,
        inputs,
        augment=preprocessing.build_augment(data_config, dataset.splits["train"], preprocess),
        hashes=hashes,
        **class_fields,
    )
    if experiment.encoder.frozen:
        task = frozen_features.encode_splits(experiment, task, cache)
    if experiment.class_encoder.init == "means" and trained is None:
        task = dataclasses.replace(task, class_vectors=_class_means(experiment, task, cache))
    if data_config.cache and not experiment.encoder.frozen:
        task = _preprocessed(experiment, task)
    task = _hold_out(task, data_config.held_out)
    if trained is not None:
        return task
    return dataclasses.replace(task, class_weights=_training_class_weights(data_config, task))


def _class_fields(
    experiment: config.Experiment, class_names: tuple[str, ...], cache: Cache
) -> dict[str, Any]:
    """Returns the fields of a `TaskData` for the class texts, as the class encoder needs them."""
    part = experiment.class_encoder
    options = models.CLASS_ENCODERS.options(part.name)
    if not {"features", "vectors"} & set(options) and part.init != "names":
        return {}
    texts, tokens = preprocessing.class_texts(
        part, experiment.encoder, experiment.data.max_length, class_names
    )
    if "features" in options:
        if len(texts) > _MANY_BATCHES * experiment.batch_size:
            logging.warning(
                "class_encoder=%r: each step encodes all %s class texts, and takes memory for them. "
                "'frozen_text' encodes them once.",
                part.name,
                f"{len(texts):,}",
            )
        return {"class_texts": texts, "class_features": tokens}
    vectors = frozen_features.encode_classes(experiment, texts, cache)
    return {"class_texts": texts, "class_vectors": _unit(vectors) if part.init == "names" else vectors}


def _class_means(experiment: config.Experiment, task: TaskData, cache: Cache) -> np.ndarray:
    """Returns the direction of the mean training vector of each class, `[n, d]`; 0 for held-out classes."""
    train, n = task.splits["train"], len(task.class_names)
    vectors = train.features.get("embedding")
    if vectors is None:
        vectors = frozen_features.encode_splits(experiment, task, cache).splits["train"].features["embedding"]
    means = _unit(train.class_matrix(n).T @ vectors)
    means[np.isin(task.class_names, experiment.data.held_out)] = 0.0
    return means


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def load_labeled(
    data_config: config.Data, trained: Inputs, class_names: tuple[str, ...], path: str | os.PathLike
) -> TaskData:
    """Loads a labeled file or folder for the evaluation of a trained model.

    Args:
      data_config: of the training; the file or folder has its layout.
      trained: the inputs of the model.
      class_names: names of the model's classes, by id.
      path: of the file or folder.

    Returns:
      A `TaskData` whose three splits are all examples of the file or folder.

    Raises:
      FileNotFoundError, ValueError: the data cannot be loaded, or have other classes.
    """
    options = {**data_config.options(), "path": path}
    split = data.get_labeled(data_config.name, class_names, **options)
    splits: dict[str, data.Split] = dict.fromkeys(("train", "validation", "test"), split)
    if data_config.on_invalid_row == "skip":
        splits = _without_unreadable(class_names, splits, trained.preprocess)
    # The frozen encoder, if any, is a part of the preprocessing here.
    preprocess = trained if trained.encoder is not None else trained.preprocess
    if trained.kind.tokenizes:
        splits = _with_lengths(data_config, splits, trained.preprocess)
    hashes = hashing.data_hashes(class_names, splits)
    return TaskData(class_names, splits, preprocess, lambda: trained.encoder, trained, hashes=hashes)


def read_dataset(data_config: config.Data) -> data.Dataset:
    """Returns the whole dataset of a configuration."""
    return data.get(data_config.name, **data_config.options())


def with_encoder(task: TaskData, encoder_config: config.Encoder) -> TaskData:
    """Returns a task with another encoder, neither of them frozen."""
    return dataclasses.replace(task, make_encoder=_encoder_factory(encoder_config, task.splits))


def _encoder_factory(
    encoder_config: config.Encoder, splits: Mapping[str, data.Split]
) -> Callable[[], tf.keras.layers.Layer]:
    options = encoder_config.options()
    if splits["train"].kind.has_ids and "num_ids" in models.ENCODERS.option_names(encoder_config.name):
        options["num_ids"] = 1 + max(int(split.features["id"].max()) for split in splits.values())
    return lambda: models.get("encoder", encoder_config.name, **options)


def limit_examples(data_config: config.Data, splits: Mapping[str, data.Split]) -> dict[str, data.Split]:
    """Returns splits with at most `data.max_examples` examples, and `data.max_train_examples` to train on.

    If instances are known by their ids alone, the other splits keep the instances of the training split,
    since nothing is learned about other ones.

    Raises:
      ValueError: a split is left without an example.
    """
    limit, train_limit, seed = (
        data_config.max_examples,
        data_config.max_train_examples,
        data_config.split_seed,
    )
    by_identity = {id(split): subsample(split, limit, seed) for split in splits.values()}
    limited = {name: by_identity[id(split)] for name, split in splits.items()}
    limited["train"] = subsample(limited["train"], train_limit, seed)
    if (limit is None and train_limit is None) or not splits["train"].kind.has_ids:
        return limited
    trained = limited["train"].features["id"]
    limited = {name: split.select(np.isin(split.features["id"], trained)) for name, split in splits.items()}
    for name, split in limited.items():
        if not len(split):
            field = "max_examples" if train_limit is None else "max_train_examples"
            value = limit if train_limit is None else train_limit
            raise ValueError(f"data.{field}={value}: the {name} split has no example left. Raise it.")
    return limited


def subsample(split: data.Split, limit: int | None, seed: int) -> data.Split:
    """Returns a split with a random sample of its examples if it has more than `limit`."""
    if limit is None or len(split) <= limit:
        return split
    return split.select(np.sort(np.random.default_rng(seed).permutation(len(split))[:limit]))


def _without_unreadable(
    class_names: tuple[str, ...], splits: dict[str, data.Split], preprocess: Callable | None
) -> dict[str, data.Split]:
    """Returns splits without the image files that cannot be read; this reads all of them."""
    if not splits["train"].kind.reads_files:
        return splits
    assert preprocess is not None
    readable: dict[int, data.Split] = {}
    messages: list[str] = []
    for split in splits.values():
        if id(split) not in readable:  # two names may share a split
            unreadable = dict(data.unreadable(split, preprocess))
            messages += unreadable.values()
            readable[id(split)] = split.select([i for i in range(len(split)) if i not in unreadable])
    data.warn_of_skipped(messages)
    # `Dataset` raises an error for a split or a class without an example.
    return data.Dataset(class_names, {name: readable[id(split)] for name, split in splits.items()}).splits


def _with_lengths(
    data_config: config.Data, splits: Mapping[str, data.Split], tokenizer: data.WordPiece
) -> dict[str, data.Split]:
    """Returns splits of texts with their padded lengths, unless the training split is not grouped by them."""
    distinct = {id(split): split for split in splits.values()}
    by_identity = {i: preprocessing.with_lengths(split, tokenizer) for i, split in distinct.items()}
    grouped = {name: by_identity[id(split)] for name, split in splits.items()}
    return grouped if data_config.group_by_length else {**grouped, "train": splits["train"]}


def _preprocessed(experiment: config.Experiment, task: TaskData) -> TaskData:
    """Returns a task whose splits hold the preprocessed features."""
    splits = {}
    for name, split in task.splits.items():
        # The arrays of texts have one length.
        size = experiment.evaluation_batch_size
        progress = Progress(f"preprocessing {name}", "example", len(split))
        batches = progress.over(task.with_static_lengths().read(name, size), size)
        features, _, indices = zip(*batches, strict=True)
        order = np.concatenate(indices)
        arrays = {
            key: data.in_order(np.concatenate([batch[key] for batch in features]), order)
            for key in features[0]
            if key != "excluded"
        }
        splits[name] = dataclasses.replace(split, features=arrays, lengths=None)
    augment = preprocessing.build_augment(experiment.data, splits["train"], None)
    return dataclasses.replace(task, splits=splits, preprocess=None, augment=augment)


def check_class_weights(data_config: config.Data, train: data.Split) -> None:
    """Raises ValueError for class weights if the classes are the positions in a list of items."""
    if data_config.class_weights != "none" and train.kind.ranks_items:
        raise ValueError(
            f"data.class_weights={data_config.class_weights!r}: the classes of dataset {data_config.name!r} "
            "are the positions in a list. Set it to 'none'."
        )


def class_weights(
    data_config: config.Data, class_names: Sequence[str], counts: np.ndarray
) -> np.ndarray | None:
    """Returns the weights of the classes, float32 `[n]`, or None; see `data.training_batches`.

    Args:
      data_config: the dataset's configuration.
      class_names: names of all `n` classes.
      counts: number of training examples of each class, 0 for classes that are held out.

    Raises:
      FileNotFoundError, ValueError: the file of weights is missing, or does not fit the classes.
    """
    if data_config.class_weights == "none":
        return None
    if data_config.class_weights == "balanced":
        return data.balanced_class_weights(counts)
    if not os.path.exists(data_config.class_weights):
        raise FileNotFoundError(
            f"data.class_weights={data_config.class_weights!r}: no such file. Write 'none', 'balanced', or a "
            "path."
        )
    return data.class_weights(data_config.class_weights, class_names)


def _training_class_weights(data_config: config.Data, task: TaskData) -> np.ndarray | None:
    seen = np.arange(len(task.class_names)) if task.seen is None else task.seen
    counts = np.zeros(len(task.class_names), np.int64)
    counts[seen] = task.splits["train"].class_counts(len(seen))
    weights = class_weights(data_config, task.class_names, counts)
    return None if weights is None else weights[seen]


def _hold_out(task: TaskData, names: Sequence[str]) -> TaskData:
    """Returns a task whose test split has only the held-out classes and whose other splits lack them."""
    if not names:
        return task
    check_held_out(task.class_names, names)
    if task.splits["train"].multi_label:
        raise ValueError(
            f"data.held_out={names}: an example of several classes could be on both sides. Use a dataset "
            "with one class per example."
        )
    is_held_out = np.isin(task.class_names, names)
    seen = np.flatnonzero(~is_held_out)
    if len(seen) < 2:
        raise ValueError(f"data.held_out={names}: fewer than 2 classes to train on. Hold out fewer.")
    splits = {}
    for split, examples in task.splits.items():
        selected = is_held_out[examples.labels] == (split == "test")
        if not selected.any():
            raise ValueError(f"data.held_out={names}: the {split} split has no example left. Change it.")
        splits[split] = examples.select(selected)
        if split != "test":
            labels = np.searchsorted(seen, splits[split].labels).astype(np.int32)
            splits[split] = dataclasses.replace(splits[split], labels=labels)
    return dataclasses.replace(task, splits=splits, seen=seen)


def check_held_out(class_names: Sequence[str], names: Iterable[str]) -> None:
    """Raises ValueError if `data.held_out` names an unknown class."""
    unknown = sorted(set(names) - set(class_names))
    if unknown:
        close = difflib.get_close_matches(unknown[0], class_names, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else "Choose a class of the dataset."
        raise ValueError(f"data.held_out={unknown[0]!r}: no such class. {hint}")

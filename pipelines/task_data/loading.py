"""Loads the data of an experiment, as a list of steps."""

import dataclasses
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from absl import logging

from rank4class import arguments, compat, data, models
from rank4class.data import candidates
from rank4class.data.dataset import map_splits
from rank4class.data.readers.rows import BadRows
from rank4class.pipelines import config
from rank4class.pipelines.storage.cache import Cache
from rank4class.pipelines.task_data import class_texts, frozen_features, hashing, split_steps, words
from rank4class.pipelines.task_data.inputs import Inputs, build_inputs, token_counts, with_lengths
from rank4class.pipelines.task_data.task_data import TaskData

_FEW_CUT = 0.01  # of the training texts
MOST_IN_FOLDS = 2_000  # training examples; more leave enough to validate
Step = Callable[[TaskData], TaskData]


def load_data(
    experiment: config.Experiment,
    cache_dir: str | os.PathLike,
    trained: Inputs | None = None,
    dataset: data.Dataset | None = None,
    progress: bool = True,
) -> TaskData:
    """Loads the dataset of a checked experiment for its encoders, with a split for its prediction sets.

    With a frozen encoder the features are its outputs, and the encoder returns them unchanged. They are
    computed once and kept in a file; see `cache.Cache`.

    Args:
      experiment: of which data, encoders, candidates, prediction sets and `evaluation_batch_size` are read.
      cache_dir: folder of the run, for the outputs of a frozen encoder if runs share no cache.
      trained: the inputs of a trained model, for which the data are loaded; None for a new model.
      dataset: the dataset in memory; None reads that of the experiment.
      progress: whether to show the encoding and the preprocessing.

    Raises:
      FileNotFoundError, ValueError: the dataset or the encoder cannot be loaded, or they do not fit together.
    """
    data_config = experiment.data
    encoder = experiment.encoder
    class_encoder = experiment.class_encoder
    batch_size = experiment.evaluation_batch_size
    cache = Cache(cache_dir, progress)
    dataset = dataset or read_dataset(data_config, _validates_by_folds(experiment))
    options = data_config.options()
    names_classes = data_config.name == "memory" or options.get("classes") or options.get("label_columns")
    ranks_untrained = class_texts.are_read(class_encoder) and not data_config.held_out
    check_dataset(dataset, experiment)
    if names_classes and not ranks_untrained:
        check_classes(dataset, options.get("classes"))
    raw = of_dataset(dataset, data_config, encoder, trained)
    steps = [*_reading(data_config), drop_cells]
    for name in ("unknown", "unknown_train"):
        if trained is None and (path := getattr(data_config, name)) is not None:
            raw = add_unknown(name, path, data_config, raw)
    if trained is None:
        steps += [
            warn_of_cut_texts,
            partial(add_encoder, encoder),
            partial(class_texts.add, encoder, class_encoder, data_config.max_length, cache),
        ]
    if encoder.frozen:
        steps.append(partial(frozen_features.encode_splits, encoder.name, batch_size, cache))
    elif data_config.cache or raw.inputs.kind.preprocesses_once:
        steps.append(partial(preprocess_once, batch_size, progress))
    adds_words = experiment.words == "auto" and raw.inputs.tokenizer is not None
    adds_words &= not (data_config.held_out or class_texts.are_read(class_encoder))
    if encoder.name == "words" or (adds_words if trained is None else trained.words is not None):
        options = encoder.options() if encoder.name == "words" else {}
        steps.append(partial(words.add, raw.splits, options))
    if trained is None:
        steps += [
            partial(split_steps.add_folds, raw.splits["train"], data_config.split_seed),
            partial(class_texts.add_examples, data_config.name_examples, cache),
        ]
    steps += [
        partial(add_augmentation, data_config.augmentation, data_config.image_size),
        partial(split_steps.hold_out, data_config.held_out),
    ]
    if experiment.sets.name != "none" or experiment.unknown is not None:
        steps.append(partial(split_steps.add_calibration_split, experiment.sets, data_config.split_seed))
    if names_classes and ranks_untrained:
        steps.append(split_steps.leave_out_untrained)
    if trained is None:
        steps.append(partial(split_steps.add_class_weights, data_config.class_weights))
    return _after(steps, raw)


def load_labeled(
    data_config: config.Data, trained: Inputs, class_names: tuple[str, ...], path: str | os.PathLike
) -> TaskData:
    """Loads a labeled file or folder for the evaluation of a trained model.

    It has the layout of the data of the training, and its examples are all splits.

    Raises:
      FileNotFoundError, ValueError: the data cannot be loaded, or have other classes.
    """
    columns: dict[str, Any] = {}
    if trained.columns:
        beside = trained.columns[trained.num_texts :]
        columns = {"feature_columns": beside, "is_mixed": "cells" in trained.specs}
    if data_config.name == "table" and "embedding" in trained.specs:
        columns["width"] = trained.specs["embedding"].shape[1]
    options = {**data_config.options(), **columns, "path": path}
    split = data.get_labeled(data_config.name, class_names, **options)
    splits: dict[str, data.Split] = dict.fromkeys(("train", "validation", "calibration", "test"), split)
    task_data = _after(_reading(data_config), _with_inputs(class_names, splits, trained))
    # The frozen encoder, if any, is a part of the preprocessing here.
    if trained.encoder is None and trained.words is None:
        return task_data
    return dataclasses.replace(task_data, preprocess=trained)


def _reading(data_config: config.Data) -> list[Step]:
    """Returns the first steps, which read the examples."""
    skips = [skip_unreadable] if data_config.on_invalid_row == "skip" else []
    return [*skips, add_hashes, partial(add_lengths, data_config.group_by_length)]


def _after(steps: Iterable[Step], task_data: TaskData) -> TaskData:
    for step in steps:
        task_data = step(task_data)
    return task_data


def read_dataset(data_config: config.Data, with_folds: bool = False) -> data.Dataset:
    """Returns the whole dataset of a configuration; raises ValueError if a program passed it in memory.

    If folds can validate, none of fewer than `MOST_IN_FOLDS` training examples is drawn for validation by
    default.
    """
    if data_config.name == "memory":
        raise ValueError(
            "data='memory': the data were in memory, and are not stored with the run. Pass them: "
            "rank4class.train(..., dataset=DATASET) trains on them, RankClassifier.score(X, y) evaluates."
        )
    options = data_config.options()
    dataset = data.get(data_config.name, **options)
    is_default = options.get("validation_fraction", 0.0) is None
    if with_folds and is_default and len(dataset.splits["train"]) < MOST_IN_FOLDS:
        with compat.without_warnings():  # the first reading has logged them
            return data.get(data_config.name, **options | {"validation_fraction": 0.0})
    return dataset


def _validates_by_folds(experiment: config.Experiment) -> bool:
    return experiment.optimizer.name == "lbfgs" and not experiment.data.held_out


def check_dataset(dataset: data.Dataset, experiment: config.Experiment) -> None:
    """Raises ValueError if a dataset lacks a split, or does not fit class weights or candidates."""
    part = experiment.candidates
    needed = {"train"} if _validates_by_folds(experiment) else {"train", "validation"}
    if missing := needed - set(dataset.splits):
        raise ValueError(
            f"dataset.splits: no {missing.pop()!r}. Add it; data.dataset.draw draws splits. Without "
            "validation only optimizer 'lbfgs' trains, by folds: set encoder.frozen=True, or "
            "data.validation_fraction above 0."
        )
    check_class_weights(experiment.data, dataset.splits["train"])
    if part.name != "all":
        with arguments.in_section("candidates."):
            candidates.check_count(part.count, len(dataset.class_names))


def check_class_weights(data_config: config.Data, train: data.Split) -> None:
    """Raises ValueError for class weights if the classes are the positions in a list of items."""
    if data_config.class_weights != "none" and train.kind.ranks_items:
        raise ValueError(
            f"data.class_weights={data_config.class_weights!r}: the classes of dataset {data_config.name!r} "
            "are the positions in a list. Set it to 'none'."
        )


def check_classes(dataset: data.Dataset, path: str | None) -> None:
    """Raises ValueError if a class of the file `data.classes` has no training example."""
    untrained = np.flatnonzero(dataset.splits["train"].class_counts(len(dataset.class_names)) == 0)
    if path is not None and len(untrained):
        raise ValueError(
            f"data.classes={path}: class {dataset.class_names[untrained[0]]!r} has no training example. "
            "Remove the line, or set class_encoder to 'frozen_text' to rank it by its name, without "
            "data.held_out."
        )


def of_dataset(
    dataset: data.Dataset, data_config: config.Data, encoder: config.Encoder, trained: Inputs | None
) -> TaskData:
    """Returns the task of a dataset, with at most the configured numbers of examples; it has no encoder."""
    splits = split_steps.limit_examples(data_config, dataset.splits)
    inputs = trained or build_inputs(data_config, encoder, splits["train"], dataset.columns)
    return _with_inputs(dataset.class_names, splits, inputs)


def _with_inputs(class_names: tuple[str, ...], splits: dict[str, data.Split], inputs: Inputs) -> TaskData:
    def with_inputs(split: data.Split) -> data.Split:
        features = split.features
        shown = features.get("text", features.get("file"))
        if shown is None and "cells" in features:
            shown = np.array([", ".join(row) for row in features["cells"]], object)
        return split if shown is None else dataclasses.replace(split, inputs=shown)

    splits = map_splits(with_inputs, splits)
    return TaskData(class_names, splits, inputs.preprocess, lambda: inputs.encoder, inputs)


def add_unknown(name: str, path: str, data_config: config.Data, task_data: TaskData) -> TaskData:
    """Returns a task with one more split, of the inputs of a file, whose labels mean nothing."""
    inputs = task_data.inputs
    kind = inputs.kind
    bad_rows = BadRows(data_config.on_invalid_row, "data.on_invalid_row")
    columns = inputs.file_columns(data_config.options())
    try:
        rows = list(kind.read(path, kind.raw_specs(inputs.specs), bad_rows, columns, {}))
    except (ValueError, FileNotFoundError) as error:
        raise type(error)(f"data.{name}: {error} Columns have the names of those of the training.") from error
    if not rows:
        raise ValueError(f"data.{name}={path}: no input that can be used. Add some.")
    like = task_data.splits["train"].select(np.zeros(len(rows), int))
    features = kind.stack([row for _, row in rows])
    split = dataclasses.replace(like, features=features, origins=None, inputs=None)
    return dataclasses.replace(task_data, splits={**task_data.splits, name: split})


def skip_unreadable(task_data: TaskData) -> TaskData:
    """Returns a task without the image files that cannot be read; this reads all of them."""
    if not task_data.inputs.kind.reads_files:
        return task_data
    messages: list[str] = []

    def readable(split: data.Split) -> data.Split:
        unreadable = dict(data.unreadable(split, task_data.preprocess))
        messages.extend(unreadable.values())
        return split.select([i for i in range(len(split)) if i not in unreadable])

    splits = map_splits(readable, task_data.splits)
    data.warn_of_skipped(messages)
    splits = data.Dataset(task_data.class_names, splits).splits  # ValueError for a split without an example
    return dataclasses.replace(task_data, splits=splits)


def add_hashes(task_data: TaskData) -> TaskData:
    """Returns a task with the hashes of its examples and of the settings of its tokenizer."""
    hashes = hashing.data_hashes(task_data.class_names, task_data.splits)
    if tokenizer := task_data.inputs.tokenizer:
        hashes["encoder.path"] = hashing.encoder_hash(tokenizer.settings)
    return dataclasses.replace(task_data, hashes=hashes)


def add_lengths(of_training: bool, task_data: TaskData) -> TaskData:
    """Returns a task with the lengths of its texts, `of_training` too, by which batches are grouped."""
    tokenizer = task_data.inputs.tokenizer
    if tokenizer is None:
        return task_data
    others = {} if of_training else {"train": task_data.splits["train"]}
    splits = map_splits(lambda split: with_lengths(split, tokenizer), task_data.splits)
    return dataclasses.replace(task_data, splits=splits | others)


def warn_of_cut_texts(task_data: TaskData) -> TaskData:
    """Warns if more than a hundredth of the training texts, grouped by length, have too many tokens."""
    train = task_data.splits["train"]
    tokenizer = task_data.inputs.tokenizer
    if tokenizer is None or train.lengths is None:
        return task_data
    limit = tokenizer.most_tokens
    full = tokenizer.windows * tokenizer.settings["max_length"]
    longest = train.select(np.flatnonzero(train.lengths == full))
    cut = np.count_nonzero(token_counts(tokenizer, longest.features, progress=False) > limit) / len(train)
    if cut > _FEW_CUT:
        logging.warning(
            "%.0f%% of the training texts have more than %d tokens, and are cut. The report has the shares. "
            "A larger data.max_length, or data.windows, reads more of them, at the cost of time",
            100.0 * cut,
            limit,
        )
    return task_data


def drop_cells(task_data: TaskData) -> TaskData:
    """Returns a task without the columns beside its texts, which only the words read."""
    return task_data.without("cells") if task_data.inputs.kind.tokenizes else task_data


def add_encoder(encoder: config.Encoder, task_data: TaskData) -> TaskData:
    """Returns a task with the encoder of a configuration."""
    options = encoder.options()
    if task_data.inputs.kind.has_ids and "num_ids" in models.ENCODERS.options(encoder.name):
        ids = (split.features["id"] for split in task_data.splits.values())
        options["num_ids"] = 1 + max(int(each.max()) for each in ids)
    return dataclasses.replace(
        task_data, make_encoder=partial(models.get, "encoder", encoder.name, **options)
    )


def preprocess_once(batch_size: int, progress: bool, task_data: TaskData) -> TaskData:
    """Returns a task whose splits hold the preprocessed features."""
    unlabeled = task_data.with_static_lengths().without_labels()  # the arrays of texts have one length
    title = "preprocessing" if progress else ""
    splits = {}
    for name, split in task_data.splits.items():
        features = unlabeled.collect(name, batch_size, dict, title)
        splits[name] = dataclasses.replace(split, features=features, lengths=None)
    return dataclasses.replace(task_data, splits=splits, preprocess=None)


def add_augmentation(name: str, image_size: int, task_data: TaskData) -> TaskData:
    """Returns a task whose training images are augmented; ValueError if they cannot be."""
    if name == "none":
        return task_data
    augment = task_data.splits["train"].kind.augment(name, image_size, task_data.preprocess)
    return dataclasses.replace(task_data, augment=augment)

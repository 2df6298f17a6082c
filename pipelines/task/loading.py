"""Loads the data of an experiment, as a list of steps."""

import dataclasses
import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import scipy.sparse

from rank4class import arguments, data, models
from rank4class.data import candidates
from rank4class.data.dataset import map_splits
from rank4class.pipelines import config
from rank4class.pipelines.storage import files
from rank4class.pipelines.storage.files import Cache
from rank4class.pipelines.task import class_texts, frozen_features, hashing
from rank4class.pipelines.task.inputs import Inputs, build_augment, build_inputs, with_lengths
from rank4class.pipelines.task.task import TaskData


def load_data(
    experiment: config.Experiment,
    cache_dir: str | os.PathLike,
    trained: Inputs | None = None,
    dataset: data.Dataset | None = None,
    progress: bool = True,
) -> TaskData:
    """Loads the dataset of a checked experiment for its encoders, with a split for its prediction sets.

    With a frozen encoder the features are its outputs, and the encoder returns them unchanged. They are
    computed once and kept in a file; see `files.Cache`.

    Args:
      experiment: of which data, encoders, candidates, prediction sets and `evaluation_batch_size` are read.
      cache_dir: folder of the run, for the outputs of a frozen encoder if runs share no cache.
      trained: the inputs of a trained model, for which the data are loaded; None for a new model.
      dataset: the dataset in memory; None reads that of the experiment.
      progress: whether to show the encoding and the preprocessing.

    Raises:
      FileNotFoundError, ValueError: the dataset or the encoder cannot be loaded, or they do not fit together.
    """
    data_config, encoder, class_encoder = experiment.data, experiment.encoder, experiment.class_encoder
    batch_size = experiment.evaluation_batch_size
    dataset, cache = dataset or read_dataset(data_config), Cache(cache_dir, progress)
    if missing := {"train", "validation"} - set(dataset.splits):
        raise ValueError(f"dataset.splits: no {missing.pop()!r}. Add it; data.dataset.draw draws splits.")
    check_class_weights(data_config, dataset.splits["train"])
    if experiment.candidates.name != "all":  # before the texts of the classes are encoded
        with arguments.in_section("candidates."):
            candidates.check_count(experiment.candidates.count, len(dataset.class_names))
    splits = limit_examples(data_config, dataset.splits)
    is_untrained = _untrained(data_config, class_encoder, dataset, splits["train"])
    inputs = trained or dataclasses.replace(
        build_inputs(data_config, encoder, splits["train"]), columns=dataset.columns
    )
    task = _of_splits(data_config, dataset.class_names, splits, inputs)
    task = dataclasses.replace(task, augment=build_augment(data_config, splits["train"], task.preprocess))
    if trained is None:
        options = encoder.options()
        if splits["train"].kind.has_ids and "num_ids" in models.ENCODERS.options(encoder.name):
            options["num_ids"] = 1 + max(int(split.features["id"].max()) for split in splits.values())
        task = dataclasses.replace(task, make_encoder=lambda: models.get("encoder", encoder.name, **options))
        task = class_texts.add(task, encoder, class_encoder, data_config.max_length, batch_size, cache)
    if encoder.frozen:
        task = frozen_features.encode_splits(task, encoder.name, batch_size, cache)
    if trained is None and class_encoder.init == "means":
        task = _with_class_means(task, data_config.held_out, encoder.name, batch_size, cache)
    if data_config.cache and not encoder.frozen:
        task = _preprocessed(task, batch_size, "preprocessing" * progress)
        task = dataclasses.replace(task, augment=build_augment(data_config, task.splits["train"], None))
    task = _hold_out(task, data_config.held_out)
    task = _with_calibration_split(task, experiment.sets, data_config.split_seed)
    if is_untrained.any():
        seen = np.flatnonzero(~is_untrained)
        splits = {**task.splits, "train": _of_classes(task.splits["train"], seen)}
        task = dataclasses.replace(task, splits=splits, seen=seen, of_seen=("train",))
    return task if trained is not None else _with_class_weights(task, data_config.class_weights)


def load_labeled(
    data_config: config.Data, trained: Inputs, class_names: tuple[str, ...], path: str | os.PathLike
) -> TaskData:
    """Loads a labeled file or folder for the evaluation of a trained model.

    It has the layout of the data of the training, and its examples are all splits.

    Raises:
      FileNotFoundError, ValueError: the data cannot be loaded, or have other classes.
    """
    columns = {"feature_columns": trained.columns} if trained.columns else {}
    if data_config.name == "table" and "embedding" in trained.specs:
        columns["width"] = trained.specs["embedding"].shape[1]
    options = {**data_config.options(), **columns, "path": path}
    split = data.get_labeled(data_config.name, class_names, **options)
    splits: dict[str, data.Split] = dict.fromkeys(("train", "validation", "calibration", "test"), split)
    task = _of_splits(data_config, class_names, splits, trained)
    # The frozen encoder, if any, is a part of the preprocessing here.
    return task if trained.encoder is None else dataclasses.replace(task, preprocess=trained)


def read_dataset(data_config: config.Data) -> data.Dataset:
    """Returns the whole dataset of a configuration; raises ValueError if a program passed it in memory."""
    if data_config.name == "memory":
        raise ValueError(
            "data='memory': the data were in memory, and are not stored with the run. Pass them: "
            "rank4class.train(..., dataset=DATASET) trains on them, RankClassifier.score(X, y) evaluates."
        )
    return data.get(data_config.name, **data_config.options())


def _of_splits(
    data_config: config.Data, class_names: tuple[str, ...], splits: dict[str, data.Split], inputs: Inputs
) -> TaskData:
    """Returns the task of splits, for a trained encoder, with the lengths of texts and the hashes."""
    if data_config.on_invalid_row == "skip":
        splits = _without_unreadable(class_names, splits, inputs.preprocess)
    hashes = hashing.data_hashes(class_names, splits)
    if inputs.kind.tokenizes:
        hashes["encoder.path"] = hashing.encoder_hash(inputs.preprocess.settings)
        ungrouped = {} if data_config.group_by_length else {"train": splits["train"]}
        splits = map_splits(lambda split: with_lengths(split, inputs.preprocess), splits) | ungrouped
    return TaskData(class_names, splits, inputs.preprocess, lambda: inputs.encoder, inputs, hashes=hashes)


def _with_class_means(
    task: TaskData, held_out: Sequence[str], encoder_name: str, batch_size: int, cache: Cache
) -> TaskData:
    """Returns a task with the direction of the mean training vector of each class; 0 for held-out classes."""
    train = task.splits["train"]
    vectors = train.features.get("embedding")
    if vectors is None:
        encoded = frozen_features.encode_splits(task, encoder_name, batch_size, cache)
        vectors = encoded.splits["train"].features["embedding"]
    vectors = vectors if scipy.sparse.issparse(vectors) else np.asarray(vectors)  # reads stored rows
    sums = train.class_matrix(len(task.class_names)).T @ vectors
    means = class_texts.unit(sums.toarray() if scipy.sparse.issparse(sums) else sums)
    means[np.isin(task.class_names, held_out)] = 0.0
    return dataclasses.replace(task, class_vectors=means)


def limit_examples(data_config: config.Data, splits: Mapping[str, data.Split]) -> dict[str, data.Split]:
    """Returns splits with at most `data.max_examples` examples, and `data.max_train_examples` to train on.

    If instances are known by their ids alone, the other splits keep the instances of the training split.
    """
    limit, train_limit = data_config.max_examples, data_config.max_train_examples
    seed = data_config.split_seed
    limited = map_splits(lambda split: subsample(split, limit, seed), splits)
    limited["train"] = subsample(limited["train"], train_limit, seed)
    if (limit is None and train_limit is None) or not splits["train"].kind.has_ids:
        return limited
    trained = limited["train"].features["id"]
    return {name: split.select(np.isin(split.features["id"], trained)) for name, split in splits.items()}


def subsample(split: data.Split, limit: int | None, seed: int) -> data.Split:
    """Returns a split with a random sample of its examples if it has more than `limit`."""
    if limit is None or len(split) <= limit:
        return split
    return split.select(np.sort(np.random.default_rng(seed).permutation(len(split))[:limit]))


def _without_unreadable(
    class_names: tuple[str, ...], splits: dict[str, data.Split], preprocess: Callable
) -> dict[str, data.Split]:
    """Returns splits without the image files that cannot be read; this reads all of them."""
    if not splits["train"].kind.reads_files:
        return splits
    messages: list[str] = []

    def readable(split: data.Split) -> data.Split:
        unreadable = dict(data.unreadable(split, preprocess))
        messages.extend(unreadable.values())
        return split.select([i for i in range(len(split)) if i not in unreadable])

    splits = map_splits(readable, splits)
    data.warn_of_skipped(messages)
    return data.Dataset(class_names, splits).splits  # raises an error for a split without an example


def _preprocessed(task: TaskData, batch_size: int, title: str) -> TaskData:
    """Returns a task whose splits hold the preprocessed features."""
    unlabeled = task.with_static_lengths().without_labels()  # the arrays of texts have one length
    splits = {
        name: dataclasses.replace(
            split, features=unlabeled.collect(name, batch_size, dict, title), lengths=None
        )
        for name, split in task.splits.items()
    }
    return dataclasses.replace(task, splits=splits, preprocess=None)


def _with_calibration_split(task: TaskData, sets: config.Sets, seed: int) -> TaskData:
    """Draws the split "calibration" of prediction sets from validation, unless the dataset has one.

    The validation examples are drawn after all else: the outputs of a frozen encoder are those without sets.

    Raises:
      ValueError: either split is left without an example.
    """
    if sets.name == "none" or "calibration" in task.splits:
        return task
    validation, size = task.splits["validation"], len(task.splits["validation"])
    count = round(sets.fraction * size)
    if not 0 < count < size:
        raise ValueError(
            f"sets.fraction={sets.fraction}: {count} of {size} validation examples would calibrate, and "
            f"{size - count} would be left. Change it, or give more validation examples."
        )
    order, drawn, hashes = np.random.default_rng(seed).permutation(size), {}, {}
    for name, rows in (("calibration", order[:count]), ("validation", order[count:])):
        drawn[name] = validation.select(np.sort(rows))
        hashes[name] = files.sha256(f"{task.hashes['validation']} {name} {count} {seed}")
    if task.hashes.get("test") == task.hashes["validation"]:  # no example may calibrate and test
        drawn["test"], hashes["test"] = drawn["validation"], hashes["validation"]
    return dataclasses.replace(task, splits=task.splits | drawn, hashes=task.hashes | hashes)


def check_class_weights(data_config: config.Data, train: data.Split) -> None:
    """Raises ValueError for class weights if the classes are the positions in a list of items."""
    if data_config.class_weights != "none" and train.kind.ranks_items:
        raise ValueError(
            f"data.class_weights={data_config.class_weights!r}: the classes of dataset {data_config.name!r} "
            "are the positions in a list. Set it to 'none'."
        )


def _with_class_weights(task: TaskData, name: str) -> TaskData:
    """Returns a task with the weights of the trained classes: "none", "balanced", or those of a file."""
    if name == "none":
        return task
    if name == "balanced":
        weights = data.balanced_class_weights(task.training_counts("train"))
    else:
        weights = data.class_weights(name, task.class_names)
        weights = weights if task.seen is None else weights[task.seen]
    return dataclasses.replace(task, class_weights=weights)


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
    splits = {}
    for split, examples in task.splits.items():
        selected = is_held_out[examples.labels] == (split == "test")
        if not selected.any():
            raise ValueError(f"data.held_out={names}: the {split} split has no example left. Change it.")
        selected_examples = examples.select(selected)
        splits[split] = selected_examples if split == "test" else _of_classes(selected_examples, seen)
    return dataclasses.replace(task, splits=splits, seen=seen)


def _of_classes(split: data.Split, seen: np.ndarray) -> data.Split:
    """Returns examples of the seen classes alone, with the positions among these as labels."""
    if split.multi_label:
        excluded = None if split.excluded is None else split.excluded[:, seen]
        return dataclasses.replace(split, labels=split.label_matrix[:, seen], excluded=excluded)
    return dataclasses.replace(split, labels=np.searchsorted(seen, split.labels).astype(np.int32))


def _untrained(
    data_config: config.Data, class_encoder: config.ClassEncoder, dataset: data.Dataset, train: data.Split
) -> np.ndarray:
    """Returns which of the classes that the user named are ranked by their texts, without training, `[n]`.

    If the class encoder does not read texts, a class of the file `data.classes` without a training example
    raises ValueError.
    """
    options, names = data_config.options(), dataset.class_names
    classes = options.get("classes")
    if data_config.name != "memory" and not (classes or options.get("label_columns")):
        return np.zeros(len(names), bool)
    if class_texts.are_read(class_encoder) and not data_config.held_out:
        return train.class_counts(len(names)) == 0
    missing = np.flatnonzero(dataset.splits["train"].class_counts(len(names)) == 0)
    if classes is not None and len(missing):
        raise ValueError(
            f"data.classes={classes}: class {names[missing[0]]!r} has no training example. Remove the line, "
            "or set class_encoder to 'frozen_text' to rank it by its name, without data.held_out."
        )
    return np.zeros(len(names), bool)


def check_held_out(class_names: Sequence[str], names: Iterable[str]) -> None:
    """Raises ValueError if `data.held_out` names an unknown class."""
    unknown = sorted(set(names) - set(class_names))
    if unknown:
        close = difflib.get_close_matches(unknown[0], class_names, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else "Choose a class of the dataset."
        raise ValueError(f"data.held_out={unknown[0]!r}: no such class. {hint}")

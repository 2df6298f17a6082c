"""An experiment's dataset and encoder, loaded as a task."""

import dataclasses
import difflib
import os

import numpy as np

from rank4class import data, models
from rank4class.pipelines.task import frozen_features, hashing, preprocessing
from rank4class.pipelines.task.task import Task


def load(experiment, cache_dir):
    """Loads an experiment's problem.

    With a frozen encoder the splits hold its outputs, and the encoder passes them on: they are
    computed once and kept in `cache_dir`, under a name that follows from what they depend on, unless one of
    the two folders above it keeps them.

    Args:
      experiment: a checked `config.Experiment`.
      cache_dir: folder for the outputs of a frozen encoder.

    Raises:
      FileNotFoundError, ValueError: the dataset or the encoder cannot be loaded, or they do not fit.
    """
    dataset = read_dataset(experiment.data)
    check_class_weights(experiment.data, dataset.splits["train"])
    splits = limit_examples(dataset.splits, experiment.data)
    preprocess = preprocessing.preprocess_of(experiment, dataset)
    if experiment.data.on_invalid_row == "skip":
        splits = _without_unreadable(dataset.class_names, splits, preprocess)
    problem = Task(
        dataset.class_names,
        splits,
        preprocess,
        _encoder_maker(experiment.encoder, splits),
        augment=preprocessing.augment_of(experiment, dataset),
        hashes=hashing.data_hashes(dataset.class_names, splits),
    )
    problem = dataclasses.replace(problem, **preprocessing.class_texts(experiment, dataset.class_names))
    if experiment.encoder.frozen:
        problem = frozen_features.encode_splits(experiment, problem, cache_dir)
    elif experiment.data.cache:
        problem = _preprocessed_once(experiment, problem)
    problem = _hold_out(problem, experiment.data.held_out)
    return dataclasses.replace(problem, class_weights=_weights_of_seen(experiment.data, problem))


def _encoder_maker(section, splits):
    options = section.options()
    if section.name == "embedding" and "id" in splits["train"].features:
        options["num_ids"] = 1 + max(int(split.features["id"].max()) for split in splits.values())
    return lambda: models.get("encoder", section.name, **options)


def with_encoder(problem, section):
    """Returns a problem, of an encoder that is not frozen, with one of other options."""
    return dataclasses.replace(problem, make_encoder=_encoder_maker(section, problem.splits))


def read_dataset(section):
    """Returns the `data.Dataset` of a `config.Data`, whole."""
    return data.get(section.name, **section.options())


def limit_examples(splits, section):
    """Returns name -> split, at most `max_examples` of each.

    Of instances that are known by their ids alone the other splits keep those that training does: of the
    others nothing is learnt.

    Raises:
      ValueError: that leaves a split without an example.
    """
    if section.max_examples is not None and "id" in splits["train"].features:
        return _of_trained(splits, section)
    different = {id(split): split for split in splits.values()}  # one may be two splits
    kept = {
        key: subsample(split, section.max_examples, section.split_seed) for key, split in different.items()
    }
    return {name: kept[id(split)] for name, split in splits.items()}


def _of_trained(splits, section):
    trained = subsample(splits["train"], section.max_examples, section.split_seed).features["id"]
    kept = {name: split.select(np.isin(split.features["id"], trained)) for name, split in splits.items()}
    for name, split in kept.items():
        if not len(split):
            most = section.max_examples
            raise ValueError(f"data.max_examples {most} leaves the {name} split without an example: raise it")
    return kept


def subsample(split, most, seed):
    """Returns a split of at most so many examples, drawn where it has more; None keeps all."""
    if most is None or len(split) <= most:
        return split
    return split.select(np.sort(np.random.default_rng(seed).permutation(len(split))[:most]))


def _without_unreadable(class_names, splits, preprocess):
    """Leaves out the images that cannot be read, which takes reading all; what is held as arrays can be."""
    if "file" not in splits["train"].features:
        return splits
    readable, messages = {}, []
    for split in splits.values():
        if id(split) not in readable:  # ImageNet's validation and test are one
            bad = dict(data.unreadable(split, preprocess))
            messages += bad.values()
            readable[id(split)] = split.select([i for i in range(len(split)) if i not in bad])
    data.warn_of_skipped(messages)
    # A dataset says what is wrong with a split or a class that is left without an example.
    return data.Dataset(class_names, {name: readable[id(split)] for name, split in splits.items()}).splits


def _preprocessed_once(experiment, problem):
    splits = {}
    for name, split in problem.splits.items():
        parts = [
            {key: value.numpy()[weights.numpy() > 0] for key, value in features.items() if key != "excluded"}
            for features, _, weights in problem.read(experiment, name)
        ]
        features = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        splits[name] = dataclasses.replace(split, features=features)
    augment = data.AUGMENTATIONS[experiment.data.augmentation]
    return dataclasses.replace(problem, splits=splits, preprocess=None, augment=augment)


def check_class_weights(section, train):
    """Raises ValueError where `data.class_weights` is to weigh training examples of several classes."""
    if section.class_weights != "none" and train.multi_label:
        raise ValueError(
            "data.class_weights is for single-label data: an example of several classes has several"
        )


def class_weights(section, class_names, counts):
    """Returns what a training example weighs by its class, float32 `[n]`, or None.

    Args:
      section: a `config.Data`.
      class_names: of all `n` classes.
      counts: of their training examples, 0 of those that are held out.
    """
    if section.class_weights == "none":
        return None
    if section.class_weights == "balanced":
        return data.balanced_class_weights(counts)
    if not os.path.exists(section.class_weights):
        raise FileNotFoundError(
            f"data.class_weights {section.class_weights!r} is neither 'none' nor 'balanced' nor a file"
        )
    return data.class_weights(section.class_weights, class_names)


def _weights_of_seen(section, problem):
    seen = np.arange(len(problem.class_names)) if problem.seen is None else problem.seen
    counts = np.zeros(len(problem.class_names), np.int64)
    counts[seen] = problem.splits["train"].class_counts(len(seen))
    weights = class_weights(section, problem.class_names, counts)
    return None if weights is None else weights[seen]


def _hold_out(problem, names):
    """Leaves classes out of training and validation, and the others' examples out of the test split."""
    if not names:
        return problem
    check_held_out(problem.class_names, names)
    if problem.splits["train"].multi_label:
        raise ValueError(
            "data.held_out is for single-label data: an example of several classes belongs to both"
        )
    held_out = np.isin(problem.class_names, names)
    seen = np.flatnonzero(~held_out)
    if len(seen) < 2:
        raise ValueError(f"data.held_out leaves {len(seen)} of {len(held_out)} classes to train on")
    splits = {}
    for split, examples in problem.splits.items():
        kept = held_out[examples.labels] == (split == "test")
        splits[split] = examples.select(kept)
        if split != "test":
            labels = np.searchsorted(seen, splits[split].labels).astype(np.int32)
            splits[split] = dataclasses.replace(splits[split], labels=labels)
        if not kept.any():
            raise ValueError(f"data.held_out leaves the {split} split without an example")
    return dataclasses.replace(problem, splits=splits, seen=seen)


def check_held_out(class_names, names):
    """Raises ValueError where `data.held_out` names what is no class."""
    unknown = sorted(set(names) - set(class_names))
    if unknown:
        close = difflib.get_close_matches(unknown[0], class_names, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"data.held_out names {unknown[0]!r}, which is no class{hint}")

"""Steps of the loading that change the splits: their examples, their classes and the weights of these."""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rank4class import data
from rank4class.data.dataset import map_splits
from rank4class.pipelines import config
from rank4class.pipelines.storage import files
from rank4class.pipelines.task_data.task_data import TaskData

FOLDS = 5


def limit_examples(data_config: config.Data, splits: Mapping[str, data.Split]) -> dict[str, data.Split]:
    """Returns splits with at most `data.max_examples` examples, and `data.max_train_examples` to train on.

    If instances are known by their ids alone, the other splits keep the instances of the training split.
    """
    limit = data_config.max_examples
    train_limit = data_config.max_train_examples
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


def hold_out(names: Sequence[str], task_data: TaskData) -> TaskData:
    """Returns a task whose test split has only the held-out classes and whose other splits lack them."""
    if not names:
        return task_data
    check_held_out(task_data.class_names, names)
    if task_data.splits["train"].multi_label:
        raise ValueError(
            f"data.held_out={names}: an example of several classes could be on both sides. Use a dataset "
            "with one class per example."
        )
    is_held_out = np.isin(task_data.class_names, names)
    seen = np.flatnonzero(~is_held_out)
    splits = {}
    for split, examples in task_data.splits.items():
        selected = is_held_out[examples.labels] == (split == "test")
        if not selected.any():
            raise ValueError(f"data.held_out={names}: the {split} split has no example left. Change it.")
        selected_examples = examples.select(selected)
        splits[split] = selected_examples if split == "test" else _of_classes(selected_examples, seen)
    return dataclasses.replace(task_data, splits=splits, seen=seen)


def check_held_out(class_names: Sequence[str], names: Iterable[str]) -> None:
    """Raises ValueError if `data.held_out` names an unknown class."""
    unknown = sorted(set(names) - set(class_names))
    if unknown:
        close = difflib.get_close_matches(unknown[0], class_names, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else "Choose a class of the dataset."
        raise ValueError(f"data.held_out={unknown[0]!r}: no such class. {hint}")


def _of_classes(split: data.Split, seen: np.ndarray) -> data.Split:
    """Returns examples of the seen classes alone, with the positions among these as labels."""
    if split.multi_label:
        excluded = None if split.excluded is None else split.excluded[:, seen]
        return dataclasses.replace(split, labels=split.label_matrix[:, seen], excluded=excluded)
    return dataclasses.replace(split, labels=np.searchsorted(seen, split.labels).astype(np.int32))


def leave_out_untrained(task_data: TaskData) -> TaskData:
    """Returns a task that trains the classes with training examples; it ranks the others by their texts."""
    seen = np.flatnonzero(task_data.splits["train"].class_counts(len(task_data.class_names)))
    if len(seen) == len(task_data.class_names):
        return task_data
    splits = {**task_data.splits, "train": _of_classes(task_data.splits["train"], seen)}
    return dataclasses.replace(task_data, splits=splits, seen=seen, of_seen=("train",))


def add_folds(raw: data.Split, seed: int, task_data: TaskData) -> TaskData:
    """Returns a task whose training examples validate, by models without their fold, if no others do.

    There are `FOLDS`, of nearly the same number of examples of each class. Copies of a `raw` example share
    one.
    """
    if "validation" in task_data.splits:
        return task_data
    train = task_data.splits["train"]
    _, first, of_example = np.unique(raw.kind.contents(raw.features), return_index=True, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(first))
    if not train.multi_label:
        order = order[np.argsort(train.labels[first][order], kind="stable")]
    folds = np.empty(len(first), np.int32)
    folds[order] = np.arange(len(first)) % FOLDS
    splits = {**task_data.splits, "validation": train}
    hashes = {**task_data.hashes, "validation": task_data.hashes["train"]}
    return dataclasses.replace(task_data, splits=splits, hashes=hashes, folds=folds[of_example])


def add_calibration_split(sets: config.Sets, seed: int, task_data: TaskData) -> TaskData:
    """Draws the split "calibration" from validation, unless the dataset has one.

    The validation examples are drawn after all else: the outputs of a frozen encoder are those without sets.

    Raises:
      ValueError: either split is left without an example.
    """
    if "calibration" in task_data.splits or "validation" not in task_data.splits:
        return task_data
    if task_data.folds is not None:  # all scores are those of models without the example
        splits = task_data.splits | {"calibration": task_data.splits["validation"]}
        hashes = task_data.hashes | {"calibration": task_data.hashes["validation"]}
        return dataclasses.replace(task_data, splits=splits, hashes=hashes)
    validation = task_data.splits["validation"]
    size = len(task_data.splits["validation"])
    count = round(sets.fraction * size)
    if not 0 < count < size:
        raise ValueError(
            f"sets.fraction={sets.fraction}: {count} of {size} validation examples would calibrate, and "
            f"{size - count} would be left. Change it, or give more validation examples."
        )
    order = np.random.default_rng(seed).permutation(size)
    drawn = {}
    hashes = {}
    for name, rows in (("calibration", order[:count]), ("validation", order[count:])):
        drawn[name] = validation.select(np.sort(rows))
        hashes[name] = files.sha256(f"{task_data.hashes['validation']} {name} {count} {seed}")
    if task_data.hashes.get("test") == task_data.hashes["validation"]:  # no example may calibrate and test
        drawn["test"], hashes["test"] = drawn["validation"], hashes["validation"]
    return dataclasses.replace(task_data, splits=task_data.splits | drawn, hashes=task_data.hashes | hashes)


def add_class_weights(name: str, task_data: TaskData) -> TaskData:
    """Returns a task with the weights of the trained classes: "none", "balanced", or those of a file."""
    if name == "none":
        return task_data
    if name == "balanced":
        weights = data.balanced_class_weights(task_data.training_counts("train"))
    else:
        weights = data.class_weights(name, task_data.class_names)
        weights = weights if task_data.seen is None else weights[task_data.seen]
    return dataclasses.replace(task_data, class_weights=weights)

"""Splits of a user's files: their names, their classes, copies of examples, and the splits that are drawn."""

import os
from collections.abc import Collection, Iterable

import numpy as np

from rank4class.data.dataset import Split, draw
from rank4class.data.readers import class_tables
from rank4class.data.readers.rows import BadRows

NAMES = {"train": ("train",), "validation": ("validation", "dev", "val", "valid"), "test": ("test",)}
EXPECTED = ", ".join(f"{name} ({', '.join(others)})" if others else name for name, *others in NAMES.values())


def find(folder: str, names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns split -> path of the splits in a folder; raises ValueError if one is there twice.

    The names are (name of the split, name in the folder) of the candidates.
    """
    paths, candidates = {}, list(names)
    for split, synonyms in NAMES.items():
        present = [name for stem, name in candidates if stem in synonyms]
        if len(present) > 1:
            raise ValueError(
                f"data.path={folder}: {' and '.join(present)} are each a {split} split. Remove all but one."
            )
        if present:
            paths[split] = os.path.join(folder, present[0])
    return paths


def class_names(classes: str | None, present: Collection[str], train_path: str) -> tuple[str, ...]:
    """Returns the names in the file `classes`, or those that are present in training, sorted.

    Raises:
      ValueError: a class has no training example, or it is the only one.
    """
    lines = class_tables.class_names(classes) if classes else dict.fromkeys(sorted(present))
    for name, where in lines.items():
        if name not in present:
            raise ValueError(f"{where}: class {name!r} has no example in {train_path}. Remove the line.")
    if len(lines) < 2:
        raise ValueError(f"{classes or train_path}: {', '.join(lines)} is the only class. Give at least two.")
    return tuple(lines)


def complete(
    splits: dict[str, Split], fractions: dict[str, float], seed: int, bad_rows: BadRows
) -> dict[str, Split]:
    """Returns splits without copies of examples of earlier ones, and draws missing ones from training.

    All copies of an example are in the split of the first, which is drawn as in `draw`. The splits have
    origins, and "train" is the first.

    Raises:
      ValueError: a copy in another split; see `draw`; or all examples of a class are copies of others that
        are not in training.
    """
    parts = list(splits.values())
    features = {name: np.concatenate([part.features[name] for part in parts]) for name in parts[0].features}
    indices: dict[object, int] = {}
    contents = parts[0].kind.contents(features)
    first = np.array([indices.setdefault(content, i) for i, content in enumerate(contents)])
    names = np.repeat(list(splits), [len(part) for part in parts])
    origins = np.concatenate([part.origins for part in parts])
    is_repeated = names != names[first]
    with bad_rows.whole_file():
        for i in np.flatnonzero(is_repeated):
            with bad_rows.row():
                raise ValueError(f"{origins[i]}: a copy of {origins[first[i]]} in another split. Remove one.")
    splits = {name: split.select(~is_repeated[names == name]) for name, split in splits.items()}
    fractions = {name: fraction for name, fraction in fractions.items() if name not in splits}
    return splits | _draw(splits["train"], first[: len(splits["train"])], fractions, seed)


def _draw(train: Split, first: np.ndarray, fractions: dict[str, float], seed: int) -> dict[str, Split]:
    originals = np.unique(first)
    parts = draw(Split({"index": originals}, train.labels[originals]), fractions, seed=seed)
    drawn = {name: np.flatnonzero(np.isin(first, part.features["index"])) for name, part in parts.items()}
    untrained = np.flatnonzero(~np.isin(train.labels, train.labels[drawn["train"]]))
    if len(untrained):
        i = untrained[0]
        raise ValueError(
            f"{train.origin(i)}: a copy of {train.origin(first[i])}, which is not in training, and no other "
            "example of its class is. Remove one of the two."
        )
    return {name: train.select(indices) for name, indices in drawn.items()}

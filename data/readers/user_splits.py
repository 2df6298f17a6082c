"""Splits of a user's files: their classes, copies of examples, and the splits that are drawn."""

from collections.abc import Collection

import numpy as np
from absl import logging

from rank4class.data.dataset import VALIDATION_FRACTION, Split, draw
from rank4class.data.labels import sort_names
from rank4class.data.readers import class_tables
from rank4class.data.readers.columns import normalize_text


def class_names(classes: str | None, present: Collection[str], train_path: str) -> tuple[str, ...]:
    """Returns the names in the file `classes`, or those that are present in training, by `sort_names`."""
    names = class_tables.class_names(classes) if classes else tuple(sort_names(present))
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(normalize_text(name), name)) != name:
            message = "%s: %r and %r are two classes. Correct the labels if they are one."
            logging.warning(message, classes or train_path, other, name)
    if len(names) < 2:
        raise ValueError(f"{classes or train_path}: {', '.join(names)} is the only class. Give at least two.")
    return names


def complete(
    splits: dict[str, Split], fractions: dict[str, float], seed: int, num_added: int = 0
) -> dict[str, Split]:
    """Returns splits with those that are missing, drawn from training as in `draw`; "train" is the first.

    All copies of an example are in the split of the first. Copies in splits that are there stay, since equal
    texts may be different examples, and a published split keeps its figures; a warning counts them. With a
    fraction of 0 for validation the test examples are those of the default fraction.

    The last `num_added` training examples stay in training, without copies of examples that are drawn; the
    others are drawn as they are without them.
    """
    parts = list(splits.values())
    contents = parts[0].kind.contents(*(part.features for part in parts))
    _, first, of_example = np.unique(contents, return_index=True, return_inverse=True)
    first = first[of_example]
    part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    copies = np.flatnonzero(part_of != part_of[first])

    def origin(i: int) -> str:
        part = part_of[i]
        return parts[part].origin(int(i - np.searchsorted(part_of, part)))

    if len(copies):
        logging.warning(
            "%s examples are also in an earlier split, such as %s, a copy of %s: "
            "metrics on copies do not measure generalization",
            f"{len(copies):,}",
            origin(copies[0]),
            origin(first[copies[0]]),
        )
    train = splits["train"]
    fractions = {name: fraction for name, fraction in fractions.items() if name not in splits}
    first = first[: len(train)]
    originals = np.flatnonzero(first == np.arange(len(first)))
    end = len(train) - num_added
    originals, added = np.split(originals, np.searchsorted(originals, [end]))
    returns = "test" in fractions and fractions.get("validation") == 0.0
    fractions |= {"validation": VALIDATION_FRACTION} if returns else {}
    parts_drawn = draw(Split({"index": originals}, train.labels[originals]), fractions, seed=seed)
    drawn = {name: part.features["index"] for name, part in parts_drawn.items()}
    if returns:
        drawn["train"] = np.append(drawn["train"], drawn.pop("validation"))
    in_train = np.append(drawn.pop("train"), added)
    indices = {name: np.flatnonzero(np.isin(first[:end], each)) for name, each in drawn.items()}
    indices["train"] = np.flatnonzero(np.isin(first, in_train))
    return splits | {name: train.select(each) for name, each in indices.items()}

"""What a dataset is: a few splits of features and labels, held in memory."""

import dataclasses

import numpy as np
import sklearn.model_selection
from absl import logging

from rank4class.data import sources


@dataclasses.dataclass(frozen=True)
class Split:
    """Examples that belong together.

    Attributes:
      features: name -> array; the first axis of each counts the examples.
      labels: int32 `[N]`, ids of classes; or float32 `[N, n]`, 1 for each class that an example has.
      origins: object `[N]`, where each example was read (`train.tsv:17`), or None.
    """

    features: dict
    labels: np.ndarray
    origins: np.ndarray | None = None

    def __len__(self):
        return len(self.labels)

    @property
    def multi_label(self):
        return self.labels.ndim == 2

    def select(self, places):
        """Returns the examples at some places: indices in the order wanted, or a mask.

        >>> split = Split({"text": np.array(["a", "b", "c"], object)}, np.array([0, 1, 0]))
        >>> split.select([2, 0]).features["text"].tolist()
        ['c', 'a']
        """
        features = {name: values[places] for name, values in self.features.items()}
        origins = None if self.origins is None else self.origins[places]
        return Split(features, self.labels[places], origins)

    def origin(self, i):
        """Returns what to call example `i` in a message."""
        return f"example {i}" if self.origins is None else str(self.origins[i])

    def class_counts(self, num_classes):
        """Returns the number of examples of each class, int64 `[n]`.

        >>> Split({}, np.array([2, 0, 2])).class_counts(4).tolist()
        [1, 0, 2, 0]
        """
        if self.multi_label:
            return self.labels.sum(axis=0).astype(np.int64)
        return np.bincount(self.labels, minlength=num_classes)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A classification problem.

    Attributes:
      class_names: the names of the classes, by id.
      splits: "train", "validation" and "test".
      skipped: a line for every row that was left out because it could not be used.
      files: path -> SHA-256 of what was read, where that is few files.

    Raises:
      ValueError: a split is empty, or holds a label outside the classes.
    """

    class_names: tuple
    splits: dict
    skipped: tuple = ()
    files: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name, split in self.splits.items():
            if not len(split):
                raise ValueError(f"the {name} split has no example")
            if not split.multi_label:
                self._check_ids(name, split)
        self._warn_of_untrained_classes()

    def _check_ids(self, name, split):
        outside = np.flatnonzero((split.labels < 0) | (split.labels >= len(self.class_names)))
        if len(outside):
            raise ValueError(
                f"{split.origin(outside[0])} of the {name} split has label {split.labels[outside[0]]}, "
                f"outside the classes 0..{len(self.class_names) - 1}"
            )

    def _warn_of_untrained_classes(self):
        counts = self.splits["train"].class_counts(len(self.class_names)) if "train" in self.splits else ()
        untrained = [name for name, count in zip(self.class_names, counts, strict=False) if not count]
        if untrained:
            logging.warning("no training example of: %s", sources.listed(untrained))


FEW = 3  # examples of a class that cannot be spread over three splits


def draw(split, shares, *, seed):
    """Draws disjoint splits from one, each class by the same shares.

    Classes of fewer than three examples stay in what is left.

    Args:
      split: a single-label `Split`.
      shares: name -> share of the examples, in (0, 1).
      seed: int.

    Returns:
      name -> `Split`, and what is left as "train".

    Raises:
      ValueError: there are too few examples for such a share, the message names `data.{name}_share`.

    >>> split = Split({}, np.repeat([0, 1], 50))
    >>> {name: part.labels.sum() for name, part in draw(split, {"test": 0.2}, seed=0).items()}
    {'test': 10, 'train': 40}
    """
    left, kept, places = np.arange(len(split)), [], {}
    least = FEW
    for name, share in shares.items():
        few = np.bincount(split.labels[left])[split.labels[left]] < least
        kept.append(left[few])
        left = left[~few]
        count = _checked_count(name, share, len(split), split.labels[left])
        left, places[name] = sklearn.model_selection.train_test_split(
            left, test_size=count, random_state=seed, stratify=split.labels[left]
        )
        least = 2  # one for the next split, one for training
    places["train"] = np.concatenate([left, *kept])
    return {name: split.select(np.sort(part)) for name, part in places.items()}


def _checked_count(name, share, total, labels):
    """Returns how many examples to draw for a split, of those with these labels."""
    count, classes = round(share * total), len(np.unique(labels))
    if not classes:
        raise ValueError(f"no class has examples enough for a {name} split, at least three: give the split")
    found = f"a {name} split of {share:.0%} of {total} examples is {count}, too"
    each = f"one of each of {classes} classes"
    if count < classes:
        raise ValueError(f"{found} few for {each}: raise data.{name}_share, or give the split")
    if len(labels) - count < classes:
        raise ValueError(
            f"{found} many to leave {each} for training: lower data.{name}_share, or give the split"
        )
    return count


def draw_together(split, first, shares, *, seed):
    """Draws splits as `draw` does, of the first of each example's copies; the others follow it.

    Args:
      split, shares, seed: see `draw`.
      first: int `[N]`, the place of the first copy of each example; its own where there is none.
    """
    originals = np.unique(first)
    parts = draw(Split({"place": originals}, split.labels[originals]), shares, seed=seed)
    return {name: split.select(np.isin(first, part.features["place"])) for name, part in parts.items()}

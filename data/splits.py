"""What a dataset is: a few splits of features and labels, held in memory."""

import dataclasses

import numpy as np
import sklearn.model_selection
from absl import logging


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
            more = f" and {len(untrained) - 10} more" if len(untrained) > 10 else ""
            logging.warning("no training example of: %s%s", ", ".join(untrained[:10]), more)


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
      ValueError: there are too few examples for such a share.

    >>> split = Split({}, np.repeat([0, 1], 50))
    >>> {name: part.labels.sum() for name, part in draw(split, {"test": 0.2}, seed=0).items()}
    {'test': 10, 'train': 40}
    """
    counts = np.bincount(split.labels)
    left = np.flatnonzero(counts[split.labels] >= FEW)
    rare = np.flatnonzero(counts[split.labels] < FEW)
    places = {}
    for name, share in shares.items():
        try:
            left, places[name] = sklearn.model_selection.train_test_split(
                left, test_size=round(share * len(split)), random_state=seed, stratify=split.labels[left]
            )
        except ValueError as error:
            raise ValueError(
                f"cannot draw {share:.0%} of {len(split)} examples of {np.count_nonzero(counts)} classes as "
                f"the {name} split, with each class in it: {error}"
            ) from error
    places["train"] = np.concatenate([left, rare])
    return {name: split.select(np.sort(part)) for name, part in places.items()}

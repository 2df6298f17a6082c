"""What a dataset is: a few splits of features and integer labels, held in memory."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Split:
    """Examples that belong together.

    Attributes:
      features: name -> array; the first axis of each counts the examples.
      labels: int32 `[N]`, ids of classes.
    """

    features: dict
    labels: np.ndarray

    def __len__(self):
        return len(self.labels)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A classification problem.

    Attributes:
      class_names: the names of the classes, by id.
      splits: "train", "validation" and "test".

    Raises:
      ValueError: a split is empty, or holds a label outside the classes.
    """

    class_names: tuple
    splits: dict

    def __post_init__(self):
        for name, split in self.splits.items():
            if not len(split):
                raise ValueError(f"the {name} split has no example")
            outside = np.flatnonzero((split.labels < 0) | (split.labels >= len(self.class_names)))
            if len(outside):
                raise ValueError(
                    f"example {outside[0]} of the {name} split has label {split.labels[outside[0]]}, "
                    f"outside the classes 0..{len(self.class_names) - 1}"
                )

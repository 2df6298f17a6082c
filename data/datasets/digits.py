"""The digits of scikit-learn."""

import numpy as np
import pandas as pd
import sklearn.datasets
import sklearn.model_selection

from rank4class import arguments
from rank4class.data.dataset import Dataset, Split
from rank4class.data.registry import DATASETS


@DATASETS.register("digits")
def digits(imbalance: float = 1.0) -> Dataset:
    """Handwritten digits of 8 x 8 pixels in `[0, 1]`, which scikit-learn contains.

    The split, 60/20/20 and stratified, is fixed.

    Args:
      imbalance: how many times more training examples the digit 0 has than the digit 9, at least 1. The
        others fall from one to the next by equal ratios, as in the long-tailed variants of CIFAR; validation
        and test keep theirs.

    Returns:
      A `Dataset` with the feature `image` float32 `[N, 8, 8, 1]`.

    >>> {name: len(split) for name, split in digits().splits.items()}
    {'train': 1078, 'validation': 359, 'test': 360}
    >>> np.bincount(digits(imbalance=50.0).splits["train"].labels).tolist()
    [107, 71, 44, 30, 19, 12, 8, 5, 3, 2]

    References:
      Cui et al. (2019), "Class-balanced loss based on effective number of samples", for the long tail.
    """
    arguments.check_at_least(1, section="data.", imbalance=imbalance)
    bunch = sklearn.datasets.load_digits()
    images = (bunch.images / 16.0).astype(np.float32)[..., None]
    labels = bunch.target.astype(np.int32)
    train, rest = sklearn.model_selection.train_test_split(
        np.arange(len(labels)), test_size=0.4, random_state=0, stratify=labels
    )
    validation, test = sklearn.model_selection.train_test_split(
        rest, test_size=0.5, random_state=0, stratify=labels[rest]
    )
    kept = np.round(np.bincount(labels[train]) * imbalance ** (-np.arange(10) / 9)).clip(min=1)
    position = pd.Series(train).groupby(labels[train]).cumcount()  # among those of its class
    train = train[position < kept[labels[train]]]
    parts = {"train": train, "validation": validation, "test": test}
    splits = {name: Split({"image": images[part]}, labels[part]) for name, part in parts.items()}
    return Dataset(tuple(str(name) for name in bunch.target_names), splits)

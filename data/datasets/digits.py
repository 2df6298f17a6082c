"""The digits of scikit-learn."""

import numpy as np
import sklearn.datasets
import sklearn.model_selection

from rank4class.data.dataset import Dataset, Split
from rank4class.data.registry import DATASETS


@DATASETS.register("digits")
def digits() -> Dataset:
    """Handwritten digits of 8 x 8 pixels in `[0, 1]`, which scikit-learn contains.

    The split, 60/20/20 and stratified, is fixed.

    Returns:
      A `Dataset` with the feature `image` float32 `[N, 8, 8, 1]`.

    >>> {name: len(split) for name, split in digits().splits.items()}
    {'train': 1078, 'validation': 359, 'test': 360}
    """
    bunch = sklearn.datasets.load_digits()
    images = (bunch.images / 16.0).astype(np.float32)[..., None]
    labels = bunch.target.astype(np.int32)
    train, rest = sklearn.model_selection.train_test_split(
        np.arange(len(labels)), test_size=0.4, random_state=0, stratify=labels
    )
    validation, test = sklearn.model_selection.train_test_split(
        rest, test_size=0.5, random_state=0, stratify=labels[rest]
    )
    parts = {"train": train, "validation": validation, "test": test}
    splits = {name: Split({"image": images[part]}, labels[part]) for name, part in parts.items()}
    return Dataset(tuple(str(name) for name in bunch.target_names), splits)

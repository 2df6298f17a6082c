"""Splits: what does not fit the classes is refused."""

import numpy as np
import pytest

from rank4class import data


def test_labels_outside_the_classes_are_refused():
    split = data.Split({"image": np.zeros([3, 1])}, np.array([0, 2, 1]))
    with pytest.raises(
        ValueError, match=r"example 1 of the test split has label 2, outside the classes 0\.\.1"
    ):
        data.Dataset(("a", "b"), {"test": split})

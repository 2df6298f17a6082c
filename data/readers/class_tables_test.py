"""Descriptions and weights of classes: order, balance, and errors for invalid files."""

import numpy as np
import pytest
import sklearn.utils.class_weight

from rank4class import data


def test_descriptions_are_in_class_order(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("anger\twhat an enemy brings\njoy\ta bright feeling\n")
    assert data.class_descriptions(path, ("joy", "anger")) == ["a bright feeling", "what an enemy brings"]


def test_invalid_descriptions(tmp_path):
    for content, message in (
        ("joy\n", r"texts\.tsv:1: not a class name, a tab and a description"),
        ("joy\t \n", r"texts\.tsv:1: not a class name, a tab and a description"),
        ("joy\tbright\nhate\tdark\n", r"texts\.tsv:2: unknown class 'hate'\. The classes are joy, anger"),
        ("joy\tbright\njoy\tlight\n", r"texts\.tsv:2: class 'joy' is repeated"),
        ("joy\tbright\n", r"texts\.tsv: no description of anger"),
        ("", r"texts\.tsv: the file is empty"),
    ):
        path = tmp_path / "texts.tsv"
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            data.class_descriptions(str(path), ("joy", "anger"))


def test_weights(tmp_path):
    path = tmp_path / "weights.tsv"
    path.write_text("anger\t2\njoy\t0.5\n")
    weights = data.class_weights(str(path), ("joy", "anger"))
    assert weights.dtype == np.float32
    assert weights.tolist() == [0.5, 2.0]


@pytest.mark.parametrize("weight", ["much", "-1", "nan", "inf", "1e999", "1e300", "0"])
def test_invalid_weights(tmp_path, weight):
    path = tmp_path / "weights.tsv"
    path.write_text(f"joy\t1e-60\nanger\t{weight}\n")
    message = ": no weight above 0. Raise one" if weight == "0" else f":2: weight {weight!r} is not a number"
    with pytest.raises(ValueError, match=f"weights.tsv{message}"):
        data.class_weights(str(path), ("joy", "anger"))


def test_messages_with_many_classes(tmp_path):
    path = tmp_path / "texts.tsv"
    names = (*(f"name {i}" for i in range(5000)), "other")
    for content, message in (
        ("othre\tx\n", "unknown class 'othre'. Did you mean 'other'. .* name 0, .*, name 9 and 4991 more.$"),
        ("name 0\tx\n", "no description of name 1, .*, name 10 and 4990 more. Add a line for each.$"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            data.class_descriptions(str(path), names)


def test_balanced_weights_match_scikit_learn():
    labels = np.repeat([0, 1, 2], [50, 7, 3])
    expected = sklearn.utils.class_weight.compute_class_weight("balanced", classes=np.arange(3), y=labels)
    np.testing.assert_allclose(data.balanced_class_weights(np.bincount(labels)), expected, rtol=1e-6)

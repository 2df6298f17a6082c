"""Descriptions of the classes: in the classes' order, and one clear line for every broken file."""

import pytest

from rank4class import data


def test_descriptions_come_in_the_order_of_the_classes(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("anger\twhat an enemy brings\njoy\ta bright feeling\n")
    assert data.class_descriptions(str(path), ("joy", "anger")) == [
        "a bright feeling",
        "what an enemy brings",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("joy\n", r"texts\.tsv:1 is not a class name, a tab and a description"),
        ("joy\t \n", r"texts\.tsv:1 is not a class name, a tab and a description"),
        ("joy\tbright\nhate\tdark\n", r"texts\.tsv:2 describes 'hate', which is none of joy, anger"),
        ("joy\tbright\njoy\tlight\n", r"texts\.tsv:2 describes 'joy' again"),
        ("joy\tbright\n", r"texts\.tsv has no description of anger"),
        ("", r"texts\.tsv is empty"),
    ],
)
def test_a_broken_file(tmp_path, content, message):
    path = tmp_path / "texts.tsv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        data.class_descriptions(str(path), ("joy", "anger"))

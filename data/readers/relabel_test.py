"""Corrected labels: the lines of other rows stay as they are, to the byte."""

import gzip

import pytest

from rank4class.data.readers import relabel
from rank4class.data.readers.columns import Columns

COLUMNS = Columns(text_column="text", label_column="label")
FILES = {  # name -> content, number of a row, its label, and the content after its correction to "tea"
    "a.csv": (
        '\ufeff"text",label,id\r\n"one, ""two""\r\nthree", ham ,1\r\n\r\nfour,"ham",02\r\n',
        2,
        "ham",
        '\ufeff"text",label,id\r\n"one, ""two""\r\nthree",tea,1\r\n\r\nfour,"ham",02\r\n',
    ),
    "a.tsv": ('label\ttext\nham\t"a" word\nham\tb"', 3, "ham", 'label\ttext\nham\t"a" word\ntea\tb"'),
    "quoted.tsv": (
        'label\ttext\n"ham"\t"a ""b""\nc"\nham\td\n',
        4,
        "ham",
        'label\ttext\n"ham"\t"a ""b""\nc"\ntea\td\n',
    ),
    "a.jsonl": (
        '{"text": "é", "label": "ham", "n": [1]}\n{"text": "b",  "label": "ham"}\n',
        1,
        "ham",
        '{"text": "é", "label": "tea", "n": [1]}\n{"text": "b",  "label": "ham"}\n',
    ),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_only_the_label_of_a_row_changes(tmp_path, name, ending):
    content, number, old, expected = FILES[name]
    path = tmp_path / f"{name}{ending}"
    path.write_bytes(gzip.compress(content.encode()) if ending else content.encode())
    assert relabel.corrected(str(path), COLUMNS, {number: (old, "tea")}) == expected


def test_labels_by_position_and_whole_numbers(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("one\tx\ntwo\ty\n")
    columns = Columns(text_column="1", label_column="2")
    assert relabel.corrected(str(path), columns, {1: ("x", "y"), 2: ("y", "x")}) == "one\ty\ntwo\tx\n"
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "label": 3}\n')
    assert relabel.corrected(str(path), COLUMNS, {1: ("3", "4")}) == '{"text": "a", "label": 4}\n'


def test_errors_of_a_changed_file_and_of_other_formats(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\none,eggs\n")
    with pytest.raises(ValueError, match="a.csv:2: label 'eggs', but 'ham' when it was checked. Check"):
        relabel.corrected(str(path), COLUMNS, {2: ("ham", "tea")})
    with pytest.raises(ValueError, match="a.csv:9: no such line any more. Check the labels of this"):
        relabel.corrected(str(path), COLUMNS, {9: ("ham", "tea")})
    with pytest.raises(ValueError, match="a.parquet: unknown format. Give a file that ends in .tsv, .csv,"):
        relabel.corrected("a.parquet", COLUMNS, {})

"""What files of users hold: kinds of inputs, columns and separators, and files that are not clear."""

import json

import numpy as np
import pandas as pd
import pytest

from rank4class import data
from rank4class.data.readers.recognize import recognize

INTENTS = ["card arrival", "lost card", "top up"]
TEXTS = [f"where is my card number {i}" for i in range(12)]
REPEATED = INTENTS * 4
IDS = list(range(12))
SEVERAL = ["Drama", "Comedy|Drama", "Comedy", "Drama|War", "War", "Comedy|War"] * 2


@pytest.mark.parametrize(
    ("columns", "inputs", "options"),
    [
        ({"text": TEXTS, "label": REPEATED}, "text", {"text_column": "text", "label_column": "label"}),
        (
            {"id": IDS, "Message": TEXTS, "Intent": REPEATED},
            "text",
            {"text_column": "Message", "label_column": "Intent"},
        ),
        ({"a": REPEATED, "b": TEXTS}, "text", {"text_column": "b", "label_column": "a"}),
        # The other columns stand beside the texts, but for names that hardly repeat.
        (
            {"cost": [5, 3] * 6, "w": [*"abcdefghijkl"], "text": TEXTS, "a": [*"xy"] * 6, "tag": REPEATED},
            "text",
            {"text_column": "text", "feature_columns": ("cost", "a"), "label_column": "tag"},
        ),
        (
            {"title": ["Heat"] * 12, "genres": SEVERAL},
            "text",
            {"text_column": "title", "label_column": "genres", "label_separator": "|"},
        ),
        # A usual name decides between columns that are alike; "text" and "label" decide among usual names.
        (
            {"text": TEXTS, "title": TEXTS, "label": REPEATED, "class": REPEATED},
            "text",
            {"text_column": "text", "label_column": "label"},
        ),
        (
            {"file": [f"{i}.PNG" for i in IDS], "y": REPEATED},
            "image",
            {"image_column": "file", "label_column": "y"},
        ),
        ({"length": IDS, "width": IDS, "species": REPEATED}, "vector", {"label_column": "species"}),
        ({"length": IDS, "target": [0, 1] * 6}, "vector", {"label_column": "target"}),
        # A comma within names separates none.
        (
            {"text": TEXTS, "label": ["Paris, France", "Rome, Italy", "Oslo"] * 4},
            "text",
            {"text_column": "text", "label_column": "label"},
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_columns_are_recognized(tmp_path, columns, inputs, options, ending):
    path = str(tmp_path / f"data.{ending}")
    frame = pd.DataFrame(columns)
    if ending == "parquet":
        frame.to_parquet(path)
    elif ending == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, sep={"csv": ",", "tsv": "\t"}[ending])
    found = recognize(path, {})
    assert (found.inputs, found.dataset, found.options) == (inputs, "table", options)
    assert all(f"--config.data.{name}" in str(found) for name in options)


def test_columns_that_do_not_stand_beside_texts(tmp_path):
    """Other names of the labels, those that another split lacks or some rows, and those that are given."""
    sizes = [1, 2, 2] * 4
    frame = pd.DataFrame(
        {"text": TEXTS, "label": REPEATED, "size": sizes, "name_of_it": REPEATED, "b": sizes}
    )
    (tmp_path / "data").mkdir()
    frame.to_csv(tmp_path / "data" / "train.csv", index=False)
    frame.drop(columns="b").to_csv(tmp_path / "data" / "test.csv", index=False)
    path = str(tmp_path / "data")
    assert recognize(path, {}).options["feature_columns"] == ("size",)
    assert "feature_columns" not in recognize(path, {"text_pair_column": "size"}).options
    rows = [
        {"text": text, "label": REPEATED[i], **({"size": i} if i else {})} for i, text in enumerate(TEXTS)
    ]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert "feature_columns" not in recognize(str(tmp_path / "data.jsonl"), {}).options


def test_lists_are_several_labels(tmp_path):
    path = tmp_path / "data.jsonl"
    rows = [{"body": text, "about": ["a", "b"][: 1 + i % 2]} for i, text in enumerate(TEXTS)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert recognize(str(path), {}).options == {"text_column": "body", "label_column": "about"}


def test_folders_and_arrays(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        (tmp_path / "split" / "train" / name).mkdir(parents=True)
        for folder in (tmp_path / "pets", tmp_path / "split" / "train"):
            (folder / name / "1.jpg").write_bytes(b"")
    for folder in ("pets", "split"):
        found = recognize(str(tmp_path / folder), {})
        assert (found.inputs, found.dataset, found.options) == ("image", "image_folder", {})
    (tmp_path / "texts").mkdir()
    for name in ("train", "test"):
        pd.DataFrame({"q": TEXTS, "y": REPEATED}).to_csv(tmp_path / "texts" / f"{name}.csv", index=False)
    assert recognize(str(tmp_path / "texts"), {}).options == {"text_column": "q", "label_column": "y"}
    np.savez(tmp_path / "data.npz", x=np.zeros([3, 2], np.float32), y=np.arange(3))
    assert recognize(str(tmp_path / "data.npz"), {})[:2] == ("vector", "table")


def test_given_columns_are_not_chosen(tmp_path):
    path = str(tmp_path / "data.csv")
    pd.DataFrame({"x": TEXTS, "z": TEXTS, "a": REPEATED, "b": REPEATED}).to_csv(path, index=False)
    assert recognize(path, {"text_column": "z", "label_column": "b"}).options == {}
    with pytest.raises(
        ValueError, match="a, b may each be the label. Choose with --config.data.label_column"
    ):
        recognize(path, {"text_column": "z"})
    with pytest.raises(ValueError, match="x, z may each be the text. Choose with --config.data.text_column"):
        recognize(path, {"label_column": "a"})


def test_files_without_labels(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("text;label\nwhere is it;a\n")
    with pytest.raises(ValueError, match="no column of labels is recognized.*separated by ';'"):
        recognize(str(path), {})
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no train.tsv or"):
        recognize(str(tmp_path / "empty"), {})
    with pytest.raises(FileNotFoundError, match="nowhere: no such file or folder"):
        recognize(str(tmp_path / "nowhere"), {})


def test_a_file_without_a_header_line(tmp_path):
    rows = [f"{i},{text},{name}" for i, text, name in zip(IDS, TEXTS, REPEATED, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(rows))
    found = recognize(str(tmp_path / "data.csv"), {})
    assert found.options == {"text_column": "2", "label_column": "3"}
    assert found.rows == len(rows)
    dataset = data.get("table", path=str(tmp_path / "data.csv"), **found.options)
    assert sum(map(len, dataset.splits.values())) == len(rows)


def test_a_header_line_of_usual_names_is_no_row(tmp_path):
    rows = [f"{text},{name}" for text, name in zip([*TEXTS[:-1], "text"], REPEATED, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["text,label", *rows]))
    assert recognize(str(tmp_path / "data.csv"), {}).options == {
        "text_column": "text",
        "label_column": "label",
    }

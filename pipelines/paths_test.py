"""Datasets, tables of classes and encoders accept strings and `pathlib.Path`."""

import pytest
import tensorflow as tf

from rank4class import data, models
from rank4class.data.readers import class_tables
from rank4class.models import checkpoints
from rank4class.pipelines.task_data import hashing


def test_datasets(tmp_path):
    """`data.get` makes strings of the paths of all datasets."""
    rows = "".join(f"text {i}\t{'ab'[i % 2]}\n" for i in range(60))
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + rows)
    (tmp_path / "classes").write_text("a\nb\n")
    dataset = data.get("text_file", path=tmp_path, classes=tmp_path / "classes")
    again = data.get("text_file", path=tmp_path, classes=tmp_path / "classes")
    hashes = [hashing.data_hashes(each.class_names, each.splits) for each in (dataset, again)]
    assert hashes[0] == hashes[1]
    assert all(isinstance(path, str) for path in dataset.files)


def test_tables_of_classes(tmp_path):
    (tmp_path / "names").write_text("a\nb\n")
    (tmp_path / "weights").write_text("a\t1\nb\t2\n")
    assert list(class_tables.class_names(tmp_path / "names")) == ["a", "b"]
    assert data.class_weights(tmp_path / "weights", ("a", "b")).tolist() == [1.0, 2.0]
    assert data.class_descriptions(tmp_path / "weights", ("a", "b")) == ["1", "2"]


@pytest.mark.nightly
def test_encoders_and_their_checkpoints(tmp_path, tiny_bert):
    folder = tmp_path / "encoder"
    assert str(folder) == tiny_bert
    for path in (folder, folder / "config.json", folder / "model.safetensors"):
        assert checkpoints.find(path).path == str(folder / "model.safetensors")
        assert checkpoints.find(path).encoder == "bert"
        assert checkpoints.find(path).folder == tiny_bert
    assert models.get("encoder", "bert", path=folder).width == 8
    assert data.TOKENIZERS["WordPiece"].from_folder(folder, 8)({"text": tf.constant(["bad"])})[
        "input_word_ids"
    ].shape == [
        1,
        8,
    ]
    with pytest.raises(FileNotFoundError, match=f"^{tmp_path}/nowhere: no such file"):
        checkpoints.find(tmp_path / "nowhere")

"""Datasets, tables of classes and encoders accept strings and `pathlib.Path`."""

import pytest
import tensorflow as tf

from rank4class import data, models
from rank4class.data.readers import class_tables
from rank4class.models import checkpoints
from rank4class.pipelines import tpu_test
from rank4class.pipelines.task import hashing


def write_mind(path):
    (path / "MINDlarge_train").mkdir()
    rows = [f"N{i}\tcat{i % 3}\tsub\ttitle {i}\tabstract\turl\t[]\t[]\n" for i in range(60)]
    (path / "MINDlarge_train" / "news.tsv").write_text("".join(rows))
    return path


def write_text_file(path):
    (path / "train.tsv").write_text(
        "text\tlabel\n" + "".join(f"text {i}\t{'ab'[i % 2]}\n" for i in range(60))
    )
    return path


def write_xmc(path):
    for name in ("train.txt", "test.txt"):
        (path / name).write_text("20 4 3\n" + "".join(f"{i % 3} {i % 4}:0.5\n" for i in range(20)))
    return path


WRITERS = {
    **tpu_test.WRITERS,
    "embedded_digits": tpu_test.write_mnist,
    "mind": write_mind,
    "text_file": write_text_file,
    "table": write_text_file,
    "xmc": write_xmc,
}


def equal_datasets(first, second):
    """Returns whether two datasets hold equal classes and examples."""
    hashes = [hashing.data_hashes(each.class_names, each.splits) for each in (first, second)]
    return hashes[0] == hashes[1]


def test_writers_of_all_datasets_of_files():
    assert set(WRITERS) == {name for name in data.DATASETS if "path" in data.DATASETS.options(name)}


@pytest.mark.parametrize("name", WRITERS)
def test_datasets(tmp_path, name):
    (tmp_path / "data").mkdir()
    folder = WRITERS[name](tmp_path / "data")
    options = {"num_examples": 100} if name == "embedded_digits" else {}
    if "tfds_dir" in data.DATASETS.options(name):
        options["tfds_dir"] = tmp_path / "tfds"
    if "classes" in data.DATASETS.options(name):
        (tmp_path / "classes").write_text(
            "\n".join("ab" if name in ("text_file", "table") else tpu_test.CLASSES)
        )
        options["classes"] = tmp_path / "classes"
    dataset = data.get(name, path=folder, **options)
    assert equal_datasets(dataset, data.get(name, path=str(folder), **options))
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
    assert data.WordPiece.from_folder(folder, 8)({"text": tf.constant(["bad"])})["input_word_ids"].shape == [
        1,
        8,
    ]
    with pytest.raises(FileNotFoundError, match=f"^{tmp_path}/nowhere: no such file"):
        checkpoints.find(tmp_path / "nowhere")

"""Every public function with a path argument accepts strings and `pathlib.Path`."""

import gzip
import pathlib
import struct

import numpy as np
import pytest
import tensorflow as tf

from rank4class import data, models
from rank4class.data.readers import class_tables
from rank4class.models import checkpoints, sorters
from rank4class.pipelines import config
from rank4class.pipelines.configs import digits_mlp
from rank4class.pipelines.evaluation import per_class, predictions
from rank4class.pipelines.reporting import dataset_report
from rank4class.pipelines.storage import files, run_directory
from rank4class.pipelines.sweep import grid, report
from rank4class.pipelines.sweep.grid_run import GridRun
from rank4class.pipelines.task import hashing, loading, rank_functions
from rank4class.pipelines.training import rank_training, sorter_training, trainable_rank_model
from rank4class.pipelines.training.sorter_config import SorterExperiment


def write_mind(path):
    (path / "MINDlarge_train").mkdir()
    rows = [f"N{i}\tcat{i % 3}\tsub\ttitle {i}\tabstract\turl\t[]\t[]\n" for i in range(60)]
    (path / "MINDlarge_train" / "news.tsv").write_text("".join(rows))


def write_movielens(path):
    rows = [f"{user},{(7 * user + 11 * i) % 130},4.0,9\n" for user in range(30) for i in range(20)]
    (path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "".join(rows))


def write_letor(path):
    for start, name in enumerate(("train", "vali", "test")):
        rows = [f"{(i + j) % 5} qid:{i} 1:{i} 2:{j}\n" for i in range(start, start + 5) for j in range(4)]
        (path / f"{name}.txt").write_text("".join(rows))


def write_goemotions(path):
    (path / "emotions.txt").write_text("joy\nanger\n")
    for name in ("train", "dev", "test"):
        (path / f"{name}.tsv").write_text("".join(f"text {i}\t{i % 2}\tid{name}{i}\n" for i in range(8)))


def write_text_file(path):
    (path / "train.tsv").write_text(
        "text\tlabel\n" + "".join(f"text {i}\t{'ab'[i % 2]}\n" for i in range(60))
    )


def write_image_folder(path, splits=("train",), ending="png"):
    encode = {"png": tf.io.encode_png, "JPEG": tf.io.encode_jpeg}[ending]
    for split in splits:
        for name in ("n1", "n2"):
            (path / split / name).mkdir(parents=True)
            for i in range(20):
                image = np.full([4, 4, 3], 10 * i, np.uint8)
                (path / split / name / f"{name}{split}{i}.{ending}").write_bytes(encode(image).numpy())


def write_cifar10(path):
    record = bytes(range(256)) * 12
    for name in ("data_batch_1", "test_batch"):
        records = b"".join(bytes([i % 10]) + bytes([i]) + record[1:] for i in range(200))
        (path / f"{name}.bin").write_bytes(records)
    (path / "batches.meta.txt").write_text("".join(f"class{i}\n" for i in range(10)))


def write_mnist(path):
    for part, count in (("train", 200), ("t10k", 100)):
        pixels = np.arange(count * 28 * 28).astype(np.uint8).tobytes()
        images = struct.pack(">IIII", 2051, count, 28, 28) + pixels
        labels = struct.pack(">II", 2049, count) + bytes(i % 10 for i in range(count))
        (path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


WRITERS = {
    "mnist": write_mnist,
    "embedded_digits": write_mnist,
    "cifar10": write_cifar10,
    "imagenet": lambda path: write_image_folder(path, ("train", "val"), "JPEG"),
    "image_folder": write_image_folder,
    "goemotions": write_goemotions,
    "mind": write_mind,
    "movielens": write_movielens,
    "letor": write_letor,
    "text_file": write_text_file,
}


def equal_datasets(first, second):
    """Returns whether two datasets hold the equal_datasets classes and examples."""
    return hashing.data_hashes(first.class_names, first.splits) == hashing.data_hashes(
        second.class_names, second.splits
    )


def test_writers_of_all_datasets_of_files():
    assert set(WRITERS) == {name for name in data.DATASETS if "path" in data.DATASETS.options(name)}


@pytest.mark.parametrize("name", WRITERS)
def test_datasets(tmp_path, name):
    folder = tmp_path / "data"
    folder.mkdir()
    WRITERS[name](folder)
    options = {"num_examples": 100} if name == "embedded_digits" else {}
    if "tfds_dir" in data.DATASETS.options(name):
        options["tfds_dir"] = tmp_path / "tfds"
    if "classes" in data.DATASETS.options(name):
        (tmp_path / "classes").write_text("n1\nn2\n" if name == "image_folder" else "a\nb\n")
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


def small(**changes):
    return config.override(digits_mlp.get_config(), {"epochs": 1.0, "encoder.hidden": (4,), **changes})


@pytest.mark.nightly
def test_training_and_evaluation(tmp_path):
    path = tmp_path / "run"
    results = rank_training.train(small(), path, progress=False)
    assert rank_training.train(small(), str(path), progress=False) == results
    restored = rank_training.restore(path)
    experiment, loaded, model = restored.experiment, restored.load_task(), restored.model
    assert run_directory.RunDirectory(path).results() == results
    runs = [GridRun(experiment, str(path), results=results)]
    assert report.write_grid(runs, tmp_path) == str(tmp_path / "report.md")
    evaluated = trainable_rank_model.build_evaluators(experiment, loaded, model)["test"](
        loaded.read("test", experiment.evaluation_batch_size), keep_scores=True
    )
    files.make_writable(tmp_path / "test")
    names = loaded.class_names
    table = per_class.per_class(evaluated, loaded.splits["test"].labels, names)
    predictions.write(tmp_path / "test", {}, table, evaluated, loaded.splits["test"], names)
    assert predictions.read(tmp_path / "test" / "predictions.npz").class_names.tolist() == list(names)


@pytest.mark.nightly
def test_sweep(tmp_path):
    [run] = grid.run_grid(small(), tmp_path, losses=["mse"], interactions=["dot"], seeds=[0])
    assert run.path == str(tmp_path / "mse-dot-seed0")


@pytest.mark.nightly
def test_frozen_encoder(tmp_path, tiny_goemotions, tiny_bert, monkeypatch):
    monkeypatch.setenv("RANK4CLASS_CACHE", "off")
    experiment = config.Experiment(
        data=config.Data(name="goemotions", path=str(tiny_goemotions), max_length=8, multi_label=True),
        encoder=config.Encoder(name="bert", path=tiny_bert, frozen=True),
    )
    assert "embedding" in rank_training.load_data(experiment, tmp_path / "cache").splits["train"].features
    assert len(list((tmp_path / "cache").glob("features-*"))) == 1


@pytest.mark.nightly
def test_sorter_training(tmp_path, monkeypatch):
    monkeypatch.setattr(sorter_training, "EPOCH", 100)
    monkeypatch.setattr(sorter_training.score_vectors, "HELD_OUT", {"validation": 5, "test": 5})
    experiment = SorterExperiment(sizes=(4,), move=1.0, epochs=1.0, batch_size=50)
    results = sorter_training.train(experiment, tmp_path / "sorter", progress=False)
    assert sorter_training.train(experiment, tmp_path / "sorter") == results
    weights = tmp_path / "sorter" / "sorter.safetensors"
    assert sorters.get("equivariant", trained=weights)([[1.0, 2.0]]).shape == [1, 2]
    assert rank_functions.get("equivariant", 4, weights)(tf.constant([[1.0, 2.0]])).shape == [1, 2]


@pytest.mark.nightly
def test_dataset_description(tmp_path):
    experiment = small()
    described = dataset_report.Report(experiment, loading.read_dataset(experiment.data))
    assert described.write(tmp_path) == str(tmp_path / "data.md")


def test_invalid_paths_are_refused(tmp_path):
    for path in ("", pathlib.Path("x[1]")):
        with pytest.raises(ValueError, match="--workdir='': empty|is a glob character"):
            rank_training.train(small(), path)
    with pytest.raises(ValueError, match="data.path=PosixPath.'x'.: expected str. Write 'x'."):
        rank_training.train(small(**{"data.name": "mnist", "data.path": pathlib.Path("x")}), tmp_path)

"""Every public function with a path argument accepts strings and `pathlib.Path`."""

import pathlib

import pytest
import tensorflow as tf

from rank4class import data, models
from rank4class.data.readers import class_tables
from rank4class.models import checkpoints, sorters
from rank4class.pipelines import config, tpu_test
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
    return path


def write_text_file(path):
    (path / "train.tsv").write_text(
        "text\tlabel\n" + "".join(f"text {i}\t{'ab'[i % 2]}\n" for i in range(60))
    )
    return path


WRITERS = {
    **tpu_test.WRITERS,
    "embedded_digits": tpu_test.write_mnist,
    "mind": write_mind,
    "text_file": write_text_file,
    "table": write_text_file,
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

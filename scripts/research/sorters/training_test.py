"""Training a sorter: its files, its results, and resumes to the same bits."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from rank4class.models import sorters
from rank4class.pipelines import config
from rank4class.pipelines.storage import run_directory
from rank4class.pipelines.storage.run_directory import RunDirectory
from rank4class.pipelines.training.train_state import TrainState
from rank4class.scripts.research.sorters import training, training_config
from rank4class.scripts.research.sorters.training_config import SorterExperiment


def small(**changes):
    values = {"sorter": "equivariant", "sizes": (10,), "move": 1.0, "epochs": 0.02, "batch_size": 100}
    optimizer = config.Optimizer(learning_rate=0.05)
    return SorterExperiment(**{"optimizer": optimizer, **values, **changes})


@pytest.fixture(scope="module", autouse=True)
def _small():
    """Reduces the numbers of vectors and the sizes of networks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "EPOCH", 1_000)
        patch.setattr(training.score_vectors, "HELD_OUT", {"validation": 50, "test": 100})
        # Of n, filters, width, layers and trained.
        patch.setattr(sorters.Cnn.__init__, "__defaults__", (None, 24, 25, 3, None))
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Trains a sorter without interruption; returns its experiment, folder and results."""
    experiment = small(epochs=3.0, checkpoint_steps=3)
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    return experiment, path, training.train(experiment, str(path), progress=False)


def test_training_writes_its_files(undisturbed):
    experiment, path, results = undisturbed
    history = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in history] == [10, 20, 30]
    assert history[-1]["loss"] < history[0]["loss"]
    assert results["steps"] == 30
    again = sorters.get("equivariant", trained=str(path / "sorter.safetensors"))
    scores, ranks = training.score_vectors.held_out("test", 10)
    assert results["test"]["l1@10"] == pytest.approx(np.abs(again(scores) - ranks).mean(), rel=1e-4)
    low, high = results["test"]["intervals"]["l1@10"]
    assert low < results["test"]["l1@10"] < high
    assert training.train(experiment, str(path)) == results  # already finished


@pytest.mark.parametrize("sorter", sorters.LEARNED)
def test_defaults_of_the_command_are_valid(sorter):
    training_config.check(SorterExperiment(sorter=sorter, move=training_config.default_move(sorter)))
    assert training_config.LEARNED == sorters.LEARNED


@pytest.mark.nightly
def test_a_network_resumes_from_a_checkpoint_to_the_same_bits(tmp_path, monkeypatch, assert_same_run):
    optimizer = config.Optimizer(learning_rate=0.05, decay="cosine")
    steps = {"epochs": 0.1, "batch_size": 10, "checkpoint_steps": 3, "optimizer": optimizer}
    experiment = small(sorter="cnn", sizes=(4, 6), layers=2, **steps)
    save = TrainState.save

    def save_and_copy(state):
        save(state)
        if state.progress.step == 6:
            shutil.copytree(tmp_path / "undisturbed", tmp_path / "killed")

    with monkeypatch.context() as patch:
        patch.setattr(TrainState, "save", save_and_copy)
        training.train(experiment, str(tmp_path / "undisturbed"), progress=False)
    training.train(experiment, str(tmp_path / "killed"), progress=False)
    assert RunDirectory(str(tmp_path / "killed"), SorterExperiment).sessions()[-1]["from_step"] == 6
    assert_same_run(tmp_path / "undisturbed", tmp_path / "killed")


@pytest.mark.nightly
def test_replicas_equal_one_device(undisturbed, tmp_path, mirrored):
    experiment, _, one = undisturbed
    two = training.train(experiment, str(tmp_path / "two"), strategy=mirrored, progress=False)
    assert two["test"]["l1@10"] == pytest.approx(one["test"]["l1@10"], rel=1e-4)


@pytest.mark.parametrize("name", ["equivariant", "handcrafted"])
def test_extrapolation_from_value_and_gradient(name):
    sorter = sorters.get(name)
    rng = np.random.default_rng(0)
    scores, moves = rng.normal(size=[2, 5, 7]).astype(np.float32)
    result = training.extrapolate(sorter, tf.constant(scores), tf.constant(moves))
    step = 1e-3
    slope = (sorter(scores + step * moves) - sorter(scores - step * moves)) / (2 * step)
    np.testing.assert_allclose(result, sorter(scores) + slope, atol=5e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sorter": "handcrafted"}, "sorter='handcrafted': unknown. There are: cnn, lstm"),
        ({"sizes": (1,)}, r"sizes=1: not an integer in 2\.\.10000"),
        ({"sizes": (10, 10_001)}, r"sizes=10001: not an integer in 2\.\.10000"),
        ({"move": 0.0}, "move=0: sorter 'equivariant' needs a positive one, such as 1"),
        ({"move": -1.0}, "move=-1.0: too small"),
        ({"epochs": 0.0}, "epochs=0.0: not positive"),
        ({"batch_size": -1}, "batch_size=-1: not an integer in"),
        ({"layers": 2}, "layers: sorter 'equivariant' has no such option."),
        ({"sorter": "cnn", "layers": 0}, "layers=0: not an integer in"),
        ({"seed": -1}, r"seed=-1: not an integer in 0\.\.4294967295\. Choose one\."),
        (
            {"optimizer": config.Optimizer(learning_rate=0.0)},
            r"^optimizer\.learning_rate=0\.0: not positive\. Choose a positive number\.",
        ),
    ],
)
def test_errors(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        training.train(small(**changes), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_the_folder_of_another_sorter(undisturbed, tmp_path):
    experiment, trained, _ = undisturbed
    path = shutil.copytree(trained, tmp_path / "run")
    with pytest.raises(ValueError, match=r"holds another experiment \(move is 1.0 there and 2.0 here\)\."):
        training.train(dataclasses.replace(experiment, move=2.0), str(path))
    (path / "config.json").write_text('{"data": {}}')
    with pytest.raises(ValueError, match=r"config\.json: data: SorterExperiment has no such field\."):
        training.train(experiment, str(path))
    with pytest.raises(ValueError, match="--workdir='': empty"):
        training.train(experiment, "")
    (tmp_path / "sweep" / "mse-dot-seed0").mkdir(parents=True)
    for name in run_directory.RUN:
        shutil.copy(path / name, tmp_path / "sweep" / "mse-dot-seed0")
    with pytest.raises(ValueError, match="sweep: the folder holds a sweep. Choose another --workdir"):
        training.train(experiment, str(tmp_path / "sweep"))


def test_command_has_the_same_experiment():
    experiment = small(sizes=(10, 28), sorter="lstm", move=0.0)
    assert experiment.command == (
        "python -m rank4class.scripts.research.train_sorter --sorter=lstm --sizes=10,28 --learning_rate=0.05 "
        "--epochs=0.02 --batch_size=100"
    )


@pytest.mark.nightly
def test_diverging_sorters(tmp_path):
    experiment = small(optimizer=config.Optimizer(learning_rate=1e30), epochs=1.0)
    with pytest.raises(FloatingPointError, match="loss='l1': nan at step 2, .*the vectors of step 2"):
        training.train(experiment, str(tmp_path / "run"), progress=False)

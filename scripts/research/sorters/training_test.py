"""Training a sorter: its files, its results, and resumes to the same bits."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class.models import sorters
from rank4class.models.sorters import weights
from rank4class.pipelines import config
from rank4class.pipelines.storage.run_directory import read_json
from rank4class.scripts.research.sorters import accuracy, networks, score_vectors, training

SMALL = {"sizes": (10,), "move": 1.0, "epochs": 3, "batch_size": 100, "verbose": 0}


@pytest.fixture(scope="module", autouse=True)
def _small():
    """Reduces the numbers of vectors and the sizes of networks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "EPOCH", 1_000)
        patch.setattr(score_vectors, "HELD_OUT", {"validation": 50, "test": 100})
        patch.setattr(networks.Cnn.__init__, "__defaults__", (None, 3, None))  # of n, layers and trained
        yield


def train(path, sorter="equivariant", learning_rate=0.05, **changes):
    optimizer = config.Optimizer(learning_rate=learning_rate, decay="cosine")
    return training.train(path, sorter, optimizer, **{**SMALL, **changes})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Trains a sorter without interruption; returns its folder and results."""
    path = tmp_path_factory.mktemp("undisturbed")
    return path, train(path)


def test_training_writes_its_files(undisturbed):
    path, results = undisturbed
    again = sorters.get("equivariant", trained=str(path / "sorter.safetensors"))
    scores, ranks = score_vectors.held_out("test", 10)
    errors = np.abs(again(scores) - ranks).mean(axis=1)
    assert results["test"]["l1@10"] == pytest.approx(accuracy.summary(errors), rel=1e-4)
    untrained = sorters.get("equivariant", trained=None)
    assert errors.mean() < np.abs(untrained(scores) - ranks).mean()
    assert train(path) == results  # already finished
    with pytest.raises(ValueError, match=r"config\.json: of another training \(\)\. Choose another"):
        train(path, command="another")


@pytest.mark.parametrize(
    ("sorter", "changes"),
    [
        ("equivariant", {}),
        pytest.param("cnn", {"sizes": (4, 6), "move": 0.0, "batch_size": 10}, marks=pytest.mark.nightly),
    ],
)
def test_a_killed_training_resumes_to_the_same_bits(sorter, changes, undisturbed, tmp_path, monkeypatch):
    path, _ = undisturbed
    if changes:
        train(path := tmp_path / "undisturbed", sorter, **changes)
    save = tf.train.CheckpointManager.save

    def save_and_stop(manager):
        save(manager)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tf.train.CheckpointManager, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "killed", sorter, **changes)
    train(tmp_path / "killed", sorter, **changes)
    assert read_json(tmp_path / "killed" / "results.json") == read_json(path / "results.json")
    loaded = [weights.load(folder / "sorter.safetensors") for folder in (tmp_path / "killed", path)]
    (metadata, tensors), (expected_metadata, expected) = loaded
    assert metadata == expected_metadata
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, expected[name])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": (1,)}, r"sizes=1: not an integer in 2\.\.10000"),
        ({"move": 0.0}, "move=0: sorter 'equivariant' needs a positive one, such as 1"),
        (
            {"learning_rate": 0.0},
            r"^optimizer\.learning_rate=0\.0: not positive\. Choose a positive number\.",
        ),
    ],
)
def test_errors(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_diverging_sorters(tmp_path):
    with pytest.raises(FloatingPointError, match="loss='mae': not finite. Lower the learning rate"):
        train(tmp_path / "run", learning_rate=1e30, epochs=1)

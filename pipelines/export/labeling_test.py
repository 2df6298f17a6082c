"""The choice of inputs to label, on points in a plane, and from a table to the training with its rows."""

import numpy as np
import pandas as pd
import pytest
import scipy.special

import rank4class
from rank4class.pipelines import config, configs
from rank4class.pipelines.export import labeling, prediction


def test_chosen_inputs_are_uncertain_and_differ(rng):
    pairs = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]  # classes that a group of inputs is between
    logits = np.zeros([350, 6])
    for i, pair in enumerate(pairs):
        logits[50 * i : 50 * i + 50, pair] = 5.0
    logits[np.arange(250, 350), np.arange(100) % 6] = 20.0  # the others are sure
    p = scipy.special.softmax(logits + 0.1 * rng.normal(size=logits.shape), axis=1)
    chosen = labeling.choose_indices(p, 5)
    assert sorted(chosen // 50) == [0, 1, 2, 3, 4]
    p = np.concatenate([p, p[:250], p[50:250]])  # the first group is the smallest
    assert labeling.choose_indices(p, 5)[-1] % 350 < 50


def test_copies_are_chosen_after_all_others():
    p = np.array([[0.7, 0.3]] * 5 + [[0.4, 0.6], [0.1, 0.9]])
    chosen = labeling.choose_indices(p, 4).tolist()
    assert set(chosen) >= {5, 6}
    assert len(set(chosen)) == 4
    assert labeling.choose_indices(p, 99).tolist() == [5, 0, 1, 2, 3, 4, 6]


def test_several_classes_weigh_by_their_decisions():
    p = np.array([[0.5, 0.5, 0.5], [0.9, 0.9, 0.1], [0.6, 0.0, 1.0]])
    assert labeling.choose_indices(p, 3, several=True).tolist() == [0, 2, 1]
    assert labeling.choose_indices(p, 3).tolist() == [0, 1, 2]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labeling")
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=[300, 2]), columns=["x", "y"])
    frame["label"] = np.where(frame["x"] > 0.0, "right", "left")
    frame.to_csv(folder / "t.csv", index=False)
    changes = {"data.path": str(folder / "t.csv"), "encoder.name": "identity", "optimizer.name": "lbfgs"}
    experiment = config.override(configs.get_config("table_mlp"), changes)
    return rank4class.train(experiment, folder / "run", progress=False)


@pytest.mark.nightly
def test_a_file_to_label_is_a_file_to_train_on(run, rng, tmp_path):
    pool = pd.DataFrame(rng.normal(size=[200, 2]), columns=["x", "y"])
    pool["note"] = [f"n{i}" for i in range(200)]
    pool.to_csv(tmp_path / "pool.csv", index=False)
    count, _ = run.predict_file(tmp_path / "pool.csv", tmp_path / "chosen.csv", informative=5, k=1)
    assert count == 5
    chosen = pd.read_csv(tmp_path / "chosen.csv")
    assert list(chosen) == ["input", "x", "y", "note", "label", "class_1", "score_1", "probability_1"]
    assert chosen["label"].isna().all()
    rows = [int(place.rpartition(":")[2]) - 2 for place in chosen["input"]]
    assert chosen["note"].tolist() == pool["note"][rows].tolist()
    assert chosen["x"].abs().median() < 0.5 * pool["x"].abs().median()  # near the boundary
    chosen["label"] = np.where(chosen["x"] > 0.0, "right", "left")
    chosen.to_csv(tmp_path / "chosen.csv", index=False)
    changes = {"data.added": str(tmp_path / "chosen.csv")}
    again = rank4class.train(config.override(run.experiment, changes), tmp_path / "run", progress=False)
    assert again.results["train_examples"] == run.results["train_examples"] + 5
    assert again.results["test"]["examples"] == run.results["test"]["examples"]


@pytest.mark.nightly
def test_errors(run, tmp_path):
    path = run.experiment.data.path
    for options, message in (
        ({"informative": 0}, "informative=0: not an integer of at least 1"),
        ({"informative": 5, "coverage": 0.9}, "informative=5: takes no coverage and no lists of items"),
    ):
        with pytest.raises(ValueError, match=message):
            run.predict_file(path, tmp_path / "p.csv", **options)
    plain = prediction.Prediction("t.csv:2", {"classes": ["left"], "scores": np.ones(1)})
    with pytest.raises(ValueError, match="informative=5: the model has no probabilities. Train with"):
        labeling.choose([plain], ["left"], False, 5, 1)

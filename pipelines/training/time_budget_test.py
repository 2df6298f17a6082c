"""Budgets of minutes, by a clock that each look moves on."""

import itertools
import json

import numpy as np
import pytest

from rank4class import data
from rank4class.pipelines import config, distribution
from rank4class.pipelines.task_data import loading
from rank4class.pipelines.training import rank_training, time_budget

pytestmark = pytest.mark.usefixtures("names_of_a_new_process")


@pytest.fixture
def clock(monkeypatch):
    """Each look at the clock of budgets takes a second."""
    times = itertools.count(1000.0)
    monkeypatch.setattr(time_budget.time, "monotonic", lambda: next(times))


@pytest.fixture
def dataset(rng):
    y = np.arange(200, dtype=np.int32) % 4
    x = (rng.normal(size=[200, 4]) + 2.0 * np.eye(4)[y]).astype(np.float32)
    rows = {"train": np.s_[:100], "validation": np.s_[100:150], "test": np.s_[150:]}
    splits = {name: data.Split({"embedding": x[each]}, y[each]) for name, each in rows.items()}
    return data.Dataset(("a", "b", "c", "d"), splits)


def experiment_of(**changes):
    experiment = config.Experiment(
        data=config.Data("memory"),
        encoder=config.Encoder("identity"),
        class_encoder=config.ClassEncoder("embedding", init="probe"),
        optimizer=config.Optimizer("sgd", learning_rate=0.01),
        metrics=("mrr",),
        monitor="mrr",
        batch_size=10,
        calibration="none",
    )
    return config.override(experiment, changes)


def test_the_planned_steps(tmp_path, dataset, clock):
    task_data = loading.load_data(experiment_of(), tmp_path, dataset=dataset, progress=False)
    budget = time_budget.Budget(str(tmp_path / "run"), 2.0, 1000.0)
    assert budget.trial == pytest.approx(0.04 * 120)
    # Kept are 5% of 120 s, and three evaluations of as many examples as validation has: 6 + 1 + 2 * 1.
    # An epoch has 10 steps of 2 s and an evaluation of 1 s. The first look at the clock takes no second.
    budget.plan(experiment_of(), task_data, time_budget.Speed(2.0, 1.0))
    assert budget.steps == int(0.9 * (120 - 9) / 21 * 10) == 47
    assert budget.left == 120 - 9 - 2
    stored = json.loads((tmp_path / "run" / "budget.json").read_text())
    assert stored == {"seconds": 1.0, "steps": 47, "reserved": 9.0}
    again = time_budget.Budget(str(tmp_path / "run"), 2.0, 1003.0)
    assert (again.steps, again.left) == (47, 120 - 9 - 1)

    for seconds, start, steps in ((0.01, "probe", 100), (200.0, "probe", 0), (200.0, "random", 1)):
        budget.plan(
            experiment_of(**{"class_encoder.init": start}), task_data, time_budget.Speed(seconds, 0.0)
        )
        assert budget.steps == steps  # at most ten epochs; at least a step if nothing is solved


@pytest.mark.nightly
def test_a_training_ends_at_its_time_and_is_not_longer_when_it_is_resumed(tmp_path, dataset, clock):
    experiment = experiment_of(minutes=1.0, epochs=50.0)
    run = tmp_path / "run"
    results = rank_training.train(experiment, run, dataset=dataset, progress=False)
    stored = json.loads((run / "budget.json").read_text())
    assert 0 < results["steps"] < stored["steps"]
    history = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert (history[0], history[-1]) == (0, results["steps"])
    assert not (run / "starts" / "trial").exists()

    (run / "results.json").unlink()  # as after a kill in the final evaluations
    resumed = rank_training.train(experiment, run, dataset=dataset, progress=False)
    assert resumed == results


@pytest.mark.nightly
def test_a_training_that_gets_worse_keeps_the_solved_head(tmp_path, dataset):
    solved = config.override(experiment_of(), {"class_encoder.init": "zeros", "optimizer.name": "lbfgs"})
    expected = rank_training.train(solved, tmp_path / "solved", dataset=dataset, progress=False)
    experiment = experiment_of(**{"optimizer.learning_rate": 1000.0})
    results = rank_training.train(experiment, tmp_path / "run", dataset=dataset, progress=False)
    assert (results["best_step"], results["steps"]) == (0, 10)
    assert results["test"]["mrr"] == expected["test"]["mrr"]


def test_what_takes_no_budget(tmp_path, dataset, caplog, monkeypatch):
    solved = config.override(experiment_of(), {"optimizer.name": "lbfgs", "class_encoder.init": "zeros"})
    solved = config.override(solved, {"minutes": 1.0})
    rank_training.train(solved, tmp_path / "run", dataset=dataset, progress=False)
    assert "minutes=1: a solved head takes its own time" in caplog.text
    monkeypatch.setattr(distribution, "has_several_workers", lambda strategy: True)
    with pytest.raises(ValueError, match="minutes=1: the clocks of several workers differ. Leave it out"):
        rank_training.train(experiment_of(minutes=1.0), tmp_path / "many", dataset=dataset)

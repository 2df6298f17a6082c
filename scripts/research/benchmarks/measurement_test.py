"""Rows, tables, and the processes that measure memory. The measured values are not tested."""

import dataclasses
import os

import pytest
import tensorflow as tf

from rank4class import progress
from rank4class.scripts.research.benchmarks import measurement, suite, suites

ROW = measurement.Row("losses", "mse", "64x28", False, 2.0, 3.0, "softmax_ce", 4.0, 2.0, 0.5)


def test_a_table():
    floor = dataclasses.replace(ROW, baseline="floor", ratio=2.0)
    xla = dataclasses.replace(ROW, name="softmax", xla=True, seconds=1.0, ratio=0.25)
    assert measurement.table([ROW, floor, xla]) == [
        ["name", "XLA", "ms", "x softmax_ce", "x floor", "peak MB", "memory x softmax_ce"],
        ["mse", "no", "2,000", "0.5", "2", "3", "1.5"],
        ["softmax", "yes", "1,000", "0.25", "-", "3", "1.5"],
    ]

    for changes, header, line in (
        ({"peak_mb": None}, "memory x softmax_ce", ["-", "-"]),
        ({"baseline_peak_mb": 0.9}, "memory x softmax_ce", ["3", "-"]),
        ({"others": {"error": 2e-16, "recall": 1.234}}, "recall", ["2e-16", "1.23"]),
    ):
        titles, cells = measurement.table([dataclasses.replace(ROW, **changes)])
        assert (titles[-1], cells[-2:]) == (header, line)


def test_errors_before_building(monkeypatch):
    monkeypatch.setattr(tf.random, "stateless_normal", lambda *_: pytest.fail("allocated"))
    for flags, message in (
        (["losses", []], "sizes: empty. Choose one such as 64x28."),
        (["losses", ["4x6", "5x1"]], "size='5x1': not of the form BATCHxCLASSES. Choose one such as 64x28."),
        (["losses", ["9" * 30 + "x2"]], "GB of memory. Choose a smaller size."),
        (["losses", ["4x6"], ["mes"]], "names='mes': not in suite 'losses'. It measures: approx_ndcg"),
    ):
        with pytest.raises(ValueError, match=message):
            next(measurement.run(*flags))


def test_rows_of_a_suite(monkeypatch):
    # The next tests cover the processes that measure memory.
    monkeypatch.setattr(measurement, "_measure_memory", lambda suite, size, steps: dict.fromkeys(steps))
    [[first, *others]] = measurement.run("n_choose_k", ["2x5x2"], ["log_z"])
    assert (first.name, first.size, first.baseline, first.xla) == ("log_z", "2x5x2", "softmax_ce", False)
    assert first.ratio == first.seconds / first.baseline_seconds
    assert first.others.keys() == {"error", "error fft", "error naive"}
    assert max(first.others.values()) < 1e-13
    assert {(each.baseline, each.xla) for each in (first, *others)} == {
        (baseline, xla) for baseline in ("softmax_ce", "fft", "naive") for xla in (False, True)
    }


def test_the_peak_memory_of_a_step():
    environment = dict(os.environ)
    [megabytes] = measurement._measure_memory("losses", (16, 100_000), [suite.Step("floor")]).values()
    assert dict(os.environ) == environment
    if megabytes is None:
        pytest.skip("only Linux reports it")
    assert megabytes == pytest.approx(2 * 16 * 100_000 * 4 / 2**20, rel=0.1)  # the scores and one gradient


def test_steps_alternate_and_slow_steps_have_fewer_repetitions(monkeypatch, capsys):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    calls = []
    steps = {name: lambda name=name: calls.append(name) for name in "ab"}
    assert set(measurement._measure_time(steps, min_repeats=3)) == {"a", "b"}
    assert calls.count("a") == calls.count("b") == 2 * (1 + measurement.MAX_REPEATS)
    total = 2 * measurement.MAX_REPEATS
    assert f"{total}/{total} " in capsys.readouterr().out.splitlines()[-1]
    assert measurement._repeats(measurement.LONG_STEP + 1, 3) == 0
    assert [measurement._repeats(1.0, minimum) for minimum in (3, 15)] == [3, 15]
    assert suites.get("training").min_repeats == 15

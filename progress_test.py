"""Progress of a loop: when a terminal and a log file get it, and what stays."""

import io

import pytest
import tqdm.std

from rank4class import progress
from rank4class.progress import Progress


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(tqdm.std, "time", clock)
    return clock


def take(shown, clock, seconds, count, size=1):
    """Runs a loop whose items take some seconds each."""
    for _ in shown.over(range(count), size):
        clock.now += seconds


def test_a_log_file_gets_a_line_a_minute_and_one_at_the_end(clock):
    file = io.StringIO()
    take(Progress("encoding", "example", 250, file=file), clock, 50.0, 3, size=100)  # the last are fewer
    # Items of 50 s: lines after 100 s and, at the end, after 150 s.
    first, last = file.getvalue().splitlines()
    assert "encoding:  80%" in first
    assert "200/250 [01:40<00:25,  2.00 examples/s]" in first
    assert "encoding: 100%" in last
    assert "250/250 [02:30<00:00" in last


def test_a_terminal_gets_two_states_a_second_and_they_disappear(clock):
    file = Terminal()
    loop = Progress("reading", "image", 100, file=file).over(range(100))
    for _ in range(6):
        next(loop)
        clock.now += 0.25
    assert [state.split(" [")[0][-5:] for state in file.getvalue().split("\r") if state] == ["2/100", "4/100"]
    loop.close()
    assert file.getvalue().split("\r")[-2].strip() == ""


def test_a_long_loop_leaves_its_last_state_on_a_terminal(clock):
    file = Terminal()
    take(Progress("reading", "image", file=file), clock, 40.0, 2)
    assert file.getvalue().endswith("reading: 2 images [01:20, 40.00s/ images]\n")


@pytest.mark.parametrize("file", [Terminal(), io.StringIO()])
def test_a_fast_loop_prints_nothing(clock, file):
    take(Progress("reading", "image", 4, file=file), clock, 0.1, 4)
    assert file.getvalue() == ""


def test_other_processes_show_no_moving_state(clock, monkeypatch):
    monkeypatch.setattr(progress.multiprocessing, "parent_process", object)
    file = Terminal()
    take(Progress("encoding", "example", 4, file=file), clock, 25.0, 2)
    assert file.getvalue() == ""


def test_a_resumed_loop_counts_from_its_start(clock):
    file = io.StringIO()
    shown = Progress("training", "step", 100, initial=90, file=file)
    clock.now += 100.0
    shown.update(5)
    assert "95/100 [01:40<01:40, 20.00s/ steps]" in file.getvalue()

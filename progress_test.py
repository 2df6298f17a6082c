"""The line on the progress of a loop: its text, and when a terminal and a log file get it."""

import io
import sys
import types

import pytest

from rank4class import progress
from rank4class.progress import Progress

ERASE = "\x1b[K"


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    return clock


def run(shown, clock, steps):
    """Counts one item after each of some seconds."""
    for seconds in steps:
        clock.now += seconds
        shown.add()


def test_a_training_line_has_step_epoch_speed_time_left_and_loss(clock):
    shown = Progress("", "step", 100_000, start=84_000, epochs=5.0, file=Terminal())
    clock.now += 10.0
    shown.add(151)
    line = shown.line(speed="1,234 examples/s", note="loss 1.2300")
    # 15,849 steps are left, and 15.1 were done a second.
    left = "17 min left"
    assert line == f"step 84,151 of 100,000 (epoch 4.2 of 5), 1,234 examples/s, {left}, loss 1.2300"


def test_a_loop_without_a_total_shows_no_time_left(clock):
    shown = Progress("predicting", "input")
    clock.now += 2.0
    shown.add(3000)
    assert shown.line() == "predicting: input 3,000, 1,500 inputs/s"


def test_a_log_file_gets_a_line_a_minute_and_one_at_the_end(clock):
    file = io.StringIO()
    for _ in Progress("encoding", "example", 250, file=file).over(range(3), 100):  # the last are fewer
        clock.now += 50.0
    # Items of 50 s: lines after 100 s and, at the end, after 150 s.
    first, last = "encoding: example 200 of 250, 2 examples/s, 25 s left", "encoding: example 250 of 250"
    assert file.getvalue() == f"{first}\n{last}, 1.7 examples/s\n"


def test_a_terminal_gets_two_lines_a_second_and_they_disappear(clock):
    file = Terminal()
    shown = Progress("reading", "image", 100, file=file)
    run(shown, clock, [0.25] * 5)
    lines = [f"reading: image {n} of 100, 4 images/s, {left} s left" for n, left in ((2, 24), (4, 24))]
    assert file.getvalue() == "".join(f"{line}{ERASE}\r" for line in lines)
    shown.clear()
    assert file.getvalue().endswith(f"\r{ERASE}")


def test_a_long_loop_leaves_its_last_line_on_a_terminal(clock):
    file = Terminal()
    for _ in Progress("reading", "image", 2, file=file).over(range(2)):
        clock.now += 40.0
    assert file.getvalue().endswith(f"\r{ERASE}reading: image 2 of 2, 0.025 images/s\n")


@pytest.mark.parametrize("file", [Terminal(), io.StringIO()])
def test_a_fast_loop_prints_nothing(clock, file):
    for _ in Progress("reading", "image", 4, file=file).over(range(4)):
        clock.now += 0.1
    assert file.getvalue() == ""


def test_a_line_has_the_width_of_the_terminal_and_is_removed_when_a_loop_stops_early(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    file = Terminal()
    loop = Progress("reading", "image", 4, file=file).over(range(4))
    next(loop)
    clock.now += 1.0
    next(loop)
    assert file.getvalue() == f"reading: image 1 of{ERASE}\r"
    loop.close()
    assert file.getvalue().endswith(f"{ERASE}\r\r{ERASE}")


def test_a_notebook_shows_a_bar_that_disappears(clock, monkeypatch):
    shown = []
    output = types.SimpleNamespace(update=shown.append)
    display = types.SimpleNamespace(HTML=str, display=lambda html, display_id: shown.append(html) or output)
    notebook = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=0), display=display)
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    for _ in Progress("reading", "<image>", 4).over(range(4)):
        clock.now += 0.3
    lines = [f"reading: &lt;image&gt; {n} of 4, 3.3 &lt;image&gt;s/s" for n in (2, 4)]
    bar = '<progress value="{}" max="4"></progress> {}'
    bars = [bar.format(n, line) for n, line in zip((2, 4), lines, strict=True)]
    assert shown == [*bars, ""]


def test_other_processes_show_no_moving_line(clock, monkeypatch):
    monkeypatch.setattr(progress.multiprocessing, "parent_process", object)
    file = Terminal()
    run(Progress("encoding", "example", 4, file=file), clock, [30.0, 30.0])
    assert file.getvalue() == "encoding: example 2 of 4, 0.033 examples/s, 60 s left\n"

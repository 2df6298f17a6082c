"""Progress of long loops: a moving line on a terminal, a bar in a notebook, a line a minute in a log file."""

import html
import multiprocessing
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, TypeVar

MOVING_SECONDS = 0.5  # between two lines on a terminal
LOG_SECONDS = 60.0  # between two lines in a log file
Item = TypeVar("Item")


class Progress:
    """Shows lines such as `encoding train: example 12,800 of 36,308, 441 examples/s, 53 s left`.

    On a terminal the line moves, and disappears at the end; in a notebook it has a bar. A log file gets a
    line a minute, and so does a terminal from processes of `multiprocessing`. A loop of a minute or more
    leaves its last line in all of them. The unit is a singular noun; a total of None is unknown; `start`
    items are done already; `epochs`, the number of epochs of all items, shows epochs too.
    """

    def __init__(
        self,
        title: str,
        unit: str,
        total: int | None = None,
        *,
        start: int = 0,
        epochs: float | None = None,
        file: TextIO | None = None,
    ):
        self._title, self._unit, self._total, self._epochs = title, unit, total, epochs
        self._first = self._done = start
        self._file = file or sys.stdout
        self._in_notebook = file is None and _in_notebook()
        is_shown = self._in_notebook or self._file.isatty()
        self._moves = is_shown and multiprocessing.parent_process() is None
        self._output: Any = None  # of a notebook's cell
        self._started = self._shown = self._now = time.monotonic()
        self._is_visible = False

    def add(self, count: int = 1, *, speed: str = "", note: str = "") -> None:
        """Counts items, and shows the line if it is time; see `line`."""
        self._done = min(self._done + count, self._total or sys.maxsize)
        self._now = time.monotonic()
        if self._now - self._shown >= (MOVING_SECONDS if self._moves else LOG_SECONDS):
            self._shown, self._is_visible = self._now, self._moves
            line = self.line(speed=speed, note=note)
            if self._moves and self._in_notebook:
                limits = "" if self._total is None else f'value="{self._done}" max="{self._total}"'
                self._display(f"<progress {limits}></progress> {html.escape(line)}")
                return
            # Other output overwrites a moving line.
            moving = f"{line[: shutil.get_terminal_size().columns - 1]}\x1b[K\r"
            self._file.write(moving if self._moves else f"{line}\n")
            self._file.flush()

    def line(self, *, speed: str = "", note: str = "") -> str:
        """Returns the line after the last items; `speed` replaces the items per second, `note` is its end."""
        seconds, done = self._now - self._started, self._done - self._first
        position, left = f"{self._unit} {self._done:,}", ""
        if self._total is not None:
            position += f" of {self._total:,}"
            left = time_left(seconds, done, self._total - self._done)
        if self._epochs is not None and self._total is not None:
            epoch = format_epochs(self._done / self._total * self._epochs)
            position += f" (epoch {epoch} of {format_epochs(self._epochs)})"
        speed = speed or f"{format_rate(done / seconds if seconds > 0.0 else 0.0)} {self._unit}s/s"
        line = ", ".join(filter(None, [position, speed, left, note]))
        return f"{self._title}: {line}" if self._title else line

    def over(self, items: Iterable[Item], size: int = 1) -> Iterator[Item]:
        """Yields items; each counts as `size`, the last one as the rest of the total."""
        try:
            for item in items:
                yield item
                self.add(size)
        finally:
            self.clear()
            if self._now - self._started >= LOG_SECONDS:
                print(self.line(), file=self._file, flush=True)

    def clear(self) -> None:
        """Removes the moving line."""
        if self._is_visible:
            self._is_visible = False
            if self._in_notebook:
                self._display("")
            else:
                print("\r\x1b[K", end="", file=self._file, flush=True)

    def _display(self, content: str) -> None:
        """Shows HTML in the output of a notebook's cell, in place of the last one."""
        from IPython import display

        if self._output is None:
            self._output = display.display(display.HTML(content), display_id=True)
        else:
            self._output.update(display.HTML(content))


def _in_notebook() -> bool:
    """Whether the program is a notebook, which has imported IPython and has a kernel."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


def time_left(seconds: float, done: int, remaining: int) -> str:
    """Returns the time left after some seconds in one unit; "" if it is unknown or below a second.

    >>> time_left(53.4, 1, 1), time_left(60.0, 10, 30), time_left(9000.0, 1, 1), time_left(1.0, 0, 1)
    ('53 s left', '3 min left', '2.5 h left', '')
    """
    left = seconds / done * remaining if done else 0.0
    if left < 119.5:
        return f"{left:.0f} s left" if left >= 1.0 else ""
    return f"{left / 60:.0f} min left" if left < 119.5 * 60 else f"{left / 3600:.1f} h left"


def place(number: int, total: int, left: str) -> str:
    """Returns the start of a line on one of several runs.

    >>> place(2, 45, "3 min left"), place(45, 45, "")
    ('[  2/45, 3 min left]', '[ 45/45]')
    """
    return f"[{number:3d}/{total}{left and f', {left}'}]"


def format_epochs(epochs: float) -> str:
    """Returns a number of epochs with at most one decimal.

    >>> format_epochs(1.0059), format_epochs(4400.26)
    ('1', '4,400.3')
    """
    return f"{epochs:,.1f}".removesuffix(".0")


def format_rate(rate: float) -> str:
    """Returns items per second, with two digits below 10.

    >>> format_rate(1234.5), format_rate(0.123)
    ('1,234', '0.12')
    """
    return f"{rate:,.0f}" if rate >= 9.95 else f"{rate:.2g}"

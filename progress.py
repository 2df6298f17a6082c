"""Progress of long loops: a moving line on a terminal, a line a minute in a log file."""

import multiprocessing
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO, TypeVar

MOVING_SECONDS = 0.5  # between two lines on a terminal
LOG_SECONDS = 60.0  # between two lines in a log file
Item = TypeVar("Item")


class Progress:
    """Shows lines such as `encoding train: example 12,800 of 36,308, 441 examples/s, 53 s left`.

    On a terminal the line moves, and disappears at the end. A log file gets a line a minute, and so does a
    terminal from processes of `multiprocessing`. A loop of a minute or more leaves its last line in both.

    Args:
      title: of the loop; may be empty.
      unit: singular noun of the loop's items.
      total: number of items; None if it is unknown.
      start: number of items that are done already.
      epochs: number of epochs of all items, to show epochs too.
      file: None is standard output.
      clock: returns seconds.

    >>> progress = Progress("encoding train", "example", 500, clock=iter([0.0, 2.0]).__next__)
    >>> progress.add(200)  # after 2 seconds; no terminal, so nothing is shown
    >>> progress.line()
    'encoding train: example 200 of 500, 100 examples/s, 3 s left'
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
        clock: Callable[[], float] = time.monotonic,
    ):
        self._title, self._unit, self._total, self._epochs = title, unit, total, epochs
        self._first = self._done = start
        self._file = file or sys.stdout
        self._moves = self._file.isatty() and multiprocessing.parent_process() is None
        self._clock = clock
        self._started = self._shown = self._now = clock()
        self._is_visible = False

    def add(self, count: int = 1, *, speed: str = "", note: str = "") -> None:
        """Counts items, and shows the line if it is time; see `line`."""
        self._done += count
        if self._total is not None:
            self._done = min(self._done, self._total)
        self._now = self._clock()
        if self._now - self._shown >= (MOVING_SECONDS if self._moves else LOG_SECONDS):
            self._shown = self._now
            self._write(self.line(speed=speed, note=note))

    def line(self, *, speed: str = "", note: str = "") -> str:
        """Returns the line after the last items.

        Args:
          speed: in place of the items per second since the start.
          note: end of the line.
        """
        seconds, done = self._now - self._started, self._done - self._first
        rate = done / seconds if seconds > 0.0 else 0.0
        left = "" if self._total is None else time_left(seconds, done, self._total - self._done)
        of_total = "" if self._total is None else f" of {self._total:,}"
        position = f"{self._unit} {self._done:,}{of_total}"
        if self._epochs is not None and self._total is not None:
            epoch = format_epochs(self._done / self._total * self._epochs)
            position += f" (epoch {epoch} of {format_epochs(self._epochs)})"
        speed = speed or f"{format_rate(rate)} {self._unit}s/s"
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
            self._file.write("\r\x1b[K")
            self._file.flush()
            self._is_visible = False

    def _write(self, line: str) -> None:
        if self._moves:
            self._is_visible = True
            columns = shutil.get_terminal_size().columns
            # Other output overwrites the line.
            self._file.write(f"{line[: columns - 1]}\x1b[K\r")
        else:
            self._file.write(f"{line}\n")
        self._file.flush()


def time_left(seconds: float, done: int, remaining: int) -> str:
    """Returns the time left after some seconds in words; "" if it is unknown or below a second.

    >>> time_left(60.0, 10, 30)
    '3 min left'
    """
    left = seconds / done * remaining if done else 0.0
    return f"{format_seconds(left)} left" if left >= 1.0 else ""


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


def format_seconds(seconds: float) -> str:
    """Returns a duration in one unit.

    >>> format_seconds(53.4), format_seconds(180.0), format_seconds(9000.0)
    ('53 s', '3 min', '2.5 h')
    """
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 119.5 * 60 else f"{seconds / 3600:.1f} h"

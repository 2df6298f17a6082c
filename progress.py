"""Progress of long loops by tqdm: a bar on a terminal or in a notebook, a line a minute in a log file."""

import multiprocessing
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, TypeVar

from tqdm import TqdmWarning

with warnings.catch_warnings():
    warnings.simplefilter("ignore", TqdmWarning)  # a notebook without ipywidgets has a terminal's bar
    from tqdm.auto import tqdm

LOG_SECONDS = 60.0  # between two lines in a log file
Item = TypeVar("Item")


class Progress(tqdm):
    """A bar that disappears at the end, and shows nothing of a short loop.

    A log file gets a line a minute, and so does a terminal from processes of `multiprocessing`. The unit is a
    singular noun; a total of None is unknown; other options are tqdm's.
    """

    monitor_interval = 0  # no thread

    def __init__(
        self, title: str, unit: str, total: int | None = None, file: TextIO | None = None, **options: Any
    ):
        file = file or sys.stdout
        moves = (file.isatty() or "ipykernel" in sys.modules) and not multiprocessing.parent_process()
        seconds = 0.5 if moves else LOG_SECONDS
        super().__init__(
            desc=title,
            unit=f" {unit}s",
            total=total,
            file=file if moves else _Lines(file),
            mininterval=seconds,
            delay=seconds,
            miniters=1,
            leave=False,
            dynamic_ncols=moves,
            **options,
        )

    def over(self, items: Iterable[Item], size: int = 1) -> Iterator[Item]:
        """Yields items; each counts as `size`, the last one as the rest. The bar of a long loop stays."""
        try:
            for item in items:
                yield item
                self.update(size if self.total is None else min(size, self.total - self.n))
        finally:
            self.leave = self.format_dict["elapsed"] >= LOG_SECONDS
            self.close()


Progress.set_lock(threading.RLock())  # tqdm's own has a semaphore, of which a killed process warns


class _Lines:
    """A log file, in which each state of a bar is a line."""

    def __init__(self, file: TextIO):
        self._file = file

    def write(self, state: str) -> None:
        if state.strip():
            print(state.strip(), file=self._file, flush=True)


def time_left(seconds: float, done: int, remaining: int) -> str:
    """Returns the time left after some seconds in one unit; "" if it is unknown or below a second.

    >>> time_left(53.4, 1, 1), time_left(60.0, 10, 30), time_left(9000.0, 1, 1), time_left(1.0, 0, 1)
    ('53 s left', '3 min left', '2.5 h left', '')
    """
    left = seconds / done * remaining if done else 0.0
    if left < 119.5:
        return f"{left:.0f} s left" if left >= 1.0 else ""
    return f"{left / 60:.0f} min left" if left < 119.5 * 60 else f"{left / 3600:.1f} h left"

"""SIGTERM and Ctrl-C, recorded so that a training saves and stops between two steps."""

import multiprocessing
import signal
import threading

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(Exception):
    """A training saved and stopped after a signal, received here or by another worker."""

    def __init__(self, saved: str, number: int):
        super().__init__(saved, number)  # the arguments, so that it can be pickled
        self.signal = number

    def __str__(self) -> str:
        return f"Saved {self.args[0]} and stopped. Run the same command again to resume."


class Interruption:
    """Context manager that records the first signal; a second one ends the process, if it is no child."""

    def __init__(self):
        self.signal = 0  # number of the signal that has come
        self._handlers = {}

    @property
    def requested(self) -> bool:
        """Whether a signal has come."""
        return bool(self.signal)

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():  # no other thread may handle signals
            self._handlers = {number: signal.signal(number, self._record) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _record(self, number: int, _: object) -> None:
        self.signal = number
        if multiprocessing.parent_process() is not None:
            return
        self.__exit__()
        print("Saving after this step. Press Ctrl-C again to quit immediately.", flush=True)

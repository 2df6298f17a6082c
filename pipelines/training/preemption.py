"""SIGTERM and Ctrl-C, recorded so that a training saves and stops between two steps."""

import signal
import threading

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(Exception):
    """A training saved and stopped after a signal.

    Attributes:
      signal: number of the signal, received here or by another worker.
    """

    def __init__(self, step: int, number: int):
        super().__init__(f"Saved after step {step} and stopped. Run the same command again to resume.")
        self.signal = number


class Interruption:
    """Context manager that records the first signal; a second one ends the process.

    Attributes:
      signal: number of the signal, 0 before it comes.
    """

    def __init__(self):
        self.signal = 0
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
        self.__exit__()
        print("Saving after this step. Press Ctrl-C again to quit immediately.", flush=True)

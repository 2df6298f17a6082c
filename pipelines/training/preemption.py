"""SIGTERM and Ctrl-C, noted so that a training can stop between two steps and save."""

import signal
import threading

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(Exception):
    """A training saved and stopped because it was asked to.

    Attributes:
      signal: the number of the signal that asked, here or at another worker.
    """

    def __init__(self, step, number):
        super().__init__(f"saved after step {step} and stopped: the same command goes on from there")
        self.signal = number


class Interruption:
    """While it is entered, the first signal is noted, and a second one ends the process as ever."""

    def __init__(self):
        self.signal = 0
        self._before = {}

    @property
    def requested(self):
        return bool(self.signal)

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():  # no other may handle signals
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number, _):
        self.signal = number
        self.__exit__()
        print("stopping after this step, to save; once more stops at once", flush=True)

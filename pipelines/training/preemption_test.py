import os
import pickle
import signal
import threading

import pytest

from rank4class.pipelines.training.preemption import Interrupted, Interruption


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_has_its_default_action(number):
    calls = []
    before = signal.signal(number, lambda *_: calls.append("earlier handler"))
    try:
        with Interruption() as interruption:
            assert not interruption.requested
            os.kill(os.getpid(), number)
            assert interruption.requested
            assert interruption.signal == number
            assert calls == []
            os.kill(os.getpid(), number)
            assert calls == ["earlier handler"]
        os.kill(os.getpid(), number)
        assert calls == ["earlier handler"] * 2
    finally:
        signal.signal(number, before)


def test_handlers_are_not_changed_outside_the_main_thread():
    calls = []

    def enter():
        with Interruption() as interruption:
            calls.append(interruption.requested)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert calls == [False]


def test_interrupted_can_be_pickled():
    error = pickle.loads(pickle.dumps(Interrupted("after step 7", 15)))
    assert str(error) == "Saved after step 7 and stopped. Run the same command again to resume."
    assert error.signal == 15

import os
import signal
import threading

import pytest

from rank4class.pipelines.training.preemption import Interrupted, Interruption


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_noted_and_a_second_one_does_what_it_always_did(number):
    met = []
    before = signal.signal(number, lambda *_: met.append("as ever"))
    try:
        with Interruption() as interruption:
            assert not interruption.requested
            os.kill(os.getpid(), number)
            assert interruption.requested
            assert interruption.signal == number
            assert met == []
            os.kill(os.getpid(), number)
            assert met == ["as ever"]
        os.kill(os.getpid(), number)
        assert met == ["as ever"] * 2
    finally:
        signal.signal(number, before)


def test_handlers_are_given_back():
    before = signal.getsignal(signal.SIGTERM)
    with Interruption():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_outside_the_main_thread_signals_stay_as_they_are():
    met = []

    def enter():
        with Interruption() as interruption:
            met.append(interruption.requested)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert met == [False]


def test_what_an_interrupted_run_says():
    assert str(Interrupted(7, 15)) == "saved after step 7 and stopped: the same command goes on from there"

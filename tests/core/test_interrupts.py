"""Interrupts within code of other languages."""

import os
import signal
import threading

import pytest

from infoshot.core.interrupts import Deferred


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def run_interrupted(rest):
    with Deferred():
        interrupt()
        rest()


def fail():
    raise RuntimeError("KeyboardInterrupt: <EMPTY MESSAGE>")


def test_an_interrupt_is_raised_at_the_end():
    done = []
    with pytest.raises(KeyboardInterrupt):
        run_interrupted(lambda: done.append("the rest"))
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_appears_as_another_error_stays_an_interrupt():
    with pytest.raises(KeyboardInterrupt):
        run_interrupted(fail)


def test_errors_and_handlers_of_others_stay():
    with pytest.raises(ValueError, match="own"), Deferred():
        raise ValueError("own")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Deferred():
            interrupt()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_do_not_handle_signals():
    def run():
        with Deferred():
            done.append(True)

    done = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [True]

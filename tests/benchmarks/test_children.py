"""Processes of a benchmark: none is waited for for ever, and none outlives what it was for."""

import multiprocessing
import os
import signal
import threading

import pytest

from benchmarks.children import answers

pytestmark = pytest.mark.process


def work(what):
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


def test_one_that_fails_ends_the_others():
    with pytest.raises(SystemExit, match="^a process ended with status -9 before it had an answer"):
        answers(work, [("hang",), ("die",), ("hang",)], 500.0)
    assert not multiprocessing.active_children()

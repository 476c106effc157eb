"""Processes of a benchmark: none is waited for for ever, and none outlives what it was for."""

import multiprocessing
import os
import signal
import threading

import pytest

from benchmarks.children import answers

pytestmark = pytest.mark.process


def wait_for_ever():
    threading.Event().wait()


def work(what):
    match what:
        case "fail":
            raise ValueError("no such part")
        case "leave":
            raise SystemExit("this machine cannot")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            wait_for_ever()
    return what


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("fail", "^ValueError: no such part$"),
        ("leave", "^this machine cannot$"),
        ("die", "^a process ended with status -9 before it had an answer$"),
    ],
)
def test_one_that_fails_ends_the_others(what, message):
    with pytest.raises(SystemExit, match=message):
        answers(work, [("hang",), (what,), ("hang",)], 500.0)
    assert not multiprocessing.active_children()

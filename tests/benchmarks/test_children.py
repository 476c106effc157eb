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


def test_each_call_has_its_answer_in_order():
    assert answers(work, [("a",), ("b",), (None,)], 500.0) == ["a", "b", None]


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


def test_too_long_is_too_long():
    with pytest.raises(SystemExit, match="^2 processes did not answer within 0.1 s$"):
        answers(work, [("hang",), ("hang",)], 0.1)
    assert not multiprocessing.active_children()


def test_a_part_that_cannot_be_measured_says_why():
    from benchmarks.parts import machine_us  # here, because each process imports this file

    flags = {"env": "NoSuchGame-v0", "seed": 1, "worker_count": 1, "envs_per_worker": 1}
    with pytest.raises(SystemExit, match="NoSuchGame"):
        machine_us("emulation", flags, 2, 0.01)
    assert not multiprocessing.active_children()

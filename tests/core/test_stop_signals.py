import asyncio
import contextlib
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from ritornello.core import stop_signals
from ritornello.core.stop_signals import Answer, StopSignals, end_of_job, handled_by, leave_time
from tests.deadlines import HANGS_S, wait_until
from tests.house import ROOT


def test_the_first_signal_is_only_noted_where_somebody_looks():
    stop = StopSignals()
    with stop.answered_by(Answer.NOTE):
        assert not stop.requested
        stop.handle(signal.SIGTERM)
        assert stop.requested
    assert stop.answer is Answer.LEAVE


def test_the_second_signal_leaves_whatever_the_first_one_did(monkeypatch):
    monkeypatch.setattr("ritornello.core.stop_signals.leave_at_once", lambda why: 1 / 0)
    for answer in (Answer.NOTE, Answer.RAISE):
        stop = StopSignals()
        stop.is_new(signal.SIGINT)
        later(monkeypatch, 2.0)
        with stop.answered_by(answer), pytest.raises(ZeroDivisionError):
            stop.handle(signal.SIGINT)


def test_signals_again_and_again_are_a_second_wish_after_a_second(monkeypatch):
    stop = StopSignals()
    counts = []
    for at_s in (0.0, 0.6, 1.2, 1.8, 2.4):
        monkeypatch.setattr("time.monotonic", lambda at_s=at_s: at_s)
        stop.is_new(signal.SIGINT)
        counts.append(stop.count)
    assert counts == [1, 1, 2, 2, 3]


def later(monkeypatch, seconds):
    now = time.monotonic
    monkeypatch.setattr("time.monotonic", lambda: now() + seconds)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("after_s", [0.0, 0.5, 2.0])
def test_signals_that_follow_at_once_and_hangups_are_the_same_wish(
    monkeypatch, first, second, after_s
):
    """A shell that ends sends a second SIGHUP, and `timeout` forwards the terminal's Ctrl-C."""
    left = []
    monkeypatch.setattr("ritornello.core.stop_signals.leave_at_once", left.append)
    stop = StopSignals()
    stop.at_stake = "the last checkpoint is update 7"
    with stop.answered_by(Answer.NOTE):
        stop.handle(first)
        later(monkeypatch, after_s)
        stop.handle(second)
    is_order = after_s > 1.0 and second != signal.SIGHUP
    assert len(left) == is_order
    assert all("update 7" in why for why in left)


def test_handlers_are_put_back():
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    stop = StopSignals()
    stop.install()
    assert signal.getsignal(signal.SIGHUP) == stop._interrupt
    stop.restore()
    assert before == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


@pytest.mark.parametrize("thief", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_signal_that_somebody_took_away_is_taken_back(thief):
    stop = StopSignals()
    stop.take_back()  # nothing is installed, so nothing is taken
    stop.install()
    try:
        for take_back in (stop.take_back, lambda: stop.answered_by(Answer.NOTE).__enter__()):
            signal.signal(signal.SIGTERM, thief)
            take_back()
            assert signal.getsignal(signal.SIGTERM) == stop._interrupt
        debuggers = lambda number, frame: None  # noqa: E731
        signal.signal(signal.SIGINT, debuggers)
        stop.take_back()
        assert signal.getsignal(signal.SIGINT) is debuggers
    finally:
        stop.restore()


def test_a_hangup_that_is_ignored_stays_ignored():
    """As `nohup` has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    seen, stop = [], StopSignals()
    try:
        stop.install()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        stop.restore()
        with handled_by(lambda number, frame: seen.append(number)):
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert seen == [signal.SIGTERM]


NEVER_ENDS = os.pipe()


def started(source, stderr=subprocess.PIPE):
    return subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, stdin=NEVER_ENDS[0], stdout=subprocess.PIPE,
        stderr=stderr, text=True, timeout=HANGS_S, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


LEAVES = """
import os, sys, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [{number}])
from ritornello.core.stop_signals import StopSignals, let_through
os.kill(os.getpid(), {number})
print("still here", flush=True)
stop = StopSignals()
stop.install()
let_through()
sys.stdin.read()
print("not reached", flush=True)
"""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_the_program_starts_waits_for_the_handler_and_leaves(number):
    done = started(LEAVES.format(number=int(number)))
    why = "interrupted before anything was begun\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "still here\n", why)


@pytest.mark.process
@pytest.mark.parametrize("end", ["full", "closed"])
def test_a_stderr_that_takes_nothing_keeps_no_signal_from_leaving(end):
    """A frozen terminal is a pipe that nobody empties."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while end == "full":
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    if end == "closed":
        os.close(reader)
    done = started(LEAVES.format(number=int(signal.SIGINT)), stderr=writer)
    os.close(writer)
    if end == "full":
        os.close(reader)
    assert done.returncode == 130


ENDS = """
import atexit, os, signal
from ritornello.core.stop_signals import StopSignals, ignore_from_now_on
stop = StopSignals()
stop.install()
class AtTheVeryEnd:
    def __del__(self, kill=os.kill, pid=os.getpid()):
        for number in (1, 2, 15):
            kill(pid, number)
at_the_very_end = AtTheVeryEnd()
import sys
import time
sys.keep = at_the_very_end  # goes after the handlers
ignore_from_now_on()
sys.exit(7)
"""


@pytest.mark.process
def test_no_signal_changes_how_a_finished_process_ends():
    done = started(ENDS)
    assert done.returncode == 7


HANGS = """
import ctypes, os, threading, time
from ritornello.core import stop_signals
stop_signals.SAME_WISH_S = 0.3
stop = stop_signals.StopSignals()
stop.install()
stop.answer = stop_signals.Answer.{answer}
def ask():
    for _ in range({times}):
        time.sleep(0.5)
        os.kill(os.getpid(), {number})
threading.Thread(target=ask).start()
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(mutex)
libc.pthread_mutex_lock(mutex)  # waits for itself, and no signal gets it out of there
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("number", "answer", "times"),
    [
        (signal.SIGTERM, "LEAVE", 1),
        (signal.SIGINT, "NOTE", 2),
        (signal.SIGINT, "RAISE", 2),
    ],
)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the size of a mutex is Linux's")
def test_a_main_thread_that_hangs_in_c_keeps_nobody_from_leaving(number, answer, times):
    done = started(HANGS.format(number=int(number), answer=answer, times=times))
    assert done.returncode == 130, done.stderr
    assert "interrupted" in done.stderr


@pytest.fixture
def stop(monkeypatch):
    """Signals of this process are answered; nothing ends it."""
    monkeypatch.setattr("ritornello.core.stop_signals.leave_at_once", lambda why: 1 / 0)
    stop = StopSignals()
    stop.install()
    yield stop
    stop.restore()


def test_a_signal_raises_once_where_the_main_thread_expects_it(stop):
    with stop.answered_by(Answer.RAISE):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)  # the same wish
    wait_until(lambda: stop.count == 1)


def test_a_listener_that_hears_late_does_not_leave_for_what_was_raised(stop):
    stop.restore()  # the listener is gone, so this test is it
    with pytest.raises(KeyboardInterrupt), stop.answered_by(Answer.RAISE):
        stop._interrupt(signal.SIGINT, None)
    stop.handle(signal.SIGINT)
    assert stop.count == 1
    stop._last_s -= 60
    with pytest.raises(ZeroDivisionError):
        stop.handle(signal.SIGINT)


def test_a_signal_of_the_same_wish_does_not_raise_where_the_first_was_noted(stop):
    """A closed terminal sends SIGHUP again while the charts of the saved run are drawn."""
    with stop.answered_by(Answer.NOTE):
        signal.raise_signal(signal.SIGTERM)
        wait_until(lambda: stop.count == 1)
        with stop.answered_by(Answer.RAISE):
            signal.raise_signal(signal.SIGHUP)
    assert stop.count == 1


def test_a_signal_is_heard_although_an_event_loop_has_taken_the_bell(stop):
    loop = asyncio.new_event_loop()
    with stop.answered_by(Answer.NOTE):
        loop.add_signal_handler(signal.SIGUSR2, print)
        loop.remove_signal_handler(signal.SIGUSR2)
        loop.close()
        signal.raise_signal(signal.SIGTERM)
        wait_until(lambda: stop.count == 1)


@pytest.mark.parametrize("answer", Answer)
def test_a_copy_of_the_process_ends_by_sigterm_as_whoever_made_it_expects(stop, answer):
    """An environment that is tried out may close a process of its own like that."""
    with stop.answered_by(answer):
        copy = multiprocessing.get_context("fork").Process(target=time.sleep, args=(HANGS_S,))
        copy.start()
        copy.terminate()
        copy.join(HANGS_S / 10)
        copy.kill()
    assert copy.exitcode == -signal.SIGTERM
    assert stop.count == 0


def test_signals_of_an_environment_and_of_its_copies_of_this_process_are_no_wish(stop):
    """Whatever has a handler in Python rings the bell, and a copy of the process inherits it."""
    rung = []
    previous = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    with stop.answered_by(Answer.NOTE):
        signal.raise_signal(signal.SIGALRM)
        copy = os.fork()
        if not copy:
            signal.raise_signal(signal.SIGTERM)
            os._exit(0)
        os.waitpid(copy, 0)
        time.sleep(0.2)
        assert (rung, stop.count) == ([True], 0)
        signal.raise_signal(signal.SIGTERM)
        wait_until(lambda: stop.requested)
    signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize(
    ("said", "leaves"), [("soon", math.inf), ("900", math.inf), ("5000", 4940), ("1100", 1075)]
)
def test_a_program_stops_before_its_job_ends(said, leaves):
    assert leave_time(end_of_job({"SLURM_JOB_END_TIME": said}, 1000.0), 1000.0) == leaves


def test_the_end_of_a_job_is_a_wish_to_stop(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 3600))
    now, stop = time.time(), StopSignals()
    assert not stop.requested
    monkeypatch.setattr(stop_signals.time, "time", lambda: now + 3570)
    assert stop.requested

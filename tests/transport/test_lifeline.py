"""What can be seen of a process from outside, whatever it does."""

import contextlib
import multiprocessing
import os
import signal
import time

import pytest

from ritornello.transport.lifeline import MAX_STACK_BYTES, Lifeline, Phase, Pulse
from tests.deadlines import wait_until
from tests.transport import programs
from tests.transport.programs import TIMEOUT_S

SPAWN = multiprocessing.get_context("spawn")


@contextlib.contextmanager
def started(lifeline, program, *arguments):
    end = lifeline.open()
    process = SPAWN.Process(target=program, args=(*arguments, end), daemon=True)
    process.start()
    end.mouth.close()
    try:
        yield process
    finally:
        process.kill()
        process.join(TIMEOUT_S)
        lifeline.close()


def test_a_pulse_says_what_is_done_and_since_when_and_counts_every_sign():
    pulse = Pulse()
    before = time.monotonic()
    assert pulse.read().phase == Phase.STARTING
    pulse.beat(Phase.STEPPING)
    first = pulse.read()
    assert first.phase == Phase.STEPPING
    assert before <= first.since <= time.monotonic()
    pulse.beat(Phase.STEPPING)  # still: it began when it began, but it is a sign of life
    again = pulse.read()
    assert (again.since, again.count) == (first.since, first.count + 1)
    pulse.beat(Phase.ACTING)
    assert pulse.read().since >= first.since
    pulse.restart()
    assert (pulse.read().phase, pulse.read().count) == (Phase.STARTING, 0)


@pytest.mark.process
@pytest.mark.parametrize("program", [programs.hang_in_python, programs.hang_in_c])
def test_a_process_that_hangs_even_in_c_code_shows_where(program):
    lifeline = Lifeline()
    with started(lifeline, program) as process:
        wait_until(lambda: lifeline.pulse.read().phase == Phase.STEPPING)
        assert lifeline.stack() == ""
        assert lifeline.ask_for_stack(process.pid)
        wait_until(lambda: f"in {program.__name__}" in lifeline.stack())
        assert process.is_alive()
        lifeline.forget_stack()
        assert lifeline.stack() == ""


@pytest.mark.process
def test_a_process_that_crashes_leaves_its_stack():
    lifeline = Lifeline()
    with started(lifeline, programs.crash) as process:
        process.join(TIMEOUT_S)
        assert process.exitcode == -signal.SIGSEGV
        assert "Segmentation fault" in lifeline.stack()
        assert "in crash" in lifeline.stack()


@pytest.mark.process
def test_a_process_that_cannot_answer_yet_is_not_asked_because_the_signal_would_end_it():
    lifeline = Lifeline()
    with started(lifeline, programs.never_hold) as process:
        assert not lifeline.ask_for_stack(process.pid)
        assert process.is_alive()


@pytest.mark.process
def test_a_process_that_is_asked_again_and_again_does_not_stop_at_a_full_pipe():
    lifeline = Lifeline()
    with started(lifeline, programs.beat_for_ever) as process:
        wait_until(lambda: lifeline.pulse.read().phase == Phase.STEPPING)
        for _ in range(2000):  # 64 kB hold a few hundred stacks
            os.kill(process.pid, signal.SIGUSR1)
            before = lifeline.pulse.read().count
        wait_until(lambda: lifeline.pulse.read().count > before + 10)
        assert 0 < len(lifeline.stack()) <= MAX_STACK_BYTES

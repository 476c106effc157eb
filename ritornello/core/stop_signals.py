"""Signals that ask the program to stop: counted, noted, and never answered with a print.

The first SIGINT, SIGTERM or SIGHUP is a wish, the second is an order. Signals that come within a
second are the same wish: a shell that ends sends a second SIGHUP, and `timeout` forwards the Ctrl-C
that the terminal has sent already. A SIGHUP is never an order, because nobody presses it again.

| the program is | the first signal | every later one |
|---|---|---|
| starting (nothing has been made yet) | leaves at once, status 130 | |
| training, saving, finishing | is noted; the loop saves and ends | leaves at once, status 130 |
| playing test games, drawing charts | raises KeyboardInterrupt | leaves at once, status 130 |

A thread listens, so that a main thread which hangs in C keeps nobody from leaving. Before the
process ends a last line is written straight to the descriptor, and only if that takes it at once: a
terminal may be frozen, and its lock be held. Imports nothing that takes long, because it has to be
in place before that.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import FrameType
from typing import Any

LISTENER = "signals"  # name of the thread
BURST = 64  # signals that are read at once
SAME_WISH_S = 1.0  # signals so soon after another one were sent for the same reason
JOIN_S = 5.0
INTERRUPTED = 130  # exit status after an interrupt, as shells have it

# SIGHUP is what a terminal sends that is closed, SIGUSR1 what users of Slurm let it send before the
# time of a job is over.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
END_OF_JOB = "SLURM_JOB_END_TIME"  # the variable in which Slurm says it: seconds since 1970
SAVING_S = 60.0  # before the end of a job, in which a run saves; of a short job a quarter


class Answer(Enum):
    """What the first signal does."""

    LEAVE = "leave"  # nothing has been made yet that could be lost
    NOTE = "note"  # somebody looks at `requested` at short intervals
    RAISE = "raise"  # KeyboardInterrupt, where it is caught


class StopRequests:
    """How often somebody has asked to stop, several signals of one wish counted once."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self.count = 0
        self._last_s = -float("inf")

    def is_new(self, number: int) -> bool:
        """Count a signal; return whether it is a further wish. Takes no lock: handlers call it."""
        now_s, before_s = time.monotonic(), self._last_s
        is_hangup = number == signal.SIGHUP
        is_new = not self.count or not (is_hangup or now_s - before_s < SAME_WISH_S)
        if is_new or is_hangup:  # not each: Ctrl-C pressed again and again is an order at last
            self._last_s = now_s
        self.count += is_new
        return is_new


class StopSignals(StopRequests):
    """Counts the signals of one invocation. Made once, by the program's first lines."""

    def __init__(self) -> None:
        """Begin without a request; the first signal ends the program at once."""
        super().__init__()
        self.answer = Answer.LEAVE
        self.at_stake = ""  # what a second signal loses: "the last checkpoint is update 1000"
        self._has_raised = False  # for the first signal, of which the listener may hear later
        self._previous: dict[int, Any] = {}
        self._listener: threading.Thread | None = None
        self._began = time.time()
        self._end_at = end_of_job(os.environ, self._began)
        self._leave_at = leave_time(self._end_at, self._began)
        self._mask: set[Any] = set()  # signals that were blocked before a fork
        self._bell = -1  # the system writes a byte to this descriptor at each signal

    @property
    def requested(self) -> bool:
        """Whether the user, or whoever runs this program, wants it to stop, or its job ends."""
        return self.count > 0 or time.time() >= self._leave_at

    @property
    def left_s(self) -> float:
        """Return the seconds until this program's job ends; inf if nobody says."""
        return self._end_at - time.time()

    def reserve(self, seconds: float) -> None:
        """Request a stop `seconds` earlier than SAVING_S before the end of the job."""
        self._leave_at = leave_time(self._end_at, self._began, SAVING_S + seconds)

    def install(self) -> None:
        """Handle signals from now on; `restore` restores the previous handlers.

        Outside of the main thread nothing is installed, because Python allows it there only. A
        SIGHUP that is ignored (nohup) stays ignored.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        self._previous = answer_by(self._interrupt)
        heard, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        self._hang_bell()
        os.register_at_fork(
            before=self._before_copy,
            after_in_parent=self._let_through,
            after_in_child=self._leave_copy,
        )
        self._listener = threading.Thread(
            target=self._listen, args=(heard,), name=LISTENER, daemon=True
        )
        self._listener.start()

    def take_back(self) -> None:
        """Handle signals again that since `install` are ignored, or left to the system or to C.

        An environment may have changed that, or a library that it loads, in this very process: when
        it is tried out, or plays here. A handler that somebody has written in Python stays.
        """
        if self._listener is not None:
            self._hang_bell()
        for number in self._previous:
            if signal.getsignal(number) in (signal.SIG_IGN, signal.SIG_DFL, None):
                signal.signal(number, self._interrupt)

    def restore(self) -> None:
        """Restore the handlers that were there before `install`."""
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, handler)
        if self._listener is not None:
            signal.set_wakeup_fd(-1)
            os.close(self._bell)  # the end of the listener
            self._listener.join(JOIN_S)
            self._listener = None

    def _hang_bell(self) -> bool:
        """Have the system ring for the listener; return whether it did so before."""
        return signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False) == self._bell

    def _before_copy(self) -> None:
        """Hold back signals while this process is forked: the copy would take them as ours."""
        if self._listener is not None:
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def _let_through(self) -> None:
        if self._listener is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _leave_copy(self) -> None:
        """Leave a fork of this process to the code that made it, such as an environment.

        A signal to it is no request, and SIGTERM ends it: the code that closes it waits for that.
        """
        if self._listener is not None:
            signal.set_wakeup_fd(-1)
            if signal.getsignal(signal.SIGTERM) == self._interrupt:
                signal.signal(signal.SIGTERM, self._previous[signal.SIGTERM] or signal.SIG_DFL)
            self._let_through()
            self._listener = None

    def _listen(self, heard: int) -> None:
        """Handle the signals that arrive. Those of a timer, or of a child's end, ring here too."""
        while numbers := os.read(heard, BURST):
            for number in set(numbers).intersection(SIGNALS):
                self.handle(number)
        os.close(heard)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise in the main thread, where Python calls this; `handle` does the rest."""
        if self._listener is not None and not self._hang_bell():
            self.handle(number)  # an event loop, say, had the bell, and the listener heard nothing
        if self.answer is Answer.RAISE:
            self.answer = Answer.NOTE  # what follows is not interrupted again
            self._has_raised = True
            raise KeyboardInterrupt

    def handle(self, number: int) -> None:
        """Take one signal."""
        if not self.is_new(number):
            return
        if self.answer is Answer.LEAVE and not self._has_raised:
            leave_at_once("interrupted before anything was begun")
        if self.count > 1:
            lost = f"; {self.at_stake}" if self.at_stake else ""
            leave_at_once(f"interrupted again: left at once, without saving{lost}")

    @contextlib.contextmanager
    def answered_by(self, answer: Answer) -> Iterator[None]:
        """Change the effect of the first signal for the time of a block."""
        self.take_back()
        if answer is Answer.RAISE and self.count:
            answer = Answer.NOTE  # a SIGHUP, or the same wish once more, is no reason to raise
        previous, self.answer = self.answer, answer
        try:
            yield
        finally:
            self.answer = previous


def end_of_job(environment: Mapping[str, str], now: float) -> float:
    """Return when the job of this program ends, in seconds since 1970; inf if it is not known.

    `environment` has the variables of the process. An end before `now` is that of another job.
    """
    said = environment.get(END_OF_JOB, "")
    return float(said) if said.isdecimal() and int(said) > now else float("inf")


def leave_time(end_at: float, now: float, saving_s: float = SAVING_S) -> float:
    """Return when a program has to stop for its job to end in time; of a short job a quarter stays.

    The job ends at `end_at`, in seconds since 1970, or inf; saving may take `saving_s`.
    """
    return end_at - min(saving_s, (end_at - now) / 4)


@contextlib.contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the signals by `handler` in the block; afterwards as before. Main thread only."""
    previous = answer_by(handler)
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def answer_by(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Handle the signals by `handler` from now on; return the old handlers. Main thread only.

    A SIGHUP that is ignored (nohup) stays ignored.
    """
    ignored = signal.SIG_IGN
    numbers = [n for n in SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != ignored]
    return {number: signal.signal(number, handler) for number in numbers}


def leave_at_once(why: str) -> None:
    """End this process and all that it started, now and without saving.

    `why` is the last line that the user reads. A process that vanishes while it is being killed, or
    any other problem, must not keep this one from leaving.
    """
    try:
        for child in multiprocessing.active_children():
            with contextlib.suppress(Exception):  # it is gone: the others are still to be killed
                child.kill()
        say_at_once(why)
    finally:
        os._exit(INTERRUPTED)


def say_at_once(text: str) -> None:
    """Write a line to the standard error stream, unless it would have to wait or is closed."""
    descriptor = 2
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [descriptor], [], 0)[1]:
            os.write(descriptor, f"{text}\n".encode("ascii", "replace"))


def ignore_from_now_on() -> None:
    """Let no signal change the exit status from now on: all is done.

    On its way out the interpreter removes its own handlers, and the system's would kill it; an
    ignored signal stays ignored.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def let_through() -> None:
    """Let the signals come that the program's first lines hold back."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

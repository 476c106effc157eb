"""Supervision of one process of a pool: it is started, watched, ended and started again.

    ABSENT --launch--> RUNNING --pipe closed, or process gone--> ENDING --gone--> ABSENT
                          |                                        ^
                          +--silent for too long: killed ----------+

Nothing here waits: each state is left in one of the calls that the pool makes at each `poll`. Each
process has a pipe, whose end of file is for either side the end of the other. What the messages
mean is the pool's business, but for the last words of a process that fails (`Failed`).
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import multiprocessing.process
import multiprocessing.util
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

import psutil

from ritornello.core.process_death import children_deaf_to
from ritornello.core.warden import Warden
from ritornello.transport.channel import Failed
from ritornello.transport.lifeline import Lifeline, Phase

log = logging.getLogger(__name__)

EXIT_WAIT_S = 5.0  # a process that has closed its pipe is only being taken down by the system
KILL_WAIT_S = 5.0  # one that was killed is gone at once, unless a device holds it in the kernel
MAX_GAP_S = 5.0  # a longer time between two looks at a process counts as so long
STACK_WAIT_S = 2.0  # for a silent process to write its stack
CLOSE_WAIT_S = 10.0  # for one that has failed to close its environments
# Importing torch on a busy machine takes a minute, and some environments compile themselves.
STARTUP_FACTOR, MIN_STARTUP_S = 5.0, 600.0


class State(Enum):
    """Where the process is in its life."""

    ABSENT = "absent"
    RUNNING = "running"
    ENDING = "ending"


class Supervised:
    """The place of one process in a pool, for all processes that live there one after the other.

    Used by one thread at a time; `describe` and `is_running` may be asked by any.
    """

    def __init__(self, name: str, warden: Warden) -> None:
        """Start nothing. `name` is for messages: "worker 3". `warden` ends orphans."""
        self.name = name
        self.state = State.ABSENT
        self.process: Any = None  # a multiprocessing Process of the spawn context
        self.relaunch_at: float | None = None  # when a successor is due, on `time.monotonic`
        self.connection: Connection | None = None  # our end of the pipe; None: nobody is there
        self.failure = ""  # the last words of the process, if it has said any
        self.hung = ""  # what was seen of it when it was killed for silence
        self._lifeline = Lifeline()
        self._warden = warden
        self._context = multiprocessing.get_context("spawn")
        self._deadline = 0.0  # of the present step of ENDING
        self._was_killed = False  # for not ending, and it is waited for no longer than KILL_WAIT_S
        self._hush()

    def _hush(self) -> None:
        self._seen = -1  # beats counted at the last look
        self._listened_at = time.monotonic()
        self._silent_s = 0.0
        self._is_spoken_of = False  # the user knows that it takes long to start
        self._asked_at_s: float | None = None  # silence at which it was asked for its stack

    @property
    def is_running(self) -> bool:
        """Whether there is a process that has not ended, as far as the supervisor has seen."""
        return self.state is State.RUNNING

    @property
    def pid(self) -> int:
        """Id of the process, which was started."""
        return int(self.process.pid)

    def launch(self, target: Callable[..., None], arguments: Sequence[Any]) -> None:
        """Start a process; the place must be ABSENT.

        `target` is called with `arguments`, its end of the pipe, and the `LifelineEnd`.

        Raises:
          OSError: if it cannot be started.
        """
        end = self._lifeline.open()
        ours, theirs = multiprocessing.Pipe(duplex=True)
        process = self._context.Process(
            target=_as_parent,
            args=(target, *arguments, theirs, end),
            name=f"vtrace-{self.name.replace(' ', '-')}",
            daemon=True,
        )
        self.relaunch_at = None
        try:
            # Until it ignores Ctrl-C itself: the terminal sends it to every process. The tracker
            # comes first, because multiprocessing lets signals through when it has started it.
            resource_tracker.ensure_running()
            with children_deaf_to(signal.SIGINT), _streams_left_alone():
                process.start()
        except OSError:
            ours.close()
            raise
        finally:
            # While this process holds a copy of the other ends, its death would not be seen.
            theirs.close()
            end.mouth.close()
        self.process, self.connection = process, ours
        self._warden.keep(self.pid, self._lifeline.family)
        self.state = State.RUNNING
        self.failure, self.hung, self._was_killed = "", "", False
        self._hush()

    def has_died(self) -> bool:
        """Whether the process is gone, also if its pipe is held open by a child of it."""
        return not self.process.is_alive()

    # --- messages ----------------------------------------------------------------------------

    def receive(self) -> list[Any]:
        """Return the messages that have come, without waiting; last words become `failure`.

        What a process sent before it died is still delivered. After that `connection` is None.
        """
        messages = []
        try:
            while self.connection is not None and self.connection.poll(0):
                message = self.connection.recv()
                if isinstance(message, Failed):
                    self.failure = message.traceback
                else:
                    messages.append(message)
        except (EOFError, OSError):  # OSError: it died in the middle of a message
            self.hang_up()
        return messages

    def send(self, message: object) -> None:
        """Send a message if there is a process; if it has just died, `receive` finds out."""
        if self.connection is not None:
            with contextlib.suppress(OSError):
                self.connection.send(message)

    def hang_up(self) -> None:
        """Close the pipe, which asks a live process to leave. Idempotent."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    # --- silence -----------------------------------------------------------------------------

    def listen(self, timeout_s: float) -> None:
        """Note whether the process has done anything; end it after `timeout_s` without, 0: never.

        A long gap between two calls counts as a short one: a pool that was stopped (SIGSTOP, a
        computer that slept) or busy would otherwise take its own absence for the silence of all
        others.
        """
        now = time.monotonic()
        passed_s = min(now - self._listened_at, MAX_GAP_S, timeout_s / 4 or MAX_GAP_S)
        self._listened_at = now
        beat = self._lifeline.pulse.read()
        if beat.count != self._seen:
            if self._asked_at_s is not None:
                self._lifeline.forget_stack()
            self._hush()
            self._seen = beat.count
            return
        self._silent_s += passed_s
        limit_s = self._limit_s(beat.phase, timeout_s)
        if not self._is_spoken_of and timeout_s and timeout_s <= self._silent_s < limit_s:
            self._is_spoken_of = True
            log.warning(
                "%s has been %s for %.0f s, and is given %.0f s for that",
                self.name, beat.phase.words, self._silent_s, limit_s,
            )  # fmt: skip
        if not limit_s or self._silent_s < limit_s:
            return
        if self._asked_at_s is None:
            self._asked_at_s = self._silent_s
            if self._lifeline.ask_for_stack(self.pid):
                return
        elif self._silent_s - self._asked_at_s < STACK_WAIT_S:
            return
        self.hung = (
            f"was {beat.phase.words} and gave no sign of life for {self._silent_s:.0f} s "
            "(--worker_timeout), so it was killed"
        )
        if self._is_stopped():
            self.hung += "; somebody had stopped it (SIGSTOP)"
        self.kill()

    def _limit_s(self, phase: Phase, timeout_s: float) -> float:
        if timeout_s and phase in (Phase.STARTING, Phase.BUILDING, Phase.JOINING):
            return max(MIN_STARTUP_S, STARTUP_FACTOR * timeout_s)
        if timeout_s and self.failure:
            return min(CLOSE_WAIT_S, timeout_s)
        return timeout_s

    def _is_stopped(self) -> bool:
        with contextlib.suppress(psutil.Error):
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)
        return False

    # --- the end -----------------------------------------------------------------------------

    def kill(self) -> None:
        """End the process and all that it has started, now."""
        self.process.kill()
        self._lifeline.family.end(self.pid, limit_s=0.0)
        self.begin_to_end(KILL_WAIT_S)
        self._was_killed = True

    def begin_to_end(self, wait_s: float = EXIT_WAIT_S) -> None:
        """Expect the process to be gone soon: it has closed its pipe, or was killed."""
        if self.state is State.RUNNING:
            self.state = State.ENDING
            self._deadline = time.monotonic() + wait_s

    def cause_of_end(self) -> str | None:
        """Return how a process that is ENDING has ended, or None as long as it has not.

        Afterwards the place is ABSENT, and nothing is left of what the process had started.
        """
        if not self.has_died():
            if time.monotonic() < self._deadline:
                return None
            if not self._was_killed:
                self._was_killed = True
                self._deadline = time.monotonic() + KILL_WAIT_S
                self.process.kill()
                return None
            forget(self.process)
        self.clear()
        return self.hung or (
            "failed" if self.failure else _how(self.process.exitcode, self._was_killed)
        )

    def clear(self) -> None:
        """End what is left of the children of a process that has just ended. Idempotent."""
        if self.state is State.ABSENT:
            return  # done before; by now its number may be that of some other process
        self.state = State.ABSENT
        self.hang_up()
        if self._lifeline.family.end(self.pid, limit_s=1.0):
            self._warden.release(self.pid)

    def last_words(self) -> str:
        """Return the failure of a process that has ended, or the stack that it has written."""
        return self.failure or self._lifeline.stack()

    def describe(self) -> str:
        """Return one line: what it does, and for how long."""
        doing = self.present()[1]
        due = self.relaunch_at  # once, because another thread may take it away
        if self.state is State.ABSENT and due is not None:
            doing = f"starts in {max(0.0, due - time.monotonic()):.0f} s"
        elif self.state is State.RUNNING:
            doing += f" for {time.monotonic() - self._lifeline.pulse.read().since:.0f} s"
        return f"{self.name}: {doing}"

    def present(self) -> tuple[int | None, str, float]:
        """Return (process id, what it does, seconds of silence); the id is None without one."""
        process = self.process  # once: another thread may start a successor
        if self.state is State.ABSENT or process is None:
            return None, "not there", 0.0
        doing = "ending"
        if self.state is State.RUNNING:
            doing = self._lifeline.pulse.read().phase.words
        return process.pid, doing, self._silent_s

    def close(self) -> None:
        """Give up memory and pipes."""
        self.hang_up()
        self._lifeline.close()
        self._lifeline.pulse.close()


@contextlib.contextmanager
def _streams_left_alone() -> Iterator[None]:
    """Keep multiprocessing from flushing the standard streams before it starts a process.

    A flush fails if they are full, and never returns if a terminal is frozen. Only a forked process
    needs it, because it would inherit what is not yet written.
    """
    util: Any = multiprocessing.util
    flush = getattr(util, "_flush_std_streams", None)
    util._flush_std_streams = lambda: None
    try:
        yield
    finally:
        util._flush_std_streams = flush


def _how(code: int | None, was_killed: bool) -> str:
    if was_killed or code is None:
        return f"closed its pipe, did not end within {EXIT_WAIT_S:g} s and was killed"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by signal {-code} ({signal.Signals(-code).name})"
        return f"was killed by signal {-code}"
    return f"left with exit code {code}"


def let_leave(processes: Iterable[Any], grace_s: float) -> None:
    """Wait `grace_s` for processes that were asked to leave, then end those that have not."""
    left = [process for process in processes if process is not None]
    for ask, wait_s in (("", grace_s), ("terminate", 1.0), ("kill", KILL_WAIT_S)):
        for process in left:
            if ask:
                getattr(process, ask)()
        deadline = time.monotonic() + wait_s
        for process in left:
            process.join(max(0.0, deadline - time.monotonic()))
        left = [process for process in left if process.is_alive()]
    for process in left:
        forget(process)


def forget(process: Any) -> None:
    """Leave a process alone at exit; multiprocessing would wait for it without a limit."""
    log.warning(
        "process %s (pid %s) does not end although it was killed: a device or a file system holds "
        "it. It will end when it is let go; nothing waits for it.",
        process.name, process.pid,
    )  # fmt: skip
    children: set[Any] = getattr(multiprocessing.process, "_children", set())
    children.discard(process)


def _as_parent(target: Callable[..., None], *arguments: Any) -> None:
    """Let a daemonic process have children by multiprocessing, as environments do.

    Python forbids it because such a process is killed without its children. Here its children are
    ended with it.
    """
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    target(*arguments)

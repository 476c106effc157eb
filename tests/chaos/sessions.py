"""Begins sessions, waits with a deadline for what they do, and judges how they end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from tests.chaos.checker import check_session
from tests.chaos.configurations import Configuration
from tests.chaos.folder import Snapshot, added_log, take_snapshot
from tests.chaos.history import Expected, Session, Violation
from tests.chaos.leftovers import (
    describe,
    end_processes,
    held_locks,
    processes_of,
    stack_text,
    writers,
)
from tests.chaos.running import Running, Terminal
from tests.chaos.spawner import Request, Spawner

POLL_S = 0.01
START_LIMIT_S = 120.0  # from the start of a program to its first update, on a busy machine
EXIT_LIMIT_S = 60.0  # from being told to end to the end, the last save and the workers included
GONE_LIMIT_S = 30.0  # from the end of a program to that of its last process
WRITERS_INTERVAL_S = 0.25  # between two looks at who has files open
CACHES = ("torchinductor_",)  # made by torch for whoever comes next, not left behind


class Stuck(Exception):
    """Something did not happen in time."""


class Cancelled(Exception):
    """The harness is told to end."""


@dataclass
class Begun:
    """A session that was begun and has not been judged."""

    running: Running
    before: Snapshot | None
    resumed: bool
    folder: Path | None  # known from the start of a resume
    shares_folder: bool  # with another session at the same time: its files say nothing about it


class Sessions:
    """The sessions of one scenario. Used by one thread."""

    def __init__(
        self,
        folder: Path,
        spawner: Spawner,
        configuration: Configuration,
        cancelled: threading.Event,
    ) -> None:
        """Make the folder; start nothing.

        Args:
          folder: of the scenario, does not exist.
          spawner: of the lane.
          configuration: of the training.
          cancelled: set when the harness has to end.
        """
        self.folder = folder
        folder.mkdir(parents=True)
        self.configuration = configuration
        self.sessions: list[Session] = []  # those that are over
        self.violations: list[Violation] = []
        self.run: Path | None = None  # the run folder, once it is known
        self._spawner = spawner
        self._cancelled = cancelled
        self._begun: list[Begun] = []
        self._started: dict[str, int] = {}  # the mark of each session, and its process
        self._shm_before = spawner.shared_memory()
        self._next_count_s = float("inf")  # nobody is counted unless it is asked for
        self._seen_writers: set[tuple[str, frozenset[int]]] = set()  # at the last look
        self._two_writers: set[str] = set()

    def find_run(self) -> Path | None:
        """Return the run folder, once it is known."""
        return self.run

    def break_promise(self, promise: str, text: str) -> None:
        """Note a violation that a scenario itself has found."""
        self.violations.append(Violation(promise, text))

    def begin(
        self,
        program: str,
        arguments: tuple[str, ...],
        resumed: Path | None,
        *,
        terminal: str = "file",
        lines: int = 1,
        shares_folder: bool = False,
        environment: dict[str, str] | None = None,
        **request: Any,
    ) -> Begun:
        """Start a program; the rest is as in `Request` and `Terminal`."""
        number = len(self._started) + 1
        temporary = self.folder / f"tmp_{number}"
        temporary.mkdir()
        mark = f"{self.folder}/{number}"
        before = None
        if resumed is not None and not shares_folder:
            before = take_snapshot(resumed)
        out = Terminal(terminal, self.folder / f"output_{number}.txt", lines=lines)
        wanted = Request(
            program, arguments, mark,
            environment={"TMPDIR": str(temporary), **(environment or {})},
            terminal=terminal == "pty", closed_output=terminal == "closed", **request,
        )  # fmt: skip
        pid = self._spawner.start(wanted, out.descriptors)
        out.handed_over()
        self._started[mark] = pid
        running = Running(wanted, self._spawner, out, pid)
        begun = Begun(running, before, resumed is not None, resumed, shares_folder)
        self._begun.append(begun)
        return begun

    def wait(
        self,
        what: str,
        condition: Callable[[], bool],
        limit_s: float = START_LIMIT_S,
        *,
        running: Running | None = None,
        poll_s: float = POLL_S,
    ) -> bool:
        """Wait for a condition; return False if the program ended first.

        Raises:
          Stuck: after `limit_s` seconds.
          Cancelled: the harness has to end.
        """
        deadline = time.monotonic() + limit_s
        while not condition():
            self._count_writers()
            if running is not None and running.is_over:
                return condition()
            if time.monotonic() > deadline:
                raise Stuck(f"{what} did not happen in {limit_s:.0f} s")
            self.pause(poll_s)
        return True

    def pause(self, seconds: float) -> None:
        """Let some time pass."""
        if self._cancelled.wait(seconds):
            raise Cancelled

    def watch_writers(self) -> None:
        """Look now and then, while waiting, whether two processes write into one run folder."""
        self._next_count_s = 0.0

    def _count_writers(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_count_s:
            return
        self._next_count_s = now_s + WRITERS_INTERVAL_S
        seen = {
            (path, frozenset(pids))
            for path, pids in writers(self._all_processes()).items()
            if len(pids) > 1
        }
        # A process that has just been forked holds the files of its parent until it runs a program
        # of its own: two writers are two that are seen twice.
        for path, pids in seen & self._seen_writers:
            if path not in self._two_writers:
                self._two_writers.add(path)
                self.break_promise("single", f"processes {sorted(pids)} write {path} at once")
        self._seen_writers = seen

    def end(
        self,
        begun: Begun,
        expected: Expected,
        limit_s: float = EXIT_LIMIT_S,
        gone_limit_s: float | None = GONE_LIMIT_S,
    ) -> Session:
        """Wait for the end of a session, look at what it left, and judge it.

        Args:
          begun: the session.
          expected: how it should end.
          limit_s: until the program itself ends.
          gone_limit_s: until its last process ends; None: they are left alone.
        """
        self._begun.remove(begun)
        running = begun.running
        with contextlib.suppress(Stuck):
            self.wait("the end", lambda: running.is_over, limit_s)
        status = running.status
        if status is None:
            self._keep_stacks(running)
        left = [] if gone_limit_s is None else self._wait_gone(running, gone_limit_s)
        running.terminal.leave()
        after = None
        folder = begun.folder or self.find_run()
        if not begun.shares_folder and folder is not None and folder.is_dir():
            after = take_snapshot(folder)
        session = Session(
            number=len(self.sessions) + 1,
            arguments=running.request.arguments,
            expected=expected,
            save_period=_period(running.request.arguments, self.configuration.save_period),
            reproducible=self.configuration.reproducible,
            resumed=begun.resumed,
            status=status,
            seconds=time.monotonic() - running.began_s,
            output=running.terminal.text(),
            log="" if after is None else added_log(begun.before, after.path),
            before=begun.before,
            after=after,
            signals=running.signals,
            left_processes=left,
            left_files=self._left_files(running),
            left_locks=[] if after is None else held_locks(after.path),
            left_memory=self._left_memory(),
        )
        self.sessions.append(session)
        self.violations += check_session(session)
        return session

    def check_nothing_left(self) -> None:
        """Expect that no process of any session is alive, and end those that are."""
        deadline = time.monotonic() + GONE_LIMIT_S
        while (left := self._all_processes()) and time.monotonic() < deadline:
            self.pause(0.05)
        if left:
            self.break_promise("clean", f"processes were left: {'; '.join(describe(left))}")
            end_processes(left)

    def judge_folder(self, path: Path) -> None:
        """Check a run folder that belongs to no session of ours, such as a sequence's."""
        session = Session(
            number=len(self.sessions) + 1, arguments=(), expected=Expected(), status=0, seconds=0.0,
            save_period=self.configuration.save_period,
            reproducible=self.configuration.reproducible,
            resumed=False, output="", log="", before=None, after=take_snapshot(path),
        )  # fmt: skip
        self.sessions.append(session)
        self.violations += check_session(session)

    def give_up(self) -> None:
        """Kill and judge the sessions that a scenario left running because something was stuck."""
        for begun in list(self._begun):
            self._keep_stacks(begun.running)
            end_processes(begun.running.processes())
            killed = Expected(statuses=(-9,), saved=False, leaves_temporaries=True, quiet=True)
            self.end(begun, replace(killed, journals=False))

    def close(self) -> None:
        """End every session that is still there."""
        for begun in self._begun:
            begun.running.terminal.leave()
        self._begun = []
        end_processes(self._all_processes())

    def _all_processes(self) -> list[psutil.Process]:
        return processes_of(self._started.keys(), self._started.values())

    def _keep_stacks(self, running: Running) -> None:
        """Keep where a session hangs: evidence for whoever looks into it."""
        text = stack_text(running.processes())
        (self.folder / f"hangs_{len(self.sessions) + 1}.txt").write_text(text)

    def _wait_gone(self, running: Running, limit_s: float) -> list[str]:
        """Return the processes that outlive the program for too long, and end them."""
        deadline = time.monotonic() + limit_s
        while (left := running.processes()) and time.monotonic() < deadline:
            self.pause(0.05)
        names = describe(left)
        end_processes(left)
        return names

    def _left_files(self, running: Running) -> list[str]:
        folder = Path(running.request.environment["TMPDIR"])
        found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
        return [name for name in found if not name.startswith(CACHES)]

    def _left_memory(self) -> list[str]:
        left = [name for name in self._spawner.shared_memory() if name not in self._shm_before]
        self._shm_before += left
        return left


def _period(arguments: tuple[str, ...], default: int) -> int:
    """Return the save period that a command line asks for; of two, the last."""
    given = [text for text in arguments if text.startswith("--save_model_period=")]
    return int(given[-1].partition("=")[2]) if given else default

"""The learner's side of the warden: a small process that ends what the learner leaves behind.

It waits for the learner's end of a pipe to be closed, which the kernel does however the learner
dies. Until then it does nothing. What it does then is in core/process_death.py, with the reasons.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

from ritornello.core import process_death
from ritornello.core.process_death import LEAVE_S, NO_GROUP, Family, children_deaf_to, own_family

log = logging.getLogger(__name__)

PROGRAM = Path(process_death.__file__).resolve()
CLOSE_S = 2.0  # without families it leaves at once
MAX_STARTS = 10  # one that always ends has a reason that another start does not take away


class Warden:
    """Starts the warden, tells it which families there are, and replaces it if it dies.

    Not thread-safe: used by the thread that starts and ends the families. A warden that cannot be
    started is reported once and done without: workers that can still run end themselves.
    """

    def __init__(self, leave_s: float = LEAVE_S) -> None:
        """Start nothing; the first family does.

        Args:
          leave_s: the time for families to leave by themselves once this process is gone.
        """
        self._leave_s = leave_s
        self._families: dict[int, Family] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def pid(self) -> int | None:
        """Its process id, if it runs."""
        return None if self._process is None else self._process.pid

    def keep(self, head: int, family: Family) -> None:
        """From now on a family is ended when this process ends.

        Args:
          head: process id of the first process of the family.
          family: the family, which its mark tells from others.
        """
        self._families[head] = family
        if self._process is None:
            self._start()
        else:
            self._tell(f"+{head} {family.mark}\n")

    def keep_own_children(self) -> None:
        """From now on all that this process has started is ended when it ends, if it is marked."""
        family = own_family()
        if family is not None:
            self.keep(NO_GROUP, family)

    def release(self, head: int) -> None:
        """Forget a family: it has ended."""
        if self._families.pop(head, None) is not None:
            self._tell(f"-{head}\n")

    def check(self) -> None:
        """Start a new one in the place of one that died. Cheap: call it now and then."""
        if self._process is not None and self._process.poll() is not None:
            log.warning("the warden (pid %d) ended; starting another", self._process.pid)
            self._let_go()
            self._start()

    def close(self) -> None:
        """Let it leave. If families are left it ends them first, in its own time. Idempotent."""
        self.release(NO_GROUP)  # this process lives, and looks after what it has started
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        if self._families:
            # Nobody waits for it any more; without this, Python would complain that it runs.
            process.returncode = 0
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(CLOSE_S)
        self._let_go()

    def _start(self) -> None:
        if self._starts >= MAX_STARTS:
            return
        self._starts += 1
        try:
            # What is sent to all processes of a terminal must not end it before the learner, so it
            # has a session of its own and never hears what asks programs to end. Without site and
            # environment variables it takes 50 ms to start, and 10 MB.
            with children_deaf_to(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(PROGRAM), str(self._leave_s)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,
                    start_new_session=True,
                    cwd="/",
                )
        except OSError as error:
            self._starts = MAX_STARTS
            log.warning(
                "the process that ends workers when the learner is killed cannot be started (%s): "
                "workers will end themselves, unless they hang",
                error,
            )
            return
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        for head, family in list(self._families.items()):
            self._tell(f"+{head} {family.mark}\n")

    def _tell(self, line: str) -> None:
        """Send a line; it is short enough to arrive whole or not at all."""
        if self._process is None or self._process.stdin is None:
            return
        written = None
        with contextlib.suppress(OSError):
            written = self._process.stdin.write(line.encode())
        if written is None:  # it is dead, or was stopped and its pipe is full: `check` replaces it
            self._process.kill()

    def _let_go(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(CLOSE_S)
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()

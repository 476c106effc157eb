"""The learner's side of the warden: a small process that ends what the learner leaves behind.

It waits for the learner's end of a pipe to be closed, which the kernel does however the learner
dies. Until then it does nothing. What it does then is in core/process_death.py, with the reasons.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from pathlib import Path

from ritornello.core import process_death
from ritornello.core.leaving import wait_for_killed
from ritornello.core.process_death import LEAVE_S, NO_GROUP, Family, children_deaf_to, own_family
from ritornello.core.stop_signals import SIGNALS

log = logging.getLogger(__name__)

PROGRAM = Path(process_death.__file__).resolve()
CLOSE_S = 2.0  # without families it leaves at once


class Warden:
    """Starts the warden process, and tells it which families there are.

    Not thread-safe: used by the thread that starts and ends the families. If the warden cannot be
    started, or has died, workers that can still run end themselves.
    """

    def __init__(self) -> None:
        """Start nothing; the first family does."""
        self._heads: set[int] = set()  # of the families
        self._process: subprocess.Popen[bytes] | None = None
        self._was_tried = False

    @property
    def pid(self) -> int | None:
        """Its process id, if it runs."""
        return None if self._process is None else self._process.pid

    def keep(self, head: int, family: Family) -> None:
        """End a family, from now on, when this process ends; `head` is its first process's id."""
        self._heads.add(head)
        if not self._was_tried:
            self._was_tried = True
            self._start()
        self._tell(f"+{head} {family.mark}\n")

    def keep_own_children(self) -> None:
        """End all marked processes that this one has started, from now on, when it ends."""
        family = own_family()
        if family is not None:
            self.keep(NO_GROUP, family)

    def release(self, head: int) -> None:
        """Forget a family: it has ended."""
        if head in self._heads:
            self._heads.discard(head)
            self._tell(f"-{head}\n")

    def close(self) -> None:
        """Let the warden leave, after it has ended the families that are left. Idempotent."""
        self.release(NO_GROUP)  # this process lives, and looks after what it has started
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        self._process = None
        if self._heads:
            # Nobody waits for it any more; without this, Python would complain that it runs.
            process.returncode = 0
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(CLOSE_S)
        process.kill()  # nothing, if it has ended
        wait_for_killed(process)

    def _start(self) -> None:
        try:
            # What is sent to all processes of a terminal, or of a job of Slurm, must not end it
            # before the learner, so it has a session of its own and never hears what asks programs
            # to end. Without site and environment variables it takes 50 ms to start, and 10 MB.
            with children_deaf_to(*SIGNALS):
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(PROGRAM), str(LEAVE_S)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,
                    start_new_session=True,
                    cwd="/",
                )
        except OSError as error:
            log.warning(
                "the process that ends workers when the learner is killed cannot be started (%s): "
                "workers will end themselves, unless they hang",
                error,
            )
            return
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    def _tell(self, line: str) -> None:
        """Send a line; it is short enough to arrive whole or not at all."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it is dead
                self._process.stdin.write(line.encode())

"""`--learner_count=N`: a small process that starts N learners on this machine and waits for them.

    python main.py --learner_count=2 ...
      launcher (this file; imports nothing that is large)
        ├─ python main.py ...       learner 0: run folder, checkpoints, terminal
        └─ python main.py ...       learner 1

It does what `torchrun --standalone` does, but for how things end:

| what happens | what the launcher does |
|---|---|
| SIGINT, SIGTERM or SIGHUP | passes it on once to each learner; all stop, and learner 0 saves |
| a learner dies or fails | nothing: the others notice at once, and learner 0 says which |
| learner 0 has failed | kills the others after a few seconds, by which they have ended |
| learner 0 was killed | gives another one minutes to notice and to save in its place |
| a learner is left alone, and it is stopped | kills it |
| the run is done, and learner 0 plays the last evaluation | waits |
| the launcher dies | the learners get SIGTERM (core/process_death.py): they save |

The exit status of learner 0 is that of the run.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from types import FrameType

from ritornello.agent.learners.place import LOOPBACK, SOCKET
from ritornello.core.process_death import children_deaf_to, environment_for_child
from ritornello.core.project import main_program
from ritornello.core.standard_error import say
from ritornello.core.stop_signals import INTERRUPTED, SIGNALS, handled_by, let_through

LOOK_S = 0.1
LEAVE_S = 5.0  # for a learner to end that is stopped, or of a run that has failed
LAST_S = 600.0  # for a learner to save, perhaps gigabytes, and end, once the others have ended


class Launcher:
    """Starts the learners of a run and waits for their end. Used by the main thread, once."""

    def __init__(self, argv: Sequence[str], count: int) -> None:
        """Start nothing; `count` is the number of learners, at least 2."""
        self._argv = list(argv)
        self._count = count
        self._learners: list[subprocess.Popen[bytes]] = []
        self._signals: list[int] = []  # what the user has sent
        self._killed: list[int] = []  # learners that did not end by themselves

    def run(self) -> int:
        """Start the learners, wait for their end, and return the exit status of the run."""
        with handled_by(self._pass_on):
            let_through()
            try:
                # Only this machine can reach it, and nobody can take the port in between.
                with socket.create_server((LOOPBACK, 0)) as server:
                    for rank in range(self._count):
                        self._learners.append(self._start(rank, server))
                        if self._signals:  # before there was anybody to tell
                            self._learners[-1].send_signal(self._signals[0])
                self._wait()
            except OSError as error:
                say(
                    f"error: learner {len(self._learners)} could not be started: {error}; let "
                    "fewer processes run, or raise the limits of the system (ulimit -u, -n)"
                )
                return 1
            finally:
                self._kill()
        return self._status()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
        for learner in self._learners:
            learner.send_signal(number)

    def _start(self, rank: int, server: socket.socket) -> subprocess.Popen[bytes]:
        environment = {
            # When a learner dies, gloo's store adds 20 lines of C++ frames to what learners say.
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            **environment_for_child(),
            "RANK": str(rank),
            "WORLD_SIZE": str(self._count),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(self._count),
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(server.getsockname()[1]),
            SOCKET: str(server.fileno()),
        }
        # A session of its own: the terminal sends Ctrl-C to every process in its group, and a
        # learner must get exactly one, from us. It waits until the learner has a handler.
        with children_deaf_to(*SIGNALS):
            return subprocess.Popen(
                [*main_program(), *self._argv],
                env=environment,
                pass_fds=[server.fileno()] if rank == 0 else [],
                start_new_session=True,
            )

    def _wait(self) -> None:
        """Wait until all have ended, or those that are left have had their time."""
        ends_since = None  # when those that are left were last given a limit
        while left := [learner for learner in self._learners if learner.poll() is None]:
            limit_s, now = self._limit_s(left), time.monotonic()
            ends_since = None if limit_s is None else ends_since or now
            if limit_s is not None and ends_since is not None and now - ends_since >= limit_s:
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                left[0].wait(LOOK_S)

    def _limit_s(self, left: Sequence[subprocess.Popen[bytes]]) -> float | None:
        """Return how long those that are left have to end; None as long as the run goes on."""
        first, *others = self._learners
        if first in left and any(other in left for other in others):
            return None
        has_failed = (first.poll() or 0) > 0 and first.poll() != INTERRUPTED
        if has_failed or all(_is_stopped(one.pid) for one in left):
            return LEAVE_S
        # Learner 0 plays the evaluations that are due to their end, unless somebody stops the run.
        is_done = not (self._signals or any(other.poll() for other in others))
        return None if first in left and is_done else LAST_S

    def _kill(self) -> None:
        for rank, learner in enumerate(self._learners):
            if learner.poll() is None:
                learner.kill()
                self._killed.append(rank)
        for learner in self._learners:
            with contextlib.suppress(subprocess.TimeoutExpired):
                learner.wait(LEAVE_S)

    def _status(self) -> int:
        """Return the exit status of the run; report the reason where no learner could."""
        first, *others = [learner.poll() for learner in self._learners]
        if first is None or first < 0:
            ends = [self._end_of(rank) for rank in (0, *filter(None, self._killed))]
            say(f"error: {'; '.join(ends)}; a resume goes on from the newest checkpoint")
            return 1
        for rank, status in enumerate(others, start=1):
            if status and not first:
                say(f"error: {self._end_of(rank)}; the run is saved")
                return 1
        return first

    def _end_of(self, rank: int) -> str:
        """Return how a learner has ended that was killed, or whose status nobody else tells."""
        status = self._learners[rank].poll()
        if rank in self._killed or status is None:
            return f"learner {rank} did not end, stopped or hanging, and was killed"
        if status > 0:
            return f"learner {rank} ended with status {status}"
        name = next((s.name for s in signal.Signals if s == -status), -status)
        return f"learner {rank} was killed by {name}"


def _is_stopped(pid: int) -> bool:
    """Whether a process is stopped (SIGSTOP), as far as the system says it (Linux)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        return False

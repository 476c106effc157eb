"""The harness's end of the zygote: starts programs, and knows when they have ended.

One spawner belongs to one lane (one scenario after the other in one thread); it is not thread-safe.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.leftovers import MARK
from tests.chaos.zygote import MESSAGE_BYTES, ROOT

READY_LIMIT_S = 180.0  # imports, on a machine that is busy
ANSWER_LIMIT_S = 60.0


class ZygoteDied(Exception):
    """The zygote is gone or does not answer."""


@dataclass(frozen=True)
class Request:
    """A program to start. Everything but the arguments has the value of an ordinary start."""

    program: str  # "main.py" or "multi_train.py"
    arguments: tuple[str, ...]
    mark: str  # tells its processes from all others
    anew: bool = False  # a new interpreter rather than a fork: imports take their time
    bare: bool = False  # without the settings that let main.py skip its restart
    environment: dict[str, str] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)  # "NOFILE": 64
    ignored_signals: tuple[str, ...] = ()
    terminal: bool = False  # standard input is its controlling terminal
    closed_output: bool = False  # as `>&-` in a shell


class Spawner:
    """Starts programs through a zygote of its own."""

    def __init__(self, *, bare: bool = False) -> None:
        """Start the zygote; it is not ready before it has imported everything (`wait_ready`).

        Args:
          bare: import nothing beforehand: for programs that are not ours.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.chaos.zygote",
                str(theirs.fileno()),
                *(["--bare"] if bare else []),
            ],
            cwd=ROOT,
            env={**os.environ, **settings(), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # a Ctrl-C for the harness is not for what it tests
        )
        theirs.close()
        self._ended: dict[int, tuple[int, float]] = {}
        self.own_shm = False

    @property
    def pid(self) -> int:
        """The zygote's process."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Wait until programs can be started."""
        hello = self._receive(READY_LIMIT_S)
        if hello is None or "ready" not in hello:
            raise ZygoteDied(f"the zygote (pid {self.pid}) does not get ready: {hello}")
        self.own_shm = hello["own_shm"]

    def start(self, request: Request, descriptors: tuple[int, int, int]) -> int:
        """Start a program on these descriptors (standard input, output, error); return its pid."""
        message: dict[str, Any] = {
            "program": request.program,
            "arguments": list(request.arguments),
            "anew": request.anew,
            "environment": {**request.environment, MARK: request.mark},
            "unset": list(settings()) if request.bare else [],
            "limits": request.limits,
            "ignored_signals": list(request.ignored_signals),
            "terminal": request.terminal,
            "closed_output": request.closed_output,
        }
        socket.send_fds(self._control, [json.dumps(message).encode()], list(descriptors))
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while time.monotonic() < deadline:
            answer = self._receive(1.0)
            if answer is not None and "started" in answer:
                pid = int(answer["started"])
                self._ended.pop(pid, None)  # of an earlier process with the same number
                return pid
        raise ZygoteDied(f"the zygote (pid {self.pid}) does not answer")

    def status(self, pid: int) -> int | None:
        """Return how a program ended (minus the signal's number), or None while it runs."""
        while self._receive(0.0) is not None:
            pass
        ended = self._ended.get(pid)
        return None if ended is None else ended[0]

    def close(self) -> None:
        """End the zygote and everything that it has ever started."""
        self._control.close()
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def shared_memory(self) -> list[str]:
        """Return the names in the /dev/shm of what this zygote starts; [] if it has none alone."""
        if not self.own_shm:
            return []
        with contextlib.suppress(OSError):
            return sorted(os.listdir(f"/proc/{self.pid}/root/dev/shm"))
        return []

    def _receive(self, timeout_s: float) -> dict[str, Any] | None:
        self._control.settimeout(timeout_s if timeout_s > 0 else None)
        try:
            flags = 0 if timeout_s > 0 else socket.MSG_DONTWAIT
            data = self._control.recv(MESSAGE_BYTES, flags)
        except (TimeoutError, BlockingIOError):
            return None
        if not data:
            raise ZygoteDied(f"the zygote (pid {self.pid}) has died")
        message: dict[str, Any] = json.loads(data)
        if "ended" in message:
            self._ended[int(message["ended"])] = (int(message["status"]), time.monotonic())
        return message


def settings() -> dict[str, str]:
    """Return the environment that main.py would restart itself with, whatever is set here."""
    try:
        from ritornello.core.process_settings import SETTINGS
    except ImportError:  # it is then as slow as any other start, and as right
        return {}
    return dict(SETTINGS)

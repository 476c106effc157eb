"""A program under test while it runs: its output, its processes, the signals that it is sent."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.chaos.leftovers import processes_of
from tests.chaos.spawner import Request, Spawner

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r")


class Terminal:
    """Where a program prints to. `kind`: file, pipe (closed after lines), full, pty, closed."""

    def __init__(self, kind: str, path: Path, *, lines: int = 1) -> None:
        """Open it.

        Args:
          kind: see the class.
          path: what was printed is kept here, as far as anybody read it.
          lines: read from a pipe before it is closed, as `head -<lines>` does.
        """
        self.kind = kind
        self._path = path
        self._frozen = self._left = False
        self._master: int | None = None
        self._reader: threading.Thread | None = None
        null = os.open(os.devnull, os.O_RDWR)
        if kind in ("file", "closed"):
            output = self._open_path()
            self.descriptors = (null, output, output)
        elif kind == "full":
            self.descriptors = (null, os.open("/dev/full", os.O_WRONLY), self._open_path())
        elif kind == "pipe":
            source, output = os.pipe()
            self.descriptors = (null, output, output)
            self._read_with(lambda: self._read_pipe(source, lines))
        elif kind == "pty":
            os.close(null)
            master, slave = pty.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
            self.descriptors = (slave, slave, slave)
            self._master = master
            self._read_with(lambda: self._read_pty(master))
        else:
            raise ValueError(f"unknown kind of terminal {kind!r}")

    def handed_over(self) -> None:
        """Close our copies of what the program has by now."""
        for descriptor in set(self.descriptors):
            os.close(descriptor)

    def freeze(self) -> None:
        """Read no more: the program's writes wait once the buffer is full."""
        self._frozen = True

    def type(self, data: bytes) -> None:
        """Type on a pty: b"\\x13" is Ctrl-S, b"\\x03" is Ctrl-C."""
        assert self._master is not None
        os.write(self._master, data)

    def leave(self) -> None:
        """Close our side; of a pty, the system then sends SIGHUP to the program."""
        self._left = True
        if self._reader is not None and self.kind == "pty":
            self._reader.join(5.0)
        if self._master is not None:
            os.close(self._master)
            self._master = None

    def text(self) -> str:
        """Return what was printed and read so far, without control sequences."""
        try:
            return _CONTROL.sub("", self._path.read_text("utf-8", errors="replace"))
        except OSError:
            return ""

    def _open_path(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def _read_with(self, target: Callable[[], None]) -> None:
        self._reader = threading.Thread(target=target, daemon=True)
        self._reader.start()

    def _read_pipe(self, source: int, lines: int) -> None:
        with open(source, "rb") as printed, open(self._path, "ab") as kept:
            for _ in range(lines):
                kept.write(printed.readline())

    def _read_pty(self, master: int) -> None:
        with open(self._path, "ab", buffering=0) as kept, contextlib.suppress(OSError):
            while not self._left:
                if self._frozen:
                    time.sleep(0.02)
                elif select.select([master], [], [], 0.05)[0]:
                    kept.write(os.read(master, 1 << 14))


@dataclass
class Running:
    """One session of a program: a process and its descendants."""

    request: Request
    spawner: Spawner
    terminal: Terminal
    pid: int
    began_s: float = field(default_factory=time.monotonic)
    began_at: float = field(default_factory=time.time)  # as files are dated
    signals: list[tuple[float, str]] = field(default_factory=list)  # seconds since start, what

    @property
    def status(self) -> int | None:
        """The exit status (minus the number of a signal), or None while it runs."""
        return self.spawner.status(self.pid)

    @property
    def is_over(self) -> bool:
        """Whether the program itself has ended."""
        return self.status is not None

    def processes(self) -> list[psutil.Process]:
        """Return every living process of the session, orphans included."""
        return processes_of([self.request.mark], [self.pid])

    def children(self) -> list[psutil.Process]:
        """Return what Python's spawn started in this session, oldest first: workers and servers."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if "--multiprocessing-fork" in process.cmdline():
                    found.append(process)
        return sorted(found, key=lambda process: (process.create_time(), process.pid))

    def send(self, number: int, *, to: int | None = None, group: bool = False) -> bool:
        """Send a signal to the program, one of its processes, or its group; False: it is gone."""
        target = self.pid if to is None else to
        name = signal.Signals(number).name
        whom = "group" if group else "program" if to is None else f"pid {to}"
        self.signals.append((time.monotonic() - self.began_s, f"{name} to {whom}"))
        if to is None and self.is_over:
            return False
        try:
            os.killpg(target, number) if group else os.kill(target, number)
        except ProcessLookupError:
            return False
        return True

    def maps(self, library: str) -> bool:
        """Whether the program has loaded a library whose file name contains this text.

        A process that has just been forked is not yet the program, but a copy of the spawner.
        """
        try:
            command = Path(f"/proc/{self.pid}/cmdline").read_text().split("\0")
            is_program = any(part.endswith(self.request.program) for part in command)
            return is_program and library in Path(f"/proc/{self.pid}/maps").read_text()
        except OSError:
            return False

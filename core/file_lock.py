"""A lock on a folder that no death can leave behind.

`flock` belongs to an open file, and the kernel gives it up when the last process that has the file
open is gone, however it ended. So there are no stale locks, and whoever cannot get one knows that
somebody is alive. A child can be handed the open file: then the lock is held until both are gone.
The file's text, the process id of the holder, is for people only.

Where there is no `flock` (Windows), every lock is granted.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from core.errors import ConfigError
from core.plain_data import shown_text

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOOK_S = 0.2  # how often a waiting process asks again


class FileLock:
    """An exclusive lock, held from `acquire` to `release` or to the end of all who have it open."""

    def __init__(self, path: Path) -> None:
        """Name the file; it is made when the lock is acquired, and stays."""
        self.path = path
        self._file = -1

    @property
    def descriptor(self) -> int:
        """The open file, for `pass_fds` of a child that is to hold the lock too; -1: not held."""
        return self._file

    def acquire(self) -> bool:
        """Take the lock if it is free; return whether it is ours now.

        Raises:
          ConfigError: if the file cannot be made, or is a link to somewhere else.
        """
        if self._file >= 0:
            return True
        try:
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            file = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise ConfigError(
                f"cannot make {shown_text(str(self.path))}: {error.strerror}. It is needed to see "
                "to it that no two programs write there."
            ) from error
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        self._file = file
        self.name_holder(os.getpid())
        return True

    def name_holder(self, pid: int) -> None:
        """Write into the file who holds the lock. A full disk does not matter to the lock."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{pid}\n".encode(), 0)

    def holder(self) -> str:
        """Return "process 4121", or "another process" if the file does not say."""
        with contextlib.suppress(OSError, ValueError):
            return f"process {int(self.path.read_bytes()[:20])}"
        return "another process"

    def wait(self, deadline_s: float, waiting: Callable[[], bool] = lambda: True) -> bool:
        """Acquire the lock, if need be after whoever has it is gone; return whether it is ours.

        Args:
          deadline_s: seconds to wait at most.
          waiting: called before each further look; returns whether to go on waiting.
        """
        ends_at_s = time.monotonic() + deadline_s
        never = threading.Event()
        while not self.acquire():
            if time.monotonic() >= ends_at_s or not waiting():
                return False
            never.wait(LOOK_S)
        return True

    def release(self) -> None:
        """Give the lock up, unless a child still has it open. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

"""One session at a time in a run folder: a lock that the kernel frees, however its holder dies.

    with RunLock(folder.path):      # ConfigError if another session trains there
        ...                         # rewind, write flags, train

It is taken before anything in the folder is touched. The lock is `flock` on `<run>/lock`, which is
tied to the open file and not to the file's content: nothing that a dead process has left can keep
the next one out. What the file says is for people: who has it, where, since when.

Processes started by "spawn" do not inherit the open file, so no worker that outlives its learner
keeps the lock. Where the system or the file system knows no such lock (Windows, some network
mounts), there is none, and the log says so.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import socket
import stat
import threading
import time
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from core.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
LOOK_AGAIN_S = 0.2
# What file systems say that have no locks; others are real failures.
NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)

log = logging.getLogger(__name__)


class RunLock:
    """The right to write into a run folder, as a context manager. Not reentrant; use once."""

    def __init__(self, folder: Path | str, *, wait_s: float = 0.0) -> None:
        """Ask for nothing yet; see `acquire`.

        Args:
          folder: of the run; it exists.
          wait_s: how long to wait for another session to end. A program that has just killed one
            may give it a moment.
        """
        self._folder = Path(folder)
        self._wait_s = wait_s
        self._descriptor: int | None = None

    def acquire(self) -> RunLock:
        """Take the lock.

        Raises:
          ConfigError: if another session has it, or the folder cannot be written to.
        """
        descriptor = self._open()
        try:
            self._lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return self

    def release(self) -> None:
        """Let the next one in. May be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        # The file stays: removing it could take away the one that the next session has locked.
        with contextlib.suppress(OSError):  # such as a full disk; the lock itself is free anyway
            os.ftruncate(descriptor, 0)
        os.close(descriptor)

    def __enter__(self) -> RunLock:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _open(self) -> int:
        path = self._folder / LOCK
        # Not through a link, which could lead to anybody's file. O_NONBLOCK: a pipe must not wait.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            descriptor = os.open(path, flags, 0o644)
        except OSError as error:
            raise ConfigError(
                f"cannot open {path}, which keeps a second session out of the folder: "
                f"{error.strerror}. Expected a folder that you may write to, and no link or folder "
                "of that name in it; --new_run_folder=True resumes elsewhere."
            ) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ConfigError(f"{path} is not a regular file: remove it, whoever has put it there.")
        return descriptor

    def _lock(self, descriptor: int) -> None:
        deadline = time.monotonic() + self._wait_s
        while not _try_lock(descriptor, self._folder):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise ConfigError(
                    f"{self._folder} belongs to {_holder(descriptor)}: expected a run folder in "
                    "which nobody trains. Stop that process (Ctrl-C, or kill with its number) and "
                    "try again, or go on in a folder of its own with --new_run_folder=True."
                )
            threading.Event().wait(min(LOOK_AGAIN_S, left_s))
        about = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        with contextlib.suppress(OSError):  # on a full disk the lock holds, but has no name
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, (json.dumps(about) + "\n").encode(), 0)


def _try_lock(descriptor: int, folder: Path) -> bool:
    """Lock an open file; False if somebody else has it. True also where there are no locks."""
    if fcntl is None:
        log.debug("this system has no flock: nothing keeps a second session out of %s", folder)
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno not in NO_LOCKS_HERE:
            raise ConfigError(f"cannot lock {folder / LOCK}: {error.strerror}.") from error
        log.warning(
            "%s is on a file system without locks (%s): see to it that no second session trains "
            "there", folder, error.strerror,
        )  # fmt: skip
    return True


def _holder(descriptor: int) -> str:
    """Return who has the lock, as far as the file says."""
    try:
        about: Any = json.loads(os.pread(descriptor, 1000, 0))
        pid, host, since = int(about["pid"]), str(about["host"]), str(about["since"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return "another process"
    where = "" if host == socket.gethostname() else f" on {host}"
    text = f"process {pid}{where}, which has trained in it since {since}"
    return text if text.isprintable() and len(text) < 200 else "another process"

"""A lock that is released whenever its holder dies.

`flock` belongs to an open file. The kernel releases it when the last process that has the file open
is gone, for whatever reason. There are therefore no stale locks, and a process that cannot get the
lock knows that its holder is alive. A process started by "spawn" does not inherit the open file. If
a child gets the file explicitly, the lock is held until both processes are gone. The file also
names the holder and the time, for people to read.

Where the file system knows no such lock (some network mounts), every lock is granted, and the log
says so.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, read_text, shown_text

LOOK_S = 0.2  # how often a waiting process asks again
MAX_HOLDER_BYTES = 1000
# What file systems say that have no locks; others are real failures.
NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)

log = logging.getLogger(__name__)


class FileLock:
    """An exclusive lock, held from `acquire` to `release` or to the end of all who have it open."""

    def __init__(self, path: Path) -> None:
        """Name the file; it is made when the lock is acquired, and stays."""
        self.path = path
        self.descriptor = -1  # for `pass_fds` of a child that is to hold the lock too; -1: not held

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> bool:
        """Take the lock if it is free; return whether it is ours now.

        Raises:
          ConfigError: if the file cannot be made or locked, or is no regular file.
        """
        if self.descriptor >= 0:
            return True
        file, is_ours = self._open(), False
        try:
            is_ours = try_lock(file, self.path)
        finally:
            if not is_ours:
                os.close(file)
        if is_ours:
            self.descriptor = file
            self.name_holder(os.getpid())
        return is_ours

    def wait(self, deadline_s: float, waiting: Callable[[], bool] = lambda: True) -> bool:
        """Acquire the lock, waiting at most `deadline_s` for its holder; return whether it is ours.

        `waiting` is called before each further look; it returns whether to go on waiting.
        """
        ends_at_s = time.monotonic() + deadline_s
        while not self.acquire():
            if time.monotonic() >= ends_at_s or not waiting():
                return False
            threading.Event().wait(LOOK_S)
        return True

    def release(self) -> None:
        """Give the lock up, unless a child still has it open. Idempotent.

        The file stays: removing it could take away the one that the next holder has locked.
        """
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _open(self) -> int:
        # Not through a link, which could lead to anybody's file. O_NONBLOCK: a pipe must not wait.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise ConfigError(
                f"cannot open {shown_text(str(self.path))}: {error.strerror}. It is needed to see "
                "to it that no two programs write there: expected a folder that you may write to, "
                "and no link or folder of that name in it."
            ) from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise ConfigError(
                f"{shown_text(str(self.path))} is not a regular file: remove it, whoever has put "
                "it there."
            )
        return file

    def name_holder(self, pid: int) -> None:
        """Write into the file who holds the lock. A full disk does not matter to the lock."""
        about = {
            "pid": pid,
            "host": socket.gethostname(),
            "since": datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, (json.dumps(about) + "\n").encode(), 0)

    def holder(self) -> str:
        """Return "process 4121, since <time>", or "another process" if the file does not say."""
        try:
            about = parse_json(read_text(self.path, "the lock", MAX_HOLDER_BYTES), "the lock")
            pid, host, since = int(about["pid"]), str(about["host"]), str(about["since"])
        except (ConfigError, ArithmeticError, ValueError, LookupError, TypeError):
            return "another process"
        where = "" if host == socket.gethostname() else f" on {host}"
        return f"process {pid}{shown_text(where, 80)}, since {shown_text(since, 80)}"


def try_lock(file: int, path: Path, *, together: bool = False) -> bool:
    """Lock an open file; False if somebody else has it. True also where there are no locks.

    `file` is its descriptor, and `path` its name, for messages. With `together`, others may lock it
    in the same way meanwhile.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if together else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno not in NO_LOCKS_HERE:
            raise ConfigError(f"cannot lock {path}: {error.strerror}.") from error
        log.warning(
            "%s is on a file system without locks (%s): see to it that no second program writes "
            "there", path, error.strerror,
        )  # fmt: skip
    return True

"""RayFolder: where a private Ray has its sockets and logs, removed with the gateway or after it.

A gateway that is killed cannot remove its folder; the next one that starts a private Ray does. A
folder is in use as long as a lock in it is held, which the kernel releases at the death of its
holder. A process id would not do: in another container with the same /tmp it is another process.

Ray opens its folder to all users of the machine. Therefore it is inside of one that only this user
can enter, where nobody else can touch the lock.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX = "vtray-"
LOCK, RAY = "lock", "ray"


class RayFolder:
    """The folder of one private Ray, held until `remove` or the end of this process."""

    def __init__(self) -> None:
        """Make one, and remove those whose gateways are gone."""
        _remove_abandoned()
        # It gets the name by which others find it when it is locked, and not before.
        hidden = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
        self._lock = os.open(hidden / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        with contextlib.suppress(OSError):  # without locks nobody finds it abandoned either
            _take(self._lock)
        self._folder = hidden.rename(hidden.with_name(hidden.name[1:]))
        self.path = str(self._folder / RAY)  # for Ray, which makes it

    def remove(self) -> None:
        """Remove it with all that Ray has left. May be called twice."""
        if self._lock >= 0:
            _remove(self._folder)
            os.close(self._lock)
            self._lock = -1


def _remove_abandoned() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # it has no lock, or somebody holds it
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            if stat.S_IMODE(found.st_mode) & 0o077:
                continue  # others could have changed what is in it
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                _take(lock)
                _remove(folder)
            finally:
                os.close(lock)


def _take(lock: int) -> None:
    """Lock an open file.

    Raises:
      OSError: somebody else has it, or there are no locks here.
    """
    if fcntl is None:
        raise OSError("this system has no flock.")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove(folder: Path) -> None:
    # The lock goes last: if a process of Ray still writes there, another gateway tries again.
    shutil.rmtree(folder / RAY, ignore_errors=True)
    if not (folder / RAY).exists():
        shutil.rmtree(folder, ignore_errors=True)

"""What the harness asks of Linux and Python has no function for: mounts, subreaping, inotify."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_REMOUNT, _MS_REC = 1, 32, 0x4000
_MS_PRIVATE, _MS_SLAVE, _MS_SHARED = 1 << 18, 1 << 19, 1 << 20
_MNT_DETACH = 2
_PR_SET_CHILD_SUBREAPER = 36
_IN_CREATE, _IN_MOVED_TO = 0x100, 0x80


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def become_subreaper() -> None:
    """Make orphans among this process's descendants its children."""
    _check(_LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def own_mounts(*, follow_others: bool = False) -> None:
    """Give this process a view of the mounts of its own; nobody outside sees what it mounts.

    Args:
      follow_others: take part in what the view that it comes from mounts later.
    """
    _check(_LIBC.unshare(_CLONE_NEWNS), "unshare")
    kind = _MS_SLAVE if follow_others else _MS_PRIVATE
    _check(_LIBC.mount(b"none", b"/", None, _MS_REC | kind, None), "mount /")
    if not follow_others:
        # Private towards the outside is done; now its own children may follow it.
        _check(_LIBC.mount(b"none", b"/", None, _MS_REC | _MS_SHARED, None), "mount /")


def mount_tmpfs(path: Path, options: str) -> None:
    """Mount a file system in memory, with options such as "size=600k,nr_inodes=40"."""
    text = options.encode()
    _check(_LIBC.mount(b"chaos", bytes(path), b"tmpfs", 0, text), f"mount {path}")


def make_read_only(path: Path, read_only: bool = True) -> None:
    """Change a mounted file system to read-only, or back."""
    flags = _MS_REMOUNT | (_MS_RDONLY if read_only else 0)
    _check(_LIBC.mount(b"chaos", bytes(path), b"tmpfs", flags, None), f"remount {path}")


def remount(path: Path, options: str) -> None:
    """Change the size of a file system in memory."""
    text = options.encode()
    _check(_LIBC.mount(b"chaos", bytes(path), b"tmpfs", _MS_REMOUNT, text), f"remount {path}")


def unmount(path: Path) -> None:
    """Take a mounted file system away, at the latest when the last process leaves it."""
    _check(_LIBC.umount2(bytes(path), _MNT_DETACH), f"umount {path}")


class FolderWatch:
    """Says at once which names appear in a folder (inotify)."""

    def __init__(self, folder: Path) -> None:
        """Begin to watch; the folder exists."""
        self.descriptor = _check(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")
        mask = _IN_CREATE | _IN_MOVED_TO
        _check(_LIBC.inotify_add_watch(self.descriptor, bytes(folder), mask), f"watch {folder}")

    def names(self, timeout_s: float) -> list[str]:
        """Return the names that appeared since the last call, waiting for the first of them."""
        if not select.select([self.descriptor], [], [], timeout_s)[0]:
            return []
        data, names = os.read(self.descriptor, 1 << 16), []
        while data:
            _, _, _, length = struct.unpack_from("iIII", data)
            names.append(data[16 : 16 + length].rstrip(b"\0").decode("utf-8", "replace"))
            data = data[16 + length :]
        return names

    def close(self) -> None:
        """Stop watching."""
        os.close(self.descriptor)

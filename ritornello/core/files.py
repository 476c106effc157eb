"""The few operations on a disk that decide whether a run survives a crash.

Files of a run are written through here (core/atomic_file.py, metrics/run_files.py), for two
reasons: each operation is a fault point, so that every single one of them can be made to fail; and
a test can put another disk in the place of this one, e.g. one that forgets what was not synced.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from ritornello.core import faults

# What file systems say that cannot sync a folder (some network mounts); others are real failures.
NO_SYNC_OF_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
BUFFER_BYTES = 1 << 20  # larger writes than this go to the system as they are


class Disk:
    """The file system, as it is. Each method is one operation and raises OSError if it fails."""

    def open(self, path: Path, *, append: bool = False) -> BinaryIO:
        """Open a file for writing, buffered; its content is lost unless `append`.

        Buffered bytes are lost if the process is killed: flush. Flushed bytes are lost if the power
        fails: `sync`.
        """
        faults.at("file.open", path)
        return cast(BinaryIO, io.BufferedWriter(_Raw(path, "ab" if append else "wb"), BUFFER_BYTES))

    def sync(self, path: Path) -> None:
        """Return when the bytes of a file that were given to the system are on the disk."""
        faults.at("file.sync", path)
        _sync(path)

    def sync_folder(self, path: Path) -> None:
        """Return when the names in a folder are on the disk."""
        faults.at("file.sync_folder", path)
        try:
            _sync(path)
        except OSError as error:
            if error.errno not in NO_SYNC_OF_FOLDERS:
                raise

    def replace(self, source: Path, target: Path) -> None:
        """Rename `source` to `target`, which is replaced at once."""
        faults.at("file.replace", target)
        os.replace(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; make a copy where the file system has no second names."""
        faults.at("file.link", target)
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a name; it is no error if it is gone already."""
        faults.at("file.unlink", path)
        path.unlink(missing_ok=True)


class _Raw(io.FileIO):
    """A file of which each write to the system is a fault point."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self._path = path

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Give bytes to the system; return how many it took."""
        write = super().write
        faults.at("file.write", self._path, tear=lambda count: write(memoryview(data)[:count]))
        return write(data)


_disk = Disk()


def disk() -> Disk:
    """Return the disk that files of a run are written to."""
    return _disk


@contextmanager
def using(other: Disk) -> Iterator[None]:
    """Replace the real disk by another in the block, in this process."""
    global _disk
    before, _disk = _disk, other
    try:
        yield
    finally:
        _disk = before


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Runs below a results folder, and the files in them. Nothing outside of it can be named.

A run is named by its path below the folder, such as `Pong_20261122-134500`, or
`sequence_20261122/001_queue_seed1/Pong_20261122-134500` for a run of a sequence. Whatever a browser
sends is such a name. It is walked from the folder down, one part at a time, and no part may be a
link. A file is opened only if it is a regular one, so neither a link nor a pipe can lead the page
astray.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.plain_data import parse_json, shown_text
from ritornello.core.run_layout import CHECKPOINTS, FLAGS, RECORDS

MAX_DEPTH = 4  # results/<collection>/<sequence>/<run of it>/<run folder>
MAX_FOLDERS = 20_000  # that are looked into; a results folder of years has fewer
MAX_JSON_BYTES = 4_000_000

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
# O_NONBLOCK: opening a pipe must not wait for somebody to write.
_FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class NotThereError(PlatformError):
    """What was asked for is not there, or is not in the results folder."""


class ResultsFolder:
    """A folder with runs at any depth up to MAX_DEPTH. Only reads. Thread-safe: it has no state."""

    def __init__(self, path: Path | str) -> None:
        """Name the folder; the folder of a single run means that run alone.

        Raises:
          ConfigError: if it is no folder that can be read.
        """
        root = Path(path).resolve()
        try:
            names = set(os.listdir(root))
        except OSError as error:
            raise ConfigError(
                f"cannot read the folder {shown_text(str(path))}: {error.strerror}. Expected the "
                "folder in which run folders lie, such as results."
            ) from error
        self._only = root.name if _is_run(names) else None
        self.root = root.parent if self._only else root

    def runs(self) -> list[str]:
        """Return the names of all runs, sorted. What cannot be read is passed over."""
        if self._only is not None:
            return [self._only]
        found: list[str] = []
        waiting = [("", 0)]
        looked_at = 0
        while waiting and looked_at < MAX_FOLDERS:
            place, depth = waiting.pop()
            looked_at += 1
            names, folders = _listing(self.root / place)
            if place and _is_run(names):
                found.append(place)
            elif depth < MAX_DEPTH:
                waiting += [(f"{place}/{name}" if place else name, depth + 1) for name in folders]
        return sorted(found)

    def folder(self, run: str) -> Path:
        """Return the folder of a run.

        Raises:
          NotThereError: if there is no such run in this folder.
        """
        parts = _parts(run)
        within = not self._only or run == self._only
        if within and len(parts) <= MAX_DEPTH:
            descriptor = self._walk(parts)
            try:
                names = set(os.listdir(descriptor))
            finally:
                os.close(descriptor)
            if _is_run(names):
                return self.root.joinpath(*parts)
        raise NotThereError(f"there is no run {shown_text(run)} here")

    def open(self, run: str, name: str) -> BinaryIO:
        """Open a file of a run for reading; `name` may lead into a folder, such as films/a.mp4.

        Raises:
          NotThereError: if there is no regular file of that name inside of the run's folder.
        """
        parts = (*_parts(run), *_parts(name))
        folder = self._walk(parts[:-1])
        try:
            file = os.open(parts[-1], _FILE | _NO_LINK, dir_fd=folder)
        except (OSError, ValueError) as error:
            raise NotThereError(f"{shown_text(run)} has no file {shown_text(name)}") from error
        finally:
            os.close(folder)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise NotThereError(f"{shown_text(name)} of {shown_text(run)} is no regular file")
        return os.fdopen(file, "rb")

    def listing(self, run: str, name: str) -> list[tuple[str, os.stat_result]]:
        """Return (name, facts) of the regular files in a folder of a run, the oldest first."""
        found = []
        with contextlib.suppress(NotThereError):
            folder = self._walk((*_parts(run), *_parts(name)))
            try:
                for file in os.listdir(folder):
                    with contextlib.suppress(OSError):
                        facts = os.stat(file, dir_fd=folder, follow_symlinks=False)
                        if stat.S_ISREG(facts.st_mode):
                            found.append((file, facts))
            finally:
                os.close(folder)
        return sorted(found, key=lambda each: (each[1].st_mtime_ns, each[0]))

    def facts(self, run: str, name: str) -> tuple[int, int, int]:
        """Return (time of change in ns, bytes, inode) of a file, zeros if there is none."""
        try:
            found = (self.root / run / name).lstat()
        except (OSError, ValueError):
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def json(self, run: str, name: str, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
        """Return the JSON object in a small file; empty if there is none, whatever is there."""
        try:
            with self.open(run, name) as file:
                content = file.read(limit + 1)
            data = parse_json(content.decode("utf-8"), name) if len(content) <= limit else None
        except (NotThereError, ConfigError, OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def _walk(self, parts: tuple[str, ...]) -> int:
        """Return a descriptor of a folder below the root, which the caller closes."""
        try:
            here = os.open(self.root, _DIRECTORY)
            for part in parts:
                try:
                    inner = os.open(part, _DIRECTORY | _NO_LINK, dir_fd=here)
                finally:
                    os.close(here)
                here = inner
        except (OSError, ValueError) as error:
            raise NotThereError(f"there is no folder {shown_text('/'.join(parts))} here") from error
        return here


def lines(file: BinaryIO, limit: int) -> Iterator[bytes]:
    """Yield the whole lines in the last `limit` bytes of a file, without their ends."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - limit))
    parts = file.read(limit).split(b"\n")
    yield from parts[1 if size > limit else 0 : -1]


def _parts(path: str) -> tuple[str, ...]:
    """Return the parts of a path from outside, each a plain name."""
    parts = tuple(path.split("/"))
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise NotThereError(f"{shown_text(path)} is no path inside of the results folder")
    return parts


def _is_run(names: set[str]) -> bool:
    return RECORDS in names or (FLAGS in names and CHECKPOINTS in names)


def _listing(folder: Path) -> tuple[set[str], list[str]]:
    """Return all names in a folder, and those of its own folders."""
    try:
        with os.scandir(folder) as entries:
            found = [(each.name, each.is_dir(follow_symlinks=False)) for each in entries]
    except OSError:
        return set(), []
    folders = sorted((n for n, is_folder in found if is_folder and not n.startswith(".")))
    return {name for name, _ in found}, folders[::-1]

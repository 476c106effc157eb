"""What a report reads of a run's folder: regular files of bounded size, through no link.

A folder may come from a stranger, and a report of it may be passed on. A link in it could lead to a
private file of whoever makes the report, so a link is no file here; a pipe would keep a reader
waiting for ever.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import parse_json, shown_text

MAX_JSON_BYTES = 50_000_000  # run.json of a run with a thousand sessions is below
TAIL_BYTES = 200_000
MAX_LINE_BYTES = 10_000


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading.

    Args:
      path: its path; its folder is what the user gave, or was checked by `children`.

    Raises:
      FileNotFoundError: if there is none.
      ConfigError: if it is no regular file, or cannot be read.
    """
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    shown = shown_text(path.name)
    try:
        if path.is_symlink():  # where the system has no O_NOFOLLOW
            raise ConfigError(f"{shown} is a link; only files of the folder itself are shown.")
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{shown} is no regular file.")
            yield file
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{shown} cannot be read: {error.strerror}.") from error


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes.

    Raises:
      FileNotFoundError: if there is none.
      ConfigError: if it is no regular file, is longer, or cannot be read.
    """
    with opened(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ConfigError(f"{shown_text(path.name)} is longer than the {limit:,} bytes expected.")
    return content


def read_object(folder: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a file; {} if there is no such file.

    Raises:
      ConfigError: if it cannot be read, or is something else.
    """
    try:
        content = read_bytes(folder / name, MAX_JSON_BYTES)
    except FileNotFoundError:
        return {}
    found = parse_json(content.decode("utf-8", "replace"), name)
    if not isinstance(found, dict):
        raise ConfigError(f"{name} holds no JSON object.")
    return found


def last_lines(folder: Path, name: str) -> list[str]:
    """Return the whole lines at the end of a file, the oldest first; [] if there is none.

    Raises:
      ConfigError: if it cannot be read.
    """
    try:
        with opened(folder / name) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            found = file.read(TAIL_BYTES).split(b"\n")
    except FileNotFoundError:
        return []
    whole = found[1:-1] if size > TAIL_BYTES else found[:-1]
    return [line.decode("utf-8", "replace") for line in whole]


def first_line(folder: Path, name: str) -> str:
    """Return the first line of a file.

    Raises:
      FileNotFoundError: if there is none.
      ConfigError: if it cannot be read.
    """
    with opened(folder / name) as file:
        return file.readline(MAX_LINE_BYTES).decode("utf-8", "replace").rstrip("\n")


def children(
    folder: Path, name: str, suffixes: tuple[str, ...]
) -> list[tuple[Path, os.stat_result]]:
    """Return the regular files with these endings in a folder below, the newest first.

    A folder that is missing or a link has none.
    """
    try:
        if not stat.S_ISDIR((folder / name).lstat().st_mode):
            return []
        with os.scandir(folder / name) as entries:
            found = [
                (Path(entry.path), entry.stat(follow_symlinks=False))
                for entry in entries
                if entry.name.lower().endswith(suffixes) and entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
    return sorted(found, key=lambda item: (-item[1].st_mtime, item[0].name))

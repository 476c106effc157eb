"""Files that are either whole or absent: the previous content survives a crash at any byte."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TEMPORARY_SUFFIX = ".tmp"


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes the place of `path` at once.

    The new content is on the disk (fsync) before the name changes, and the change of name is one
    `os.replace`, so a reader sees the old file or the new one, never a part. If the body raises,
    the temporary file is removed and `path` is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)  # the new name itself


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically (see `atomic_path`)."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a mapping as indented JSON, atomically (see `atomic_path`)."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def remove_temporaries(folder: Path) -> list[Path]:
    """Remove what a killed process left half-written in `folder`; return the removed paths."""
    stale = sorted(folder.glob(f".*{TEMPORARY_SUFFIX}"))
    for path in stale:
        path.unlink(missing_ok=True)
    return stale


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

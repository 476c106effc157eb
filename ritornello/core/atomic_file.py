"""Files that are either whole or absent: the previous content survives a crash at any byte."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from ritornello.core.errors import ConfigError
from ritornello.core.files import disk
from ritornello.core.plain_data import shown_text

TEMPORARY_SUFFIX = ".tmp"
PROBE_BYTES = 65_536  # the report of some hundred games


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes the place of `path` at once.

    The new content is on the disk (fsync) before the name changes, and the change of name is one
    `os.replace`, so a reader sees the old file or the new one, never a part. If the body raises,
    the temporary file is removed and `path` is as it was. An OSError that names the temporary file,
    or none, as that of a full disk, is made to name `path`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    temporary.unlink(missing_ok=True)  # whoever left one, and whatever it links to
    try:
        yield temporary
        disk().sync(temporary)
        disk().replace(temporary, path)
    except BaseException as error:
        # An error without a number is only a text, which a name would hide.
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(temporary)):
            error.filename = str(path)
            del error.filename2  # None, assigned, would be shown
        with contextlib.suppress(OSError):  # what went wrong first is what the caller must hear
            disk().unlink(temporary)
        raise
    disk().sync_folder(path.parent)  # the new name itself


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write to that takes the place of `path` on success (see `atomic_path`)."""
    with atomic_path(path) as temporary, disk().open(temporary) as file:
        yield file


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically (see `atomic_path`)."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))  # of paths that are no UTF-8


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a mapping as indented JSON, atomically (see `atomic_path`)."""
    write_text(path, as_json(data))


def csv_text(headings: Sequence[object], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV; None is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return text.getvalue()


def write_csv(path: Path, headings: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a table as CSV, atomically (see `atomic_path`)."""
    write_text(path, csv_text(headings, rows))


def writable_folder(
    folder: Path, instead: str = "give another folder (--output or --results_dir)"
) -> Path:
    """Make a folder that results are to be written to, before the work, and return it.

    Raises:
      ConfigError: if it cannot be made, or there is no room or no right to write into it; with
        `instead`, what the user can do if that is not to be changed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())  # some file systems say only now that they are full
    except (OSError, ValueError) as error:  # ValueError: a name that no folder can have
        is_file = isinstance(error, FileExistsError)
        reason = "it is a file" if is_file else getattr(error, "strerror", None) or error
        raise ConfigError(
            f"results cannot be written to {shown_text(str(folder))} ({reason}), so nothing is "
            f"begun: make room there and let it be written to, or {instead}."
        ) from error
    return folder


def as_json(data: Mapping[str, Any]) -> str:
    """Return a mapping as the indented JSON of our files."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def remove_temporaries(folder: Path) -> list[Path]:
    """Remove what a killed process left half-written in `folder`; return the removed paths."""
    # Others have .tmp files too, in a folder that the user has chosen; ours end with a number.
    found = sorted(folder.glob(f".*.[0-9]*{TEMPORARY_SUFFIX}"))
    stale = [path for path in found if path.is_symlink() or not path.is_dir()]
    for path in stale:
        disk().unlink(path)
    return stale

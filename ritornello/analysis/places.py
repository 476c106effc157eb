"""ResultsFolder: runs below a folder, and what their files say. Nothing outside can be named.

A run is named by its path below the folder, such as `Pong_20261122-134500`, or
`sequence_20261122/001_queue_seed1/Pong_20261122-134500` for a run of a sequence. Whatever a browser
sends is such a name. No part of it may be a link, and only regular files are opened, so neither a
link nor a pipe can lead the page astray.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.plain_data import parse_json, shown_text
from ritornello.core.run_layout import (
    CHECKPOINTS,
    EVALUATIONS,
    FINDINGS,
    FLAGS,
    LOG,
    RECORDS,
    SESSIONS,
)
from ritornello.metrics.run_files import csv_cells, csv_rows, tail

MAX_DEPTH = 4  # results/<collection>/<sequence>/<run of it>/<run folder>
MAX_FOLDERS = 20_000  # that are looked into; a results folder of years has fewer
MAX_JSON_BYTES = 4_000_000
TAIL_BYTES = 200_000  # some thousand lines; of train.log, lines for debugging can be most of it
MAX_ROWS = 200
MAX_CELL = 500  # characters
MAX_SESSIONS_BYTES = 50_000_000  # run.json of a thousand sessions is below
FINDING = ("time", "agent_steps", "updates", "name", "message", "advice")
# O_NONBLOCK: opening a pipe must not wait for somebody to write.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)


class NotThereError(PlatformError):
    """A run or file that was asked for is not there, or is not in the results folder."""


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
        """Return the names of all runs, sorted. Folders that cannot be read are passed over."""
        if self._only is not None:
            return [self._only]
        found: list[str] = []
        for folder, folders, files in islice(os.walk(self.root), MAX_FOLDERS):
            place = Path(folder).relative_to(self.root)
            if place.parts and _is_run({*folders, *files}):
                found.append(place.as_posix())
                folders.clear()
            if len(place.parts) == MAX_DEPTH:
                folders.clear()
            # What is left is looked into next, in this order; a link is not followed.
            folders[:] = sorted(name for name in folders if not name.startswith("."))
        return sorted(found)

    def folder(self, run: str) -> Path:
        """Return the folder of a run.

        Raises:
          NotThereError: if there is no such run in this folder.
        """
        if run.count("/") < MAX_DEPTH and (not self._only or run == self._only):
            folder = self._path(run)
            with contextlib.suppress(OSError):
                if _is_run(set(os.listdir(folder))):
                    return folder
        raise NotThereError(f"there is no run {shown_text(run)} here")

    def path(self, run: str, name: str) -> Path:
        """Return the path of a regular file of a run, such as films/a.mp4.

        Raises:
          NotThereError: if there is none inside of the run's folder.
        """
        path = self._path(run, name)
        if not os.path.isfile(path):
            raise NotThereError(f"{shown_text(run)} has no file {shown_text(name)}")
        return path

    def open(self, run: str, name: str) -> BinaryIO:
        """Open a file of a run for reading; see `path`."""
        try:
            file = os.open(self._path(run, name), _FLAGS)
        except OSError as error:
            raise NotThereError(f"{shown_text(run)} has no file {shown_text(name)}") from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise NotThereError(f"{shown_text(name)} of {shown_text(run)} is no regular file")
        return os.fdopen(file, "rb")

    def listing(self, run: str, name: str) -> list[tuple[str, os.stat_result]]:
        """Return (name, facts) of the regular files in a folder of a run, the oldest first.

        Hidden ones are left out: they are not finished.
        """
        found = []
        with contextlib.suppress(NotThereError, OSError):
            folder = self._path(run, name)
            for file in (each for each in os.listdir(folder) if not each.startswith(".")):
                with contextlib.suppress(OSError):  # it is gone by now
                    facts = (folder / file).lstat()
                    if stat.S_ISREG(facts.st_mode):
                        found.append((file, facts))
        return sorted(found, key=lambda each: (each[1].st_mtime_ns, each[0]))

    def facts(self, run: str, name: str) -> tuple[int, int, int]:
        """Return (time of change in ns, bytes, inode) of a file, zeros if there is none."""
        try:
            found = (self.root / run / name).lstat()
        except (OSError, ValueError):
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def json(self, run: str, name: str, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
        """Return the JSON object in a small file; {} if the file holds anything else."""
        try:
            with self.open(run, name) as file:
                content = file.read(limit + 1)
            data = parse_json(content.decode("utf-8"), name) if len(content) <= limit else None
        except (NotThereError, ConfigError, OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def tail(self, run: str, name: str, limit: int) -> list[str]:
        """Return the whole lines in the last `limit` bytes of a file; none without it."""
        with contextlib.suppress(NotThereError, OSError), self.open(run, name) as file:
            return [line.decode("utf-8", "replace") for line in tail(file, limit)]
        return []

    def _path(self, *names: str) -> Path:
        """Return a path below the root, no part of which is a link."""
        parts = [part for name in names for part in name.split("/")]
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise NotThereError(f"{shown_text('/'.join(names))} is no path of the results folder")
        path = self.root.joinpath(*parts)
        try:
            if path.resolve() == path:
                return path
        except (OSError, RuntimeError, ValueError):
            pass  # a circle of links, or a name that is too long
        raise NotThereError(f"{shown_text('/'.join(names))} leads out of the results folder")


def _is_run(names: set[str]) -> bool:
    return RECORDS in names or (FLAGS in names and CHECKPOINTS in names)


def sessions(results: ResultsFolder, run: str) -> list[dict[str, Any]]:
    """Return the sessions in run.json, the first one first."""
    first = results.json(run, SESSIONS, MAX_SESSIONS_BYTES)
    later = first.pop("resumed", [])
    every = [first, *(later if isinstance(later, list) else [])]
    return [each for each in every if each and isinstance(each, dict)]


def findings(results: ResultsFolder, run: str) -> list[dict[str, Any]]:
    """Return the findings of the health metrics, the newest first, under the names of FINDING."""
    found: list[dict[str, Any]] = []
    for line in results.tail(run, FINDINGS, TAIL_BYTES):
        with contextlib.suppress(ValueError, RecursionError):
            data = json.loads(line)
            if isinstance(data, dict):
                found.append({name: _cell(data.get(name)) for name in FINDING})
    return found[: -MAX_ROWS - 1 : -1]


def evaluations(results: ResultsFolder, run: str) -> list[dict[str, Any]]:
    """Return the rows of evaluations.csv, the newest first."""
    heading = ""
    with contextlib.suppress(NotThereError, OSError), results.open(run, EVALUATIONS) as file:
        heading = file.readline(10_000).decode("utf-8", "replace").removesuffix("\n")
    lines = [line for line in results.tail(run, EVALUATIONS, TAIL_BYTES) if line != heading]
    count = len(csv_cells(heading))
    rows = [row for row in csv_rows([heading, *lines]) if len(row) == count]
    newest = rows[: -MAX_ROWS - 1 : -1]
    return [{name: _cell(value) for name, value in row.items()} for row in newest]


def log_tail(results: ResultsFolder, run: str) -> list[str]:
    """Return the last whole lines of train.log; those for debugging only where all are."""
    every = [line[:5000] for line in results.tail(run, LOG, TAIL_BYTES)]
    return ([line for line in every if " DEBUG " not in line] or every)[-MAX_ROWS:]


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_CELL]
    if value is None or type(value) in (bool, int) or (type(value) is float and value == value):
        return value
    return str(value)[:MAX_CELL]

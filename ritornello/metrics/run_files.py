"""Reading back what the sinks wrote into a run's folder.

These files are journals: no byte in them can stop a run. A line that was cut off by a crash, that
somebody has edited, or that a broken disk has made of nothing, is passed over, and so is a file
that cannot be read at all.
"""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, TextIO

import numpy as np
from numpy.typing import NDArray

from ritornello.core.files import disk
from ritornello.core.run_layout import EVALUATIONS, GAMES, RECORDS
from ritornello.metrics.record import Record, is_usable

Floats = NDArray[np.float64]

TIMES = "Train_time.txt"
TAIL_BYTES = 65_536  # enough for the last records
MAX_LINE_BYTES = 1_000_000  # a record of all games has 50 kB

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Games:
    """The finished games of a run, oldest first; each array is `[games]` float64."""

    returns: Floats  # raw
    agent_steps: Floats  # of the whole run, when the game ended
    wall_s: Floats


def read_records(folder: Path) -> list[Record]:
    """Return the records of metrics.jsonl."""
    return list(each_record(folder))


def each_record(folder: Path) -> Iterator[Record]:
    """Yield the records of metrics.jsonl, which are gigabytes after weeks, one after the other."""
    for line in _lines(folder / RECORDS):
        with contextlib.suppress(ValueError):
            yield Record.from_json(line)


def last_record(folder: Path) -> Record | None:
    """Return the newest whole record of metrics.jsonl without reading all of it; None without."""
    path = folder / RECORDS
    with contextlib.suppress(OSError):
        if path.is_file():  # opening a pipe would wait for somebody to write
            with path.open("rb") as file:
                return next(filter(None, map(record_in, reversed(tail(file, TAIL_BYTES)))), None)
    return None


def record_in(line: bytes) -> Record | None:
    """Return the record in a line; None if it holds none."""
    try:
        return Record.from_json(line.decode("utf-8"))
    except ValueError:
        return None


def lines_from(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines from where a file is; what is longer than MAX_LINE_BYTES comes in pieces.

    A hole in a file on a broken disk can be longer than the memory.
    """
    return iter(partial(file.readline, MAX_LINE_BYTES), b"")


def tail(file: BinaryIO, limit: int) -> list[bytes]:
    """Return the whole lines in the last `limit` bytes of a file, without their ends."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - limit))
    return file.read(limit).split(b"\n")[1 if size > limit else 0 : -1]


def read_games(folder: Path) -> Games:
    """Return the games of Scores.txt."""
    rows = []
    for line in _lines(folder / GAMES):
        with contextlib.suppress(ValueError):
            returned, _training_steps, agent_steps, wall_s = map(float, line.split(","))
            if all(map(is_usable, (returned, agent_steps, wall_s))):
                rows.append((returned, agent_steps, wall_s))
    table = np.array(rows, np.float64).reshape(-1, 3)
    return Games(table[:, 0], table[:, 1], table[:, 2])


@dataclass(frozen=True)
class Evaluated:
    """Score of one policy in one game of an evaluation: a row of evaluations.csv."""

    agent_steps: float
    game: str
    policy: str
    mean: float
    standard_error: float  # 0 if it is not known


def read_evaluations(folder: Path) -> list[Evaluated]:
    """Return the rows of evaluations.csv, oldest first."""
    found = []
    for row in csv_rows(_lines(folder / EVALUATIONS)):
        with contextlib.suppress(ValueError, KeyError):
            steps, mean = float(row["agent_steps"]), float(row["mean"])
            error = float(row["standard_error"] or 0)
            if all(map(is_usable, (steps, mean, error))):
                found.append(Evaluated(steps, row["game"], row["policy"], mean, error))
    return found


def csv_rows(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield column -> cell for each row of a table in CSV, of which the first line is the heading.

    A damaged line may give a row that lacks columns, or none.
    """
    each = map(csv_cells, lines)
    columns = next(each, [])
    for cells in each:
        yield dict(zip(columns, cells, strict=False))


def csv_cells(line: str) -> list[str]:
    """Return the cells of one line by itself: a quote that is not closed spoils no other line."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a cell that is too long, a line end within one; before 3.11 a NUL byte
        return []


def games_counted(folder: Path) -> int:
    """Return how many games the lines of Train_time.txt count."""
    counted = 0
    for line in _lines(folder / TIMES):
        with contextlib.suppress(ValueError):
            counted += int(line.split(",")[0])
    return counted


def is_regular(path: Path) -> bool:
    """Whether `path` is a file that may be read and written: no folder, no pipe, no link."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and os.access(path, os.R_OK | os.W_OK)


def set_aside(path: Path, at: datetime) -> Path:
    """Rename `path` to a name that nothing reads and nobody has; return the new name."""
    aside = name_aside(path, at)
    disk().replace(path, aside)
    return aside


def name_aside(path: Path, at: datetime) -> Path:
    """Return the name `<name>.<time>.cut` beside `path`, with a number if there is one already."""
    stem, number = f"{path.name}.{at:%Y%m%d-%H%M%S}", 1
    aside = path.with_name(f"{stem}.cut")
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{stem}_{number}.cut")
    return aside


def open_for_append(path: Path) -> TextIO:
    """Open a file of lines at its end; a line cut off by a crash is ended and harms no other."""
    file = disk().open(path, append=True)
    with path.open("rb") as before:
        size = before.seek(0, os.SEEK_END)
        before.seek(max(0, size - 1))
        ends_within_a_line = size > 0 and before.read() != b"\n"
    if ends_within_a_line:
        file.write(b"\n")
        file.flush()
    return io.TextIOWrapper(file, encoding="utf-8")


def force_to_disk(paths: Iterable[Path]) -> None:
    """Return when the content of these files, and their names, is on the disk."""
    folders = set()
    for path in paths:
        disk().sync(path)
        folders.add(path.parent)
    for folder in folders:
        disk().sync_folder(folder)


def _lines(path: Path) -> Iterator[str]:
    """Yield the whole lines of a file; none if it is missing, or from where it cannot be read."""
    if not path.exists():
        return
    try:
        if not path.is_file():  # opening a pipe would wait for somebody to write
            raise OSError("it is not a file")
        with path.open("rb") as file:
            for line in lines_from(file):
                if line.endswith(b"\n"):
                    yield line.decode("utf-8", "replace")
    except OSError as error:
        log.warning("%s is passed over: %s", path, error)

"""Reading back what the sinks wrote into a run's folder.

A line that was cut off by a crash is passed over.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from core.files import disk
from metrics.record import Record

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Games:
    """The finished games of a run, oldest first; each array is `[games]` float64."""

    returns: Floats  # raw
    agent_steps: Floats  # of the whole run, when the game ended
    wall_s: Floats


def read_records(folder: Path) -> list[Record]:
    """Return the records of metrics.jsonl."""
    records = []
    for line in _lines(folder / "metrics.jsonl"):
        with contextlib.suppress(ValueError):
            records.append(Record.from_json(line))
    return records


def read_games(folder: Path) -> Games:
    """Return the games of Scores.txt."""
    rows = []
    for line in _lines(folder / "Scores.txt"):
        with contextlib.suppress(ValueError):
            returned, _training_steps, agent_steps, wall_s = map(float, line.split(","))
            rows.append((returned, agent_steps, wall_s))
    table = np.array(rows, np.float64).reshape(-1, 3)
    return Games(table[:, 0], table[:, 1], table[:, 2])


def games_counted(folder: Path) -> int:
    """Return how many games the lines of Train_time.txt count."""
    counted = 0
    for line in _lines(folder / "Train_time.txt"):
        with contextlib.suppress(ValueError):
            counted += int(line.split(",")[0])
    return counted


def open_for_append(path: Path) -> TextIO:
    """Open a file of lines at its end; a line cut off by a crash is ended and harms no other."""
    file = disk().open(path, append=True)
    if _ends_within_a_line(path):
        file.write(b"\n")
        file.flush()
    return io.TextIOWrapper(file, encoding="utf-8")


def force_to_disk(paths: Iterable[Path]) -> None:
    """Return when what the system was given of these files, and their names, is on the disk."""
    folders = set()
    for path in paths:
        disk().sync(path)
        folders.add(path.parent)
    for folder in folders:
        disk().sync_folder(folder)


def _ends_within_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

"""Journal: metrics.jsonl as columns, read once and then only further, and thinned for a chart.

A day of training is 17,000 records of 100 numbers, of which a browser gets at most `points` rows.
A line may be damaged or half written, and a resumed run replaces the file by a shorter one; then
reading begins anew.
"""

from __future__ import annotations

import bisect
import os
import threading
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ritornello.analysis.places import NotThereError, ResultsFolder
from ritornello.core.run_layout import RECORDS
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import MAX_LINE_BYTES, lines_from, record_in

COUNTERS = ("agent_steps", "updates", "episodes")
# Metrics of a run; of all games there are 800. A damaged or hostile file may name any number.
MAX_NAMES = 2000
MAX_POINTS = 1000  # rows that a chart is given
NEWEST_ROWS = 50  # in which the newest value of a metric is looked for

Floats = NDArray[np.float64]


class _Column(NamedTuple):
    """The values of one metric. A record without it takes no memory."""

    rows: array[int]  # in which there is a value, rising
    values: array[float]

    def filled(self, count: int) -> Floats:
        """Return the first `count` rows, with NaN where there is no value."""
        filled = np.full(count, np.nan)
        filled[self.rows] = self.values
        return filled

    def cut(self, count: int) -> None:
        """Drop all but the first `count` rows."""
        kept = bisect.bisect_left(self.rows, count)
        del self.rows[kept:], self.values[kept:]


class Journal:
    """The records of one run. Thread-safe: each method takes the lock."""

    def __init__(self, results: ResultsFolder, run: str) -> None:
        """Read nothing yet."""
        self._results = results
        self._run = run
        self._lock = threading.Lock()
        self._forget()

    def read(self) -> int:
        """Read what was added; return the number of rows."""
        with self._lock:
            try:
                with self._results.open(self._run, RECORDS) as file:
                    self._read(file)
            except NotThereError:
                self._forget()
            return len(self._minutes)

    def names(self) -> list[str]:
        """Return the metrics that were recorded, sorted."""
        with self._lock:
            return sorted(self._columns)

    def newest(self) -> dict[str, float]:
        """Return the newest value of each metric, and the counters."""
        with self._lock:
            if not self._minutes:
                return {}
            found = {name: float(column[-1]) for name, column in self._counters.items()}
            oldest = len(self._minutes) - NEWEST_ROWS
            for name, column in self._columns.items():
                if column.rows and column.rows[-1] >= oldest:
                    found[name] = column.values[-1]
            return {**found, "minutes": self._minutes[-1]}

    def rows(self, names: Sequence[str]) -> dict[str, Any]:
        """Return those of the metrics `names` that were recorded, in at most MAX_POINTS rows.

        Returns:
          steps, minutes, and columns by name, with None where there was no value.
        """
        with self._lock:
            steps = np.array(self._counters["agent_steps"], np.float64)
            minutes = np.array(self._minutes)
            known = ((n, self._columns[n]) for n in names if n in self._columns)
            filled = ((name, column.filled(len(steps))) for name, column in known)
            steps, minutes, columns = thinned(steps, minutes, filled, MAX_POINTS)
        return {
            "steps": [int(step) for step in steps],
            "minutes": _plain(minutes),
            "columns": {name: _plain(values) for name, values in columns.items()},
        }

    def _forget(self) -> None:
        self._offset = 0
        self._inode = 0
        self._columns: dict[str, _Column] = {}
        self._counters: dict[str, array[int]] = {name: array("q") for name in COUNTERS}
        self._minutes: array[float] = array("d")

    def _read(self, file: BinaryIO) -> None:
        facts = os.fstat(file.fileno())
        if facts.st_ino != self._inode or facts.st_size < self._offset:
            self._forget()
            self._inode = facts.st_ino
        file.seek(self._offset)
        for line in lines_from(file):
            if len(line) < MAX_LINE_BYTES and not line.endswith(b"\n"):
                break  # it is being written
            record = record_in(line)
            if record is not None:
                self._append(record)
            self._offset += len(line)

    def _append(self, record: Record) -> None:
        """Append a record; if the run has gone back, drop the rows after it."""
        steps = self._counters["agent_steps"]
        if steps and record.agent_steps < steps[-1]:
            count = bisect.bisect_left(steps, record.agent_steps)
            for column in self._columns.values():
                column.cut(count)
            for counter in self._counters.values():
                del counter[count:]
            del self._minutes[count:]
        for name, value in record.values.items():
            if name not in self._columns and len(self._columns) < MAX_NAMES:
                self._columns[name] = _Column(array("q"), array("d"))
            if name in self._columns:
                self._columns[name].rows.append(len(self._minutes))
                self._columns[name].values.append(value)
        for name, counter in self._counters.items():
            counter.append(getattr(record, name))
        self._minutes.append(record.wall_s / 60)


def thinned(
    steps: Floats, minutes: Floats, columns: Iterable[tuple[str, Floats]], points: int
) -> tuple[Floats, Floats, dict[str, Floats]]:
    """Return at most `points` rows that look the same: of each group its lowest and highest value.

    Neighbouring rows are put into `points` / 2 groups. Each group becomes two rows, at its first
    and its last moment, with the two extremes of each column in the order in which it moves. One
    column after the other is asked for, because all of them may need much more memory.
    """
    count = len(steps)
    if count <= points:
        return steps, minutes, dict(columns)
    groups = max(1, points // 2)
    starts = np.linspace(0, count, groups + 1).astype(np.int64)[:-1]
    ends = np.append(starts[1:], count) - 1
    extremes = {}
    for name, values in columns:
        # fmin and fmax pass over NaN.
        low, high = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
        falls = values[ends] < values[starts]
        extremes[name] = _paired(np.where(falls, high, low), np.where(falls, low, high))
    return _paired(steps[starts], steps[ends]), _paired(minutes[starts], minutes[ends]), extremes


def _paired(first: Floats, second: Floats) -> Floats:
    return np.stack([first, second], axis=1).reshape(-1)


def _plain(values: Floats) -> list[float | None]:
    return [float(f"{value:.6g}") if value == value else None for value in values.tolist()]

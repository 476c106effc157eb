"""metrics.jsonl as columns: read once, then only what has been added, and thinned for a chart.

A day of training is 17,000 records of 100 numbers. They are kept as one array per metric, so a
chart of a few metrics touches a few arrays. A browser gets at most `points` rows at first, and
later only the rows that are new.

The file is somebody else's and may change in any way: a line may be damaged or half written, and a
resumed run replaces the file by a shorter one. What is read is followed by its byte offset; if the
bytes before the offset are not the ones that were read, reading begins anew, and `generation` says
so to whoever has the old rows.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from live.places import METRICS, NotThereError, ResultsFolder, lines
from metrics.record import MAX_COUNT
from metrics.run_files import MAX_LINE_BYTES, TAIL_BYTES

Floats = NDArray[np.float64]

READ_BYTES = 4_000_000  # at once
FINGERPRINT_BYTES = 256  # before the offset, by which a file is known again
MAX_NAMES = 2000  # metrics of a run; a damaged or hostile file may name any number
MAX_POINTS = 2000  # rows that a chart is given
MAX_JOURNALS = 24  # that are kept in memory, the latest used
COUNTERS = ("agent_steps", "updates", "episodes")
SAMPLE_BYTES = 16_384  # around a record that is looked for: several records
LARGE_BYTES = 8_000_000  # a file up to here is read within a fraction of a second
PREVIEW_POINTS = 400
PREVIEW = -1  # the generation of rows that are a sample
BATCH = 500  # records that are put into the columns at once


@dataclass
class Rows:
    """Some columns of a run, from some row on."""

    generation: int  # rows of another generation are of another history
    total: int  # rows of the run; what comes next has this number
    steps: Floats  # [n]
    minutes: Floats  # [n] running time, all sessions together
    columns: dict[str, Floats] = field(default_factory=dict)  # each [n], NaN where not measured

    def to_json(self) -> dict[str, Any]:
        """Return plain types, numbers with six digits, None for what was not measured."""
        return {
            "generation": self.generation,
            "total": self.total,
            "steps": [int(step) for step in self.steps],
            "minutes": _plain(self.minutes),
            "columns": {name: _plain(values) for name, values in self.columns.items()},
        }


class Journal:
    """The records of one run. Thread-safe: each method takes the lock."""

    def __init__(self, results: ResultsFolder, run: str) -> None:
        """Read nothing yet."""
        self._results = results
        self._run = run
        self._lock = threading.Lock()
        self._generation = 0
        self.is_read = False  # once, so that there is little to read now
        self.is_asked_for = False  # a thread reads it for the first time
        self._forget()

    def read(self) -> tuple[int, int]:
        """Read what was added; return (generation, number of rows)."""
        with self._lock:
            self._read()
            self.is_read = True
            return self._generation, self._count

    def names(self) -> list[str]:
        """Return the metrics that were recorded, sorted."""
        with self._lock:
            return sorted(self._columns)

    def newest(self) -> dict[str, float]:
        """Return the newest value of each metric, and the counters."""
        with self._lock:
            if not self._count:
                return {}
            newest = {name: float(self._counters[name][self._count - 1]) for name in COUNTERS}
            newest["minutes"] = float(self._minutes[self._count - 1])
            for name, column in self._columns.items():
                known = column[max(0, self._count - 50) : self._count]
                known = known[np.isfinite(known)]
                if len(known):
                    newest[name] = float(known[-1])
            return newest

    def rows(
        self,
        names: Sequence[str],
        *,
        after: int = 0,
        generation: int | None = None,
        points: int = MAX_POINTS,
    ) -> Rows:
        """Return columns: all of them thinned, or what came after a row.

        Args:
          names: metrics; those that the run has not are left out.
          after: number of the first row that is wanted.
          generation: of the rows that the caller has; if it is another one now, `after` means
            nothing, and all rows come.
          points: rows at most.
        """
        with self._lock:
            begin = after if generation == self._generation and 0 <= after <= self._count else 0
            part = slice(begin, self._count)
            rows = Rows(
                self._generation,
                self._count,
                self._counters["agent_steps"][part].astype(np.float64),
                self._minutes[part].copy(),
                {n: self._columns[n][part].copy() for n in names if n in self._columns},
            )
        return thinned(rows, min(points, MAX_POINTS))

    def exactly(self, names: Sequence[str], begin: int, end: int, generation: int) -> Rows | None:
        """Return rows `begin` to `end` as they are; None if they are of another generation now."""
        with self._lock:
            if generation != self._generation:
                return None
            part = slice(begin, min(end, self._count))
            missing = np.full(len(self._minutes[part]), np.nan)
            return Rows(
                generation,
                self._count,
                self._counters["agent_steps"][part].astype(np.float64),
                self._minutes[part].copy(),
                {
                    n: self._columns[n][part].copy() if n in self._columns else missing
                    for n in names
                },
            )

    def _forget(self) -> None:
        self._count = 0
        self._offset = 0
        self._inode = 0
        self._before = b""  # the bytes that end at the offset
        self._is_skipping = False  # within a line that is too long
        self._columns: dict[str, Floats] = {}
        self._counters = {name: np.zeros(0, np.int64) for name in COUNTERS}
        self._minutes: Floats = np.zeros(0)
        self._clock_offset_s = self._last_wall_s = 0.0

    def _begin_anew(self) -> None:
        if self._count or self._offset:
            self._generation += 1
        self._forget()

    def _read(self) -> None:
        try:
            file = self._results.open(self._run, METRICS)
        except NotThereError:
            self._begin_anew()
            return
        with file:
            facts = os.fstat(file.fileno())
            if not self._is_the_same(file, facts):
                self._begin_anew()
                self._inode = facts.st_ino
            if facts.st_size > self._offset:
                file.seek(self._offset)
                self._read_lines(file, facts.st_size)

    def _is_the_same(self, file: BinaryIO, facts: os.stat_result) -> bool:
        if facts.st_ino != self._inode or facts.st_size < self._offset:
            return False
        file.seek(self._offset - len(self._before))
        return file.read(len(self._before)) == self._before

    def _read_lines(self, file: BinaryIO, size: int) -> None:
        """Read whole lines up to `size`; what a writer adds meanwhile waits for the next time."""
        batch: list[dict[str, Any]] = []
        rest = b""
        while self._offset + len(rest) < size:
            piece = file.read(min(READ_BYTES, size - self._offset - len(rest)))
            if not piece:
                break
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                if not self._is_skipping and (record := record_in(line)):
                    batch.append(record)
                self._is_skipping = False
                if len(batch) >= BATCH:
                    self._take(batch)
                    batch = []
            used = sum(map(len, whole)) + len(whole)
            if len(rest) > MAX_LINE_BYTES:  # not one of ours, however it may end
                self._is_skipping, used, rest = True, used + len(rest), b""
            self._offset += used
        self._take(batch)
        file.seek(max(0, self._offset - FINGERPRINT_BYTES))
        self._before = file.read(min(FINGERPRINT_BYTES, self._offset))

    def _take(self, batch: list[dict[str, Any]]) -> None:
        """Append records to the columns; those that the run has gone back behind are dropped."""
        start = 0
        for index, record in enumerate(batch):
            newest = batch[index - 1]["agent_steps"] if index > start else self._newest_step()
            if record["agent_steps"] < newest:
                self._append(batch[start:index])
                steps = self._counters["agent_steps"][: self._count]
                self._count = int(np.searchsorted(steps, record["agent_steps"]))
                self._generation += 1
                start = index
        self._append(batch[start:])

    def _newest_step(self) -> int:
        return int(self._counters["agent_steps"][self._count - 1]) if self._count else 0

    def _append(self, batch: list[dict[str, Any]]) -> None:
        if not batch:
            return
        begin, end = self._count, self._count + len(batch)
        self._make_room(end)
        for name, column in self._counters.items():
            column[begin:end] = [record[name] for record in batch]
        for row, record in enumerate(batch, begin):
            if record["wall_s"] < self._last_wall_s:  # the clock of a new session
                self._clock_offset_s += self._last_wall_s
            self._last_wall_s = record["wall_s"]
            self._minutes[row] = (self._clock_offset_s + record["wall_s"]) / 60
        for column in self._columns.values():
            column[begin:end] = np.nan
        # Most records have the same names, so there are few tables to make.
        alike: dict[tuple[str, ...], list[int]] = {}
        for index, record in enumerate(batch):
            alike.setdefault(tuple(record["values"]), []).append(index)
        for names, indices in alike.items():
            table = _table([list(batch[index]["values"].values()) for index in indices])
            at = begin + np.array(indices)
            for name, values in zip(names, table.T, strict=True):
                self._column(name)[at] = values
        self._count = end

    def _column(self, name: str) -> Floats:
        """Return the column of a metric; beyond MAX_NAMES one that nobody sees."""
        if name in self._columns:
            return self._columns[name]
        column = np.full(len(self._minutes), np.nan)
        if len(self._columns) < MAX_NAMES:
            self._columns[name] = column
        return column

    def _make_room(self, needed: int) -> None:
        room = len(self._minutes)
        if needed <= room:
            return
        more = max(needed, 2 * room) - room
        self._minutes = np.concatenate([self._minutes, np.zeros(more)])
        for name, counter in self._counters.items():
            self._counters[name] = np.concatenate([counter, np.zeros(more, np.int64)])
        for name, column in self._columns.items():
            self._columns[name] = np.concatenate([column, np.full(more, np.nan)])


class Journals:
    """The journals of a results folder: those that were used last stay in memory."""

    def __init__(self, results: ResultsFolder) -> None:
        """Hold none yet."""
        self._results = results
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Journal] = OrderedDict()

    def of(self, run: str) -> Journal:
        """Return the journal of a run, with all that is in its file by now."""
        journal = self._take(run)
        journal.read()
        return journal

    def at_once(self, run: str) -> Journal | None:
        """Return the journal of a run, or None if reading it takes long; it is read meanwhile."""
        journal = self._take(run)
        if journal.is_read or self._results.facts(run, METRICS)[1] <= LARGE_BYTES:
            journal.read()
            return journal
        with self._lock:
            is_first, journal.is_asked_for = not journal.is_asked_for, True
        if is_first:
            threading.Thread(target=journal.read, name="journal", daemon=True).start()
        return None

    def preview(self, run: str, names: Sequence[str]) -> Rows:
        """Return a record here and there of a long run, for the second until all is read."""
        try:
            with self._results.open(run, METRICS) as file:
                records = sampled(file, PREVIEW_POINTS)
        except (NotThereError, OSError):
            records = []
        kept: list[dict[str, Any]] = []
        for record in records:
            if not kept or record["agent_steps"] > kept[-1]["agent_steps"]:
                kept.append(record)
        return Rows(
            PREVIEW,
            0,
            np.array([record["agent_steps"] for record in kept], np.float64),
            np.array([record["wall_s"] / 60 for record in kept], np.float64),
            {
                name: _table([[record["values"].get(name)] for record in kept])[:, 0]
                for name in names
                if any(name in record["values"] for record in kept)
            },
        )

    def _take(self, run: str) -> Journal:
        with self._lock:
            journal = self._kept.setdefault(run, Journal(self._results, run))
            self._kept.move_to_end(run)
            while len(self._kept) > MAX_JOURNALS:
                self._kept.popitem(last=False)
        return journal


def sampled(file: BinaryIO, points: int) -> list[dict[str, Any]]:
    """Return at most `points` records at even distances in the file, and its newest one."""
    size = file.seek(0, os.SEEK_END)
    found: list[dict[str, Any]] = []
    if size <= 2 * SAMPLE_BYTES:
        found = [record for line in lines(file, size) if (record := record_in(line))]
        stride = -(-len(found) // points) or 1
        return found[:-1][::stride] + found[-1:]
    for number in range(points):
        begin = number * (size - SAMPLE_BYTES) // points
        around = os.pread(file.fileno(), SAMPLE_BYTES, begin).split(b"\n")
        found += _first(map(record_in, around[1 if begin else 0 : -1]))
    return found + _first(map(record_in, reversed([*lines(file, TAIL_BYTES)])))


def thinned(rows: Rows, points: int) -> Rows:
    """Return at most `points` rows that look the same: of each group its lowest and highest value.

    Neighbouring rows are put into `points` / 2 groups. Each group becomes two rows, at its first
    and its last moment, with the two extremes of each column in the order in which it moves.
    """
    count = len(rows.steps)
    if count <= points:
        return rows
    groups = max(1, points // 2)
    starts = np.linspace(0, count, groups + 1).astype(np.int64)[:-1]
    ends = np.append(starts[1:], count) - 1
    columns = {}
    for name, values in rows.columns.items():
        # fmin and fmax pass over NaN.
        low, high = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
        falls = values[ends] < values[starts]
        columns[name] = _paired(np.where(falls, high, low), np.where(falls, low, high))
    return Rows(
        rows.generation,
        rows.total,
        _paired(rows.steps[starts], rows.steps[ends]),
        _paired(rows.minutes[starts], rows.minutes[ends]),
        columns,
    )


def _paired(first: Floats, second: Floats) -> Floats:
    return np.stack([first, second], axis=1).reshape(-1)


def record_in(line: bytes) -> dict[str, Any] | None:
    """Return the record in a line with counters that are numbers; None if it holds none.

    It takes what `Record.from_json` takes, in a third of the time. Values are checked by column.
    """
    try:
        data = json.loads(line)
        for name in COUNTERS:
            if type(data[name]) is not int or not 0 <= data[name] <= MAX_COUNT:
                return None
        data["wall_s"] = wall_s = float(data["wall_s"])
        if not math.isfinite(wall_s) or not isinstance(data["values"], dict):
            return None
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None
    return dict(data)


def _table(rows: list[list[Any]]) -> Floats:
    """Return `[rows, columns]`, with NaN for what is no finite number."""
    if set(map(type, chain.from_iterable(rows))) <= {float}:
        table = np.array(rows, np.float64)
    else:
        table = np.array([[_number(value) for value in row] for row in rows], np.float64)
    table = table.reshape(len(rows), -1)
    table[~np.isfinite(table)] = np.nan
    return table


def _first(records: Iterable[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Return the first record there is, and read no further."""
    return [*islice(filter(None, records), 1)]


def _number(value: Any) -> float:
    try:
        return float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        return math.nan


def _plain(values: Floats) -> list[float | None]:
    return [float(f"{value:.6g}") if value == value else None for value in values.tolist()]

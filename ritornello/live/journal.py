"""metrics.jsonl as columns: read once, then only what has been added, and thinned for a chart.

A day of training is 17,000 records of 100 numbers. They are kept as one column per metric, so a
chart of a few metrics touches a few columns. A browser gets at most `points` rows at first, and
later only the rows that are new.

The file is somebody else's and may change in any way: a line may be damaged or half written, and a
resumed run replaces the file by a shorter one. What is read is followed by its byte offset; if the
bytes before the offset are not the ones that were read, reading begins anew, and `generation` says
so to whoever has the old rows.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from ritornello.core.run_layout import RECORDS
from ritornello.live.columns import Column
from ritornello.live.places import NotThereError, ResultsFolder
from ritornello.live.records import COUNTERS, record_in, sampled, table
from ritornello.live.rows import Floats, Rows, thinned
from ritornello.metrics.run_files import MAX_LINE_BYTES

READ_BYTES = 4_000_000  # at once
FINGERPRINT_BYTES = 256  # before the offset, by which a file is known again
MAX_NAMES = 2000  # metrics of a run; a damaged or hostile file may name any number
MAX_POINTS = 2000  # rows that a chart is given
MAX_JOURNALS = 24  # that are kept in memory, the latest used
LARGE_BYTES = 8_000_000  # a file up to here is read within a fraction of a second
PREVIEW_POINTS = 400
PREVIEW = -1  # the generation of rows that are a sample
BATCH = 500  # records that are put into the columns at once


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
                known = column.between(max(0, self._count - 50), self._count)
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
                {
                    name: self._columns[name].between(begin, self._count)
                    for name in names
                    if name in self._columns
                },
            )
        return thinned(rows, min(points, MAX_POINTS))

    def exactly(self, names: Sequence[str], begin: int, end: int, generation: int) -> Rows | None:
        """Return rows `begin` to `end` as they are; None if they are of another generation now."""
        with self._lock:
            if generation != self._generation:
                return None
            end = min(end, self._count)
            part, none = slice(begin, end), Column()
            return Rows(
                generation,
                self._count,
                self._counters["agent_steps"][part].astype(np.float64),
                self._minutes[part].copy(),
                {name: self._columns.get(name, none).between(begin, end) for name in names},
            )

    def _forget(self) -> None:
        self._count = 0
        self._offset = 0
        self._inode = 0
        self._before = b""  # the bytes that end at the offset
        self._is_skipping = False  # within a line that is too long
        self._columns: dict[str, Column] = {}
        self._counters = {name: np.zeros(0, np.int64) for name in COUNTERS}
        self._minutes: Floats = np.zeros(0)

    def _begin_anew(self) -> None:
        if self._count or self._offset:
            self._generation += 1
        self._forget()

    def _read(self) -> None:
        try:
            file = self._results.open(self._run, RECORDS)
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
        rest = b""
        while self._offset + len(rest) < size:
            piece = file.read(min(READ_BYTES, size - self._offset - len(rest)))
            if not piece:
                break
            *whole, rest = (rest + piece).split(b"\n")
            batch: list[dict[str, Any]] = []
            for line in whole:
                if not self._is_skipping and (record := record_in(line)):
                    batch.append(record)
                self._is_skipping = False
                if len(batch) >= BATCH:
                    self._take(batch)
                    batch = []
            self._take(batch)
            used = sum(map(len, whole)) + len(whole)
            if len(rest) > MAX_LINE_BYTES:  # not one of ours, however it may end
                self._is_skipping, used, rest = True, used + len(rest), b""
            self._offset += used
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
                for column in self._columns.values():
                    column.cut(self._count)
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
        for name, counter in self._counters.items():
            counter[begin:end] = [record[name] for record in batch]
        self._minutes[begin:end] = [record["wall_s"] / 60 for record in batch]
        # Most records have the same names, so there are few tables to make.
        alike: dict[tuple[str, ...], list[int]] = {}
        for index, record in enumerate(batch):
            alike.setdefault(tuple(record["values"]), []).append(index)
        for names, indices in alike.items():
            measured = table([list(batch[index]["values"].values()) for index in indices])
            at = begin + np.array(indices)
            for name, values in zip(names, measured.T, strict=True):
                if name in self._columns or len(self._columns) < MAX_NAMES:
                    self._columns.setdefault(name, Column()).add(at, values)
        self._count = end

    def _make_room(self, needed: int) -> None:
        room = len(self._minutes)
        if needed <= room:
            return
        more = max(needed, 2 * room) - room
        self._minutes = np.concatenate([self._minutes, np.zeros(more)])
        for name, counter in self._counters.items():
            self._counters[name] = np.concatenate([counter, np.zeros(more, np.int64)])


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
        if journal.is_read or self._results.facts(run, RECORDS)[1] <= LARGE_BYTES:
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
            with self._results.open(run, RECORDS) as file:
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
                name: table([[record["values"].get(name)] for record in kept])[:, 0]
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

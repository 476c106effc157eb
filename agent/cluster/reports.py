"""Reports: what the gateway's process says to the learner's, besides unrolls.

Figures lie in shared memory: the gateway writes them, and the learner reads them whenever it makes
a record. Lines for the user come through a pipe of their own that never makes the gateway wait: if
nobody reads, lines are dropped and counted.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from ritornello.transport.shared import SharedBlock

MAX_WAITING_BYTES = 200_000  # of lines that nobody reads
MAX_LINE_BYTES = 20_000
READ_BYTES = 65_536


class Figures:
    """Named numbers in shared memory, written by one process and read by another."""

    def __init__(self, names: Iterable[str]) -> None:
        """Allocate them, all 0."""
        self._names = tuple(names)
        self._shared = SharedBlock(8 * len(self._names), "figures")
        self._map()

    def _map(self) -> None:
        self._cells = self._shared.array.data.cast("d")

    def __getstate__(self) -> dict[str, Any]:
        return {"_names": self._names, "_shared": self._shared}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()

    def write(self, values: Mapping[str, float]) -> None:
        """Replace some of the numbers; each is written at once, all of them are not."""
        for name, value in values.items():
            self._cells[self._names.index(name)] = value

    def read(self) -> dict[str, float]:
        """Return all numbers by name."""
        return dict(zip(self._names, self._cells.tolist(), strict=True))

    def clear(self) -> None:
        """Be ready for the next writer."""
        for index in range(len(self._names)):
            self._cells[index] = 0.0


@dataclass(frozen=True)
class ReportsEnd:
    """The gateway's side. Travels as an argument of its `Process`."""

    figures: Figures
    mouth: Connection

    def log_here(self) -> None:
        """From now on what this process logs (INFO and above, of this program) goes there."""
        handler = _ToLearner(self.mouth)
        logger = logging.getLogger("ritornello.agent")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False


class Reports:
    """The learner's side: figures for good, and a pipe for each life of the gateway."""

    def __init__(self, names: Iterable[str]) -> None:
        """Allocate the figures; `open` makes the first pipe."""
        self.figures = Figures(names)
        self._ear: Connection | None = None
        self._unread = b""

    def open(self) -> ReportsEnd:
        """Make a pipe for a new gateway; the one before is dead."""
        self.close()
        self.figures.clear()
        self._ear, mouth = multiprocessing.Pipe(duplex=False)
        os.set_blocking(self._ear.fileno(), False)
        return ReportsEnd(self.figures, mouth)

    def lines(self) -> list[tuple[int, str]]:
        """Return what was said since the last call, as (level of logging, text); never waits."""
        if self._ear is None:
            return []
        with contextlib.suppress(OSError):
            while chunk := os.read(self._ear.fileno(), READ_BYTES):
                self._unread += chunk
        *whole, self._unread = self._unread.split(b"\n")
        self._unread = self._unread[:MAX_WAITING_BYTES]
        said = []
        for line in whole:
            with contextlib.suppress(ValueError, TypeError):
                level, text = json.loads(line)
                said.append((int(level), str(text)))
        return said

    def close(self) -> None:
        """Close the pipe. Idempotent."""
        if self._ear is not None:
            self._ear.close()
            self._ear = None
        self._unread = b""


class _ToLearner(logging.Handler):
    """Writes lines into a pipe as far as they fit; what does not fit now waits, within a limit."""

    def __init__(self, mouth: Connection) -> None:
        super().__init__(logging.INFO)
        self._mouth = mouth
        self._waiting = b""
        self._dropped = 0
        os.set_blocking(mouth.fileno(), False)

    def emit(self, record: logging.LogRecord) -> None:
        """Send a line; never waits and never raises."""
        try:
            text = record.getMessage()
        except Exception as error:  # as logging does: an error in a message ends nothing
            text = f"{record.msg!r} could not be written: {error!r}"
        line = json.dumps([record.levelno, text])
        if len(line) > MAX_LINE_BYTES:
            line = json.dumps([record.levelno, text[: MAX_LINE_BYTES // 6] + " [... cut]"])
        if len(self._waiting) + len(line) > MAX_WAITING_BYTES:
            self._dropped += 1
            return
        if self._dropped:
            more = json.dumps([logging.WARNING, f"{self._dropped} lines were dropped here"])
            self._waiting += more.encode() + b"\n"
            self._dropped = 0
        self._waiting += line.encode() + b"\n"
        with contextlib.suppress(OSError):
            while self._waiting:
                written = os.write(self._mouth.fileno(), self._waiting)
                self._waiting = self._waiting[written:]

"""Reports: a pipe through which the gateway's process tells the learner's numbers and log lines.

A message fits into the pipe whole or is dropped, so that neither side ever waits for the other.
"""

from __future__ import annotations

import logging
import multiprocessing
import select
from collections.abc import Mapping
from multiprocessing.connection import Connection

MAX_CHARACTERS = 900  # of a log line; a message must stay below the 4,096 bytes of PIPE_BUF
FIRST, LAST = MAX_CHARACTERS // 3, 2 * MAX_CHARACTERS // 3

Report = tuple[int, str] | dict[str, float]  # (level of logging, line) or metrics by name


class ReportSender(logging.Handler):
    """The gateway's side. Travels as an argument of its `Process`, as its connection."""

    def __init__(self, connection: Connection) -> None:
        """Take over the sending end of a pipe."""
        super().__init__(logging.INFO)
        self._connection = connection

    def log_here(self) -> None:
        """Send what this program logs in this process (INFO and above) from now on."""
        logger = logging.getLogger("ritornello.agent")
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Send a line, shortened in the middle."""
        text = record.getMessage()
        if len(text) > MAX_CHARACTERS:
            text = f"{text[:FIRST]} [...] {text[-LAST:]}"
        self._send((record.levelno, text))

    def send_metrics(self, metrics: Mapping[str, float]) -> None:
        """Send metrics by name."""
        self._send(dict(metrics))

    def _send(self, report: Report) -> None:
        try:
            # Writable means that PIPE_BUF bytes fit.
            if select.select([], [self._connection], [], 0)[1]:
                self._connection.send(report)
        except (OSError, ValueError):
            return  # the learner is gone, or will be soon: its end of the ring says so


class ReportReceiver:
    """The learner's side: one pipe for each life of the gateway."""

    def __init__(self) -> None:
        """Make no pipe yet; `open` does."""
        self._connection: Connection | None = None

    def open(self) -> Connection:
        """Return the sending end of a new pipe; the gateway before is dead."""
        self.close()
        self._connection, sender = multiprocessing.Pipe(duplex=False)
        return sender

    def receive(self) -> list[Report]:
        """Return what has come, without waiting."""
        reports: list[Report] = []
        try:
            while self._connection is not None and self._connection.poll(0):
                reports.append(self._connection.recv())
        except (EOFError, OSError):
            self.close()
        return reports

    def close(self) -> None:
        """Close the pipe. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

"""The files of a run that others look at while it trains: status.json, findings, evaluations.

They are written by the output thread of the run's files, so that neither a full disk nor one that
does not answer stops or slows the training. Of status.json only the newest content counts: what
could not be written in time is dropped. The other two are journals, in which each line counts.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from ritornello.core.run_layout import EVALUATIONS, FINDINGS, STATUS
from ritornello.metrics.health import Finding
from ritornello.metrics.output_thread import OutputThread
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import force_to_disk, open_for_append
from ritornello.metrics.status_file import FORMAT, identity, write_status
from ritornello.metrics.text import short

log = logging.getLogger(__name__)

EVALUATION_COLUMNS = (
    "time", "agent_steps", "updates", "game", "policy", "games", "mean", "standard_error", "min",
    "max", "mean_length", "distinct_games", "film",
)  # fmt: skip


class StatusFiles:
    """Writes the three files of one session. Belongs to the main thread."""

    def __init__(self, folder: Path, thread: OutputThread, session: int = 1) -> None:
        """Say that the run starts.

        Args:
          folder: folder of the run, already taken back to where the session begins.
          thread: the output thread of its files.
          session: number of the session, 1 for the first one.
        """
        self.disk_free_mb: float | None = None  # as it was when status.json was written last
        self._folder = folder
        self._thread = thread
        self._journals: dict[str, TextIO] = {}  # opened with the first line, on the thread
        self._failed: set[str] = set()
        self._status: dict[str, Any] = {"format": FORMAT, "session": session, **identity()}
        self._waits = False  # status.json is to be written, and is not yet
        self.show({"state": "starting"})

    def show(self, news: Mapping[str, Any]) -> None:
        """Have status.json written soon, with these keys changed."""
        # A new mapping each time: the thread may be reading the one before.
        self._status = {**self._status, "time": round(time.time(), 3), **news}
        if not self._waits:
            self._waits = True  # before the thread can take it back
            if not self._thread.submit(self._write):
                self._waits = False

    def finding(self, finding: Finding, at: Record) -> None:
        """Have a finding of the health metrics written soon; `at` holds the counters."""
        value = short(finding.value)
        line = {
            "time": round(time.time(), 3),
            "agent_steps": at.agent_steps,
            "updates": at.updates,
            "name": finding.metric,
            "message": f"is {value} (healthy: {finding.healthy})",
            "advice": finding.cause,
        }
        self._append(FINDINGS, json.dumps(line))

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """Have a line of evaluations.csv written soon.

        Args:
          row: a value for each of EVALUATION_COLUMNS but the time.
        """
        self._append(EVALUATIONS, _csv_line([round(time.time(), 3), *_values(row)]))

    def flush(self) -> None:
        """Have the journals brought to the disk soon; `OutputThread.flush` waits for it."""
        self._thread.submit(partial(self._try, FINDINGS, self._force))

    def close(self) -> None:
        """Have the journals closed after all that waits. May be called twice."""
        self._thread.submit(self._close)

    # --- on the output thread --------------------------------------------------------------------

    def _write(self) -> None:
        self._waits = False  # from here on, news need another call
        self._try(STATUS, lambda: write_status(self._folder / STATUS, self._status))
        self.disk_free_mb = None
        with contextlib.suppress(OSError):
            self.disk_free_mb = shutil.disk_usage(self._folder).free / 1e6

    def _append(self, name: str, line: str) -> None:
        self._thread.submit(partial(self._try, name, partial(self._append_now, name, line)))

    def _append_now(self, name: str, line: str) -> None:
        file = self._journals.get(name)
        if file is None:
            path = self._folder / name
            file = self._journals[name] = open_for_append(path)
            if name == EVALUATIONS and path.stat().st_size == 0:
                file.write(_csv_line(EVALUATION_COLUMNS) + "\n")
        file.write(line + "\n")
        file.flush()

    def _force(self) -> None:
        force_to_disk(self._folder / name for name in self._journals)

    def _close(self) -> None:
        for name, file in self._journals.items():
            self._try(name, file.close)
        self._journals = {}

    def _try(self, name: str, action: Callable[[], object]) -> None:
        try:
            action()
        except (OSError, ValueError) as error:
            if name not in self._failed:
                self._failed.add(name)
                reason = getattr(error, "strerror", None) or error
                log.warning(
                    "%s cannot be written (%s): training goes on, it is tried again", name, reason
                )
        else:
            if name in self._failed and name == STATUS:
                self._failed.discard(name)
                log.info("%s is written again", name)


def _values(row: Mapping[str, Any]) -> list[Any]:
    return [row[name] for name in EVALUATION_COLUMNS[1:]]


def _csv_line(values: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()

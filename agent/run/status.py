"""The files of a run that others look at while it trains: status.json, findings, evaluations.

They are written by the output thread of the run's files, so that neither a full disk nor one that
does not answer stops or slows the training. Only the newest content of status.json counts: older
content that could not be written in time is dropped, and no session resumes from it. The other two
are journals, in which each line counts. docs/run_folder.md has the keys.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ritornello.core.atomic_file import TEMPORARY_SUFFIX, csv_text
from ritornello.core.run_layout import EVALUATIONS, FINDINGS, STATUS
from ritornello.metrics.health import Finding
from ritornello.metrics.output_thread import OutputThread
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import force_to_disk, open_for_append
from ritornello.metrics.text import short

FORMAT = 1
log = logging.getLogger(__name__)


class Status:
    """Writes the three files of one session. Belongs to the main thread."""

    def __init__(self, folder: Path, thread: OutputThread | None, session: int = 1) -> None:
        """Write that the run starts. `folder` is already taken back to where the session begins.

        `thread` is the output thread of the run's files; with None nothing is written. `session` is
        the number of the session, 1 for the first.
        """
        self.state = ""  # what is being done
        self.disk_free_mb: float | None = None  # as it was when status.json was written last
        self._folder = folder
        self._thread = thread
        self._failed: set[str] = set()  # files of which it was said
        here = {"pid": os.getpid(), "host": platform.node()}
        self._content: dict[str, Any] = {"format": FORMAT, "session": session, **here}
        self._waits = False  # status.json is to be written, and is not yet
        self.enter("starting")

    def enter(self, state: str, **more: object) -> None:
        """Write at once that the run is in another state from now on; `more` are further keys."""
        if state != self.state:
            self.state = state
            self.show(more)

    def show(self, news: Mapping[str, Any]) -> None:
        """Have status.json written soon, with these keys changed."""
        # A new mapping each time: the thread may be reading the one before.
        now = {"time": round(time.time(), 3), "state": self.state}
        self._content = {**self._content, **now, **news}
        if not self._waits:
            self._waits = True  # before the thread can take it back
            if not self._submit(self._write):
                self._waits = False

    def finding(self, finding: Finding, at: Record) -> None:
        """Have a finding of the health metrics written soon; `at` holds the counters."""
        line = {
            "time": round(time.time(), 3),
            "agent_steps": at.agent_steps,
            "updates": at.updates,
            "name": finding.metric,
            "message": f"is {short(finding.value)} (healthy: {finding.healthy})",
            "advice": finding.cause,
        }
        self._append(FINDINGS, json.dumps(line) + "\n")

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """Have a line of evaluations.csv written soon: a value for each column but the time."""
        line = csv_text([round(time.time(), 3), *row.values()], [])
        self._append(EVALUATIONS, line, head=csv_text(["time", *row], []))

    def flush(self) -> None:
        """Have the journals brought to the disk soon; `OutputThread.flush` waits for it."""
        journals = [self._folder / name for name in (FINDINGS, EVALUATIONS)]
        written = (path for path in journals if path.exists())
        self._submit(partial(self._try, FINDINGS, lambda: force_to_disk(written)))

    def _submit(self, action: Callable[[], object]) -> bool:
        return self._thread is not None and self._thread.submit(action)

    def _append(self, name: str, line: str, head: str = "") -> None:
        self._submit(partial(self._try, name, partial(self._append_now, name, line, head)))

    # --- on the output thread --------------------------------------------------------------------

    def _write(self) -> None:
        self._waits = False  # from here on, news need another call
        self._try(STATUS, lambda: _replace(self._folder / STATUS, self._content))
        self.disk_free_mb = None
        with contextlib.suppress(OSError):
            self.disk_free_mb = shutil.disk_usage(self._folder).free / 1e6

    def _append_now(self, name: str, line: str, head: str) -> None:
        path = self._folder / name
        with open_for_append(path) as file:
            if head and path.stat().st_size == 0:
                file.write(head)
            file.write(line)

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


def _replace(path: Path, status: Mapping[str, Any]) -> None:
    """Put a new file in the place of the old one; a reader sees one of them whole.

    Raises:
      OSError: if it cannot be written; the old one is as it was then.
      ValueError: if a number in it is not finite.
    """
    text = json.dumps(status, allow_nan=False, ensure_ascii=False)
    # A session that goes on in this folder removes what is left of one that was killed here.
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    temporary.unlink(missing_ok=True)  # whoever left one, and whatever it links to
    try:
        temporary.write_text(text + "\n", encoding="utf-8")
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)  # of one that failed

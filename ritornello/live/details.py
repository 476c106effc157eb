"""What the page of one run shows beside its curves: flags, findings, evaluations, films, log.

Every file may be missing, half written or damaged; then its part of the page is empty.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from ritornello.agent.run.control_file import CONTROL, NAME
from ritornello.core.run_layout import EVALUATIONS, FINDINGS, FLAGS, LOG, SESSIONS, STATUS, SUMMARY
from ritornello.live.journal import Journal
from ritornello.live.places import NotThereError, ResultsFolder
from ritornello.metrics.run_files import csv_cells

FILMS = "films"
TAIL_BYTES = 200_000  # of findings and evaluations: some thousand lines
MAX_ROWS = 200
LOG_BYTES = 200_000  # of train.log: lines for debugging among them, which can be most of it
MAX_CELL = 500  # characters
# Files of a run that a browser is given as they are. None of them can hold code.
KINDS = {
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".gif": "image/gif",
    ".png": "image/png",
}


def details(results: ResultsFolder, run: str, journal: Journal) -> dict[str, Any]:
    """Return what is known of one run, as plain types.

    Args:
      results: where the run is.
      run: its name.
      journal: its records.
    """
    status, summary = results.json(run, STATUS), results.json(run, SUMMARY)
    sessions = results.json(run, SESSIONS, 50_000_000)
    return {
        "flags": results.json(run, FLAGS),
        "status": status,
        "summary": {name: summary[name] for name in summary if name != "findings"},
        "findings": findings(results, run),
        "evaluations": evaluations(results, run),
        "films": films(results, run),
        "session": _last_session(sessions),
        "names": journal.names(),
        "newest": journal.newest(),
        "log": log_tail(results, run),
        "waiting": _waiting(results, run),
    }


def findings(results: ResultsFolder, run: str) -> list[dict[str, Any]]:
    """Return what the health metrics said, the newest first: name, message, advice, agent_steps."""
    found: list[dict[str, Any]] = []
    for line in results.tail(run, FINDINGS, TAIL_BYTES):
        with suppress(ValueError, RecursionError):
            data = json.loads(line)
            if isinstance(data, dict):
                found.append(data)
    names = ("time", "agent_steps", "updates", "name", "message", "advice")
    return [{name: _cell(each.get(name)) for name in names} for each in found[: -MAX_ROWS - 1 : -1]]


def evaluations(results: ResultsFolder, run: str) -> list[dict[str, Any]]:
    """Return the rows of evaluations.csv, the newest first."""
    heading = ""
    with suppress(NotThereError, OSError), results.open(run, EVALUATIONS) as file:
        heading = file.readline(10_000).decode("utf-8", "replace")
    names = csv_cells(heading)
    lines = [x for x in results.tail(run, EVALUATIONS, TAIL_BYTES) if x + "\n" != heading]
    rows = [
        {name: _cell(value) for name, value in zip(names, cells, strict=True)}
        for cells in map(csv_cells, lines)
        if len(cells) == len(names)
    ]
    return rows[: -MAX_ROWS - 1 : -1]


def films(results: ResultsFolder, run: str) -> list[dict[str, Any]]:
    """Return films and pictures of evaluations, the newest first."""
    return [
        {"name": f"{FILMS}/{name}", "time": facts.st_mtime}
        for name, facts in results.listing(run, FILMS)
        if os.path.splitext(name)[1].lower() in KINDS and name.isprintable()
    ][: -MAX_ROWS - 1 : -1]


def log_tail(results: ResultsFolder, run: str) -> list[str]:
    """Return the last whole lines of train.log; those for debugging only where all are."""
    every = [line[:5000] for line in results.tail(run, LOG, LOG_BYTES)]
    return ([line for line in every if " DEBUG " not in line] or every)[-MAX_ROWS:]


def _waiting(results: ResultsFolder, run: str) -> int:
    """Return how many commands the run has not answered yet."""
    return sum(bool(NAME.fullmatch(name)) for name, _ in results.listing(run, CONTROL))


def _last_session(sessions: dict[str, Any]) -> dict[str, Any]:
    """Return what run.json says of the newest session, and how many there were."""
    resumed = sessions.get("resumed")
    later = (
        [each for each in resumed if isinstance(each, dict)] if isinstance(resumed, list) else []
    )
    newest = later[-1] if later else sessions
    names = ("started", "command_line", "version", "source", "machine", "control")
    return {
        "count": (1 + len(later)) if sessions else 0,
        **{name: newest[name] for name in names if name in newest},
    }


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_CELL]
    if value is None or type(value) in (bool, int) or (type(value) is float and value == value):
        return value
    return str(value)[:MAX_CELL]

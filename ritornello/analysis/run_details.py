"""What a run's folder says beside its curves: sessions, findings, evaluations, log.

Every file may be missing, half written or damaged; then what is said of it is empty. The report and
the live page show it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from ritornello.analysis.places import NotThereError, ResultsFolder
from ritornello.core.run_layout import EVALUATIONS, FINDINGS, LOG, SESSIONS
from ritornello.metrics.run_files import csv_cells

TAIL_BYTES = 200_000  # some thousand lines; of train.log, lines for debugging can be most of it
MAX_ROWS = 200
MAX_CELL = 500  # characters
MAX_SESSIONS_BYTES = 50_000_000  # run.json of a thousand sessions is below
FINDING = ("time", "agent_steps", "updates", "name", "message", "advice")


def sessions(results: ResultsFolder, run: str) -> list[dict[str, Any]]:
    """Return the sessions in run.json, the first one first."""
    first = results.json(run, SESSIONS, MAX_SESSIONS_BYTES)
    later = first.pop("resumed", [])
    every = [first, *(later if isinstance(later, list) else [])]
    return [each for each in every if each and isinstance(each, dict)]


def findings(results: ResultsFolder, run: str) -> list[dict[str, Any]]:
    """Return what the health metrics said, the newest first, under the names of FINDING."""
    found: list[dict[str, Any]] = []
    for line in results.tail(run, FINDINGS, TAIL_BYTES):
        with suppress(ValueError, RecursionError):
            data = json.loads(line)
            if isinstance(data, dict):
                found.append({name: _cell(data.get(name)) for name in FINDING})
    return found[: -MAX_ROWS - 1 : -1]


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


def log_tail(results: ResultsFolder, run: str) -> list[str]:
    """Return the last whole lines of train.log; those for debugging only where all are."""
    every = [line[:5000] for line in results.tail(run, LOG, TAIL_BYTES)]
    return ([line for line in every if " DEBUG " not in line] or every)[-MAX_ROWS:]


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_CELL]
    if value is None or type(value) in (bool, int) or (type(value) is float and value == value):
        return value
    return str(value)[:MAX_CELL]

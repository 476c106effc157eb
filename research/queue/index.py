"""index.csv: one row for every run folder that was ever begun, the abandoned ones too.

The file lies in git while run folders do not, so it is what remains of a run when its store is
gone: rows of other stores are kept as they are.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from research.queue.plan import INDEX_FILE as INDEX_FILE  # all who use an index take it from here
from research.queue.plan import PlannedRun
from research.queue.store import Store
from ritornello.agent.stored.run_folder import RunFolder
from ritornello.analysis.run_facts import commit_text, machine_text
from ritornello.core.atomic_file import write_text
from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import MAX_TEXT, shown, shown_text
from ritornello.metrics.curve import undisturbed_share
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import read_records

MAX_DIGITS = 18  # of a count
RUNNING, STOPPED, DONE, FAILED, ABANDONED = "running", "stopped", "done", "failed", "abandoned"


@dataclass(frozen=True)
class Row:
    """One run folder. All columns are text, "" where something is not known."""

    experiment: str
    arm: str
    env: str
    seed: str
    steps_asked: str
    steps_done: str
    status: str  # running | stopped | done | failed | abandoned: begun anew, or left the queue
    minutes: str  # of training, all sessions together
    undisturbed: str  # share of these minutes in which nothing else used the processor
    sessions: str
    commit: str  # of each session, where they differ
    processor: str
    started: str
    ended: str  # the end of the last session
    folder: str  # below the store
    message: str  # the last line of a run that failed

    @property
    def run(self) -> str:
        """The name of its planned run."""
        return self.folder.rpartition("/")[0]


def read_index(path: Path) -> dict[str, Row]:
    """Return folder -> row, in the order of the file; empty without a file.

    Raises:
      ConfigError: if the file is no index, a count in it is none, or two rows have one folder.
    """
    columns = [field.name for field in fields(Row)]
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            if reader.fieldnames != columns:
                raise ValueError(f"its columns are {reader.fieldnames}")
            rows = [_checked(row, reader.line_num) for row in reader]
        folders = Counter(row.folder for row in rows)
        for folder, count in folders.items():
            if not folder or count > 1:  # one row would hide the others, and be all that is kept
                raise ValueError(f"{count} rows have the folder {folder!r}; each run has its own")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise ConfigError(
            f"{path} cannot be read ({error}). Expected a CSV file with the columns "
            f"{', '.join(columns)}; take it from git again."
        ) from error
    return {row.folder: row for row in rows}


def _checked(values: Mapping[Any, Any], line: int) -> Row:
    """Return a row of the file; raises ValueError if it is none, as the marks of a merge are."""
    if None in values or None in values.values():  # so csv says that there are more, or fewer
        raise ValueError(f"line {line} has not as many columns as the first")
    row = Row(**values)
    for name in ("steps_asked", "steps_done", "sessions"):
        text = values[name]
        if text and not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            raise ValueError(
                f"line {line}, {name} is {shown(text)}, expected a whole number or nothing"
            )
    try:
        is_time = 0.0 <= float(row.minutes or 0) < math.inf
    except ValueError:
        is_time = False
    if not is_time:
        raise ValueError(
            f"line {line}, minutes is {shown(row.minutes)}, expected a number or nothing"
        )
    return row


def write_index(path: Path, rows: Iterable[Row]) -> None:
    """Write all rows, atomically. What cannot be printed is written as in `shown_text`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    # The writer puts no quotes around a carriage return, at which the reader would begin a row.
    writer.writerows(
        {name: shown_text(value, MAX_TEXT) for name, value in asdict(row).items()} for row in rows
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text.getvalue())


def is_done(rows: Mapping[str, Row], run: PlannedRun) -> bool:
    """Whether the index knows that a run has done its steps, perhaps in another store."""
    return any(
        row.run == run.name and row.status == DONE and int(row.steps_done or 0) >= run.steps
        for row in rows.values()
    )


def steps_played(rows: Iterable[Row]) -> int:
    """Return the agent steps of all runs, those that were abandoned too.

    A run whose folder was copied, to go on under another entry of the queue, counts once.
    """
    of_run: dict[tuple[str, ...], int] = {}
    for row in rows:
        run = (row.folder.rpartition("/")[2], row.arm, row.env, row.seed, row.started)
        of_run[run] = max(of_run.get(run, 0), int(row.steps_done or 0))
    return sum(of_run.values())


def refresh(
    rows: Mapping[str, Row], runs: Iterable[PlannedRun], store: Store, running: Collection[str] = ()
) -> dict[str, Row]:
    """Return the index with every run folder of the store as it is now.

    Args:
      rows: the index so far.
      runs: all runs of the queue.
      store: the store, which holds the run folders.
      running: names of the runs that are under way.
    """
    fresh = dict(rows)
    planned = set()
    for run in runs:
        planned.add(run.name)
        folders = store.run_folders(run)
        present = store.present_folder(run)
        for folder in folders:
            counts = present is not None and folder.path == present.path
            name = folder.path.relative_to(store.path).as_posix()
            before = fresh.get(name)
            # What has come to its end stays as it is, unless more steps are asked of it.
            asked = int(before.steps_asked or 0) if before and before.status == DONE else -1
            if asked < run.steps:
                fresh[name] = _row(run, folder, name, store, counts, running)
        here = {str(folder.path.relative_to(store.path)) for folder in folders}
        for name, row in fresh.items():
            # Of a store that is gone, and begun anew in this one.
            if here and row.run == run.name and name not in here and row.status != DONE:
                fresh[name] = replace(row, status=ABANDONED)
    for name, row in fresh.items():
        if row.run not in planned and row.status in (RUNNING, STOPPED, FAILED):
            fresh[name] = replace(row, status=ABANDONED)
        elif row.status == RUNNING and row.run not in running:
            fresh[name] = replace(row, status=STOPPED)
    return fresh


def _row(
    run: PlannedRun,
    folder: RunFolder,
    name: str,
    store: Store,
    counts: bool,
    running: Collection[str],
) -> Row:
    records = read_records(folder.path)
    newest = records[-1] if records else Record()
    undisturbed = undisturbed_share(records)
    sessions = _sessions(folder)
    state = store.state(run)
    steps_done, wall_s, message = newest.agent_steps, newest.wall_s, ""
    if not counts:
        status = ABANDONED
    elif run.name in running:
        status = RUNNING
    elif store.is_done(run):
        status = DONE
        steps_done = max(steps_done, store.steps_saved(run))  # its last record may be lost
    elif state is not None and state.has_failed:
        status, message = FAILED, state.message
    else:
        status = STOPPED
    started = str(sessions[0].get("started", "")) if sessions else ""
    ended = _time(folder.metrics_file) if records and status != RUNNING else ""
    return Row(
        experiment=run.experiment,
        arm=run.arm,
        env=run.env,
        seed=str(run.seed),
        steps_asked=str(run.steps),
        steps_done=str(steps_done),
        status=status,
        minutes=f"{max(0.0, wall_s) / 60:.1f}",  # a damaged line may hold any number
        undisturbed="" if undisturbed is None else f"{undisturbed:.2f}",
        sessions=str(len(sessions)),
        commit=_each(commit_text(session.get("source", {})) for session in sessions),
        processor=_each(machine_text(session.get("machine", {})) for session in sessions),
        started=started,
        ended=ended,
        folder=name,
        message=message,
    )


def _sessions(folder: RunFolder) -> list[dict[str, Any]]:
    try:
        return folder.sessions()
    except (OSError, ValueError):
        return []  # cut off by a kill: the run is as good, only less documented


def _each(texts: Iterable[str]) -> str:
    return ", then ".join(dict.fromkeys(texts))


def _time(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime).astimezone().isoformat(timespec="seconds")

"""Takes the journals of a run back to a checkpoint, before the run goes on from there.

A run that was killed, or that is resumed from an older checkpoint, has written lines about updates
that the checkpoint does not know. They will happen again, differently; left in place, curves would
fold back on themselves. So they are cut, and kept under a name that nothing reads:

    metrics.jsonl.20261122-134500.cut

Journals are expendable: what cannot be read in them is cut as well, and a folder, a pipe or a link
in the place of one is renamed whole.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ritornello.core.atomic_file import atomic_file
from ritornello.core.run_layout import EVALUATIONS, FINDINGS, GAMES, RECORDS
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import is_regular, name_aside, pieces, set_aside

EVALUATED_COLUMN = 2  # of evaluations.csv, from the left: updates of the weights that played
EVENT_FILES = "events.out.tfevents.*"
OTHER_LEARNERS = "metrics-rank*.jsonl"  # records of those after the first
# The columns that say when, from the right (metrics/sinks.py): updates in one file, in the others
# training and agent steps. An update may need no new agent steps, so those alone do not say it.
TRAINING_COLUMN, STEPS_COLUMN, UPDATES_COLUMN = -3, -2, -1
TEXT_FILES = {
    GAMES: STEPS_COLUMN,
    "Episode_steps.txt": STEPS_COLUMN,
    "max_reward_file.txt": STEPS_COLUMN,
    "Loss_file.txt": STEPS_COLUMN,
    "lr_file.txt": STEPS_COLUMN,
    "Train_time.txt": UPDATES_COLUMN,
}

ROUNDED_S = 1e-3  # records hold milliseconds

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cut:
    """What was cut from one journal, and where it lies now."""

    name: str
    lines: int  # 0 if it was no journal at all
    aside: Path


def rewind(
    folder: Path,
    *,
    updates: int,
    agent_steps: int,
    training_steps: int | None = None,
    wall_s: float = math.inf,
    now: datetime | None = None,
) -> list[Cut]:
    """Cut lines about what came after a checkpoint, and lines that nobody can read.

    Each journal is replaced at once, after what is cut from it is safely on the disk. TensorBoard
    is told to forget what came after the checkpoint, where it had been shown anything.

    Args:
      folder: folder of the run.
      updates: number of updates of the checkpoint.
      agent_steps: number of agent steps of the checkpoint.
      training_steps: of the checkpoint: its updates, times the batch size and unroll length of the
        session that wrote it. None: unknown; lines of the same agent steps are kept then.
      wall_s: seconds of training of the checkpoint; inf: unknown, and not looked at.
      now: the time in the names; the present time if None.

    Returns:
      What was cut, for the log; empty if there was nothing to cut.

    Raises:
      OSError: if the folder cannot be written to. Each journal is then as it was, or done.
    """
    at = now or datetime.now()

    def is_past(line: str) -> bool:
        record = Record.from_json(line)
        # Steps and time go on while nothing is learned: at the start, at the end, and when a second
        # signal comes in between.
        is_later = record.agent_steps > agent_steps or record.wall_s > wall_s + ROUNDED_S
        return record.updates <= updates and not is_later

    cuts = [_cut(folder / RECORDS, is_past, at)]
    for name, column in TEXT_FILES.items():

        def is_within(line: str, column: int = column) -> bool:
            columns = line.split(",")
            if column == UPDATES_COLUMN:
                return int(columns[column]) <= updates
            steps = int(columns[column])
            # Sessions before that one may have counted training steps in batches of another size,
            # but they had fewer agent steps.
            if steps == agent_steps and training_steps is not None:
                return int(columns[TRAINING_COLUMN]) <= training_steps
            return steps <= agent_steps

        cuts.append(_cut(folder / name, is_within, at))
    cuts += [_cut(path, is_past, at) for path in sorted(folder.glob(OTHER_LEARNERS))]

    def is_known(line: str) -> bool:
        finding = json.loads(line)
        return bool(finding["updates"] <= updates and finding["agent_steps"] <= agent_steps)

    def is_done(line: str) -> bool:
        columns = line.split(",")
        if columns[EVALUATED_COLUMN] == "updates":  # the heading
            return True
        return int(columns[EVALUATED_COLUMN]) <= updates

    cuts.append(_cut(folder / FINDINGS, is_known, at))
    cuts.append(_cut(folder / EVALUATIONS, is_done, at))
    if cuts[0] is not None:
        _purge_events(folder, agent_steps)
    return [cut for cut in cuts if cut is not None]


def _cut(path: Path, wanted: Callable[[str], bool], at: datetime) -> Cut | None:
    """Move unwanted or unreadable lines of a file to another one; None if there are none."""
    if not path.exists() and not path.is_symlink():
        return None
    if not is_regular(path):
        return Cut(path.name, 0, set_aside(path, at))
    verdicts = bytearray()  # one per piece: 1 stays
    with path.open("rb") as file:
        for piece, whole in pieces(file):
            verdicts.append(whole and _is_good(piece, wanted))
    dropped = verdicts.count(0)
    if not dropped:
        return None
    if dropped == len(verdicts):
        return Cut(path.name, dropped, set_aside(path, at))
    aside = name_aside(path, at)
    # What is cut is complete on the disk before the journal changes: the inner one is left first.
    with atomic_file(path) as kept, atomic_file(aside) as cut, path.open("rb") as file:
        for (piece, _), stays in zip(pieces(file), verdicts, strict=True):
            (kept if stays else cut).write(piece)
    return Cut(path.name, dropped, aside)


def _is_good(piece: bytes, wanted: Callable[[str], bool]) -> bool:
    try:
        return wanted(piece.decode("utf-8"))
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


def _purge_events(folder: Path, agent_steps: int) -> None:
    """Tell TensorBoard that the run starts again: events of later steps are not shown any more."""
    if not any(folder.glob(EVENT_FILES)):
        return
    try:
        writer = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        events: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
    except ImportError:
        log.warning("tensorboard is not installed: its curves of this run will fold back")
        return
    start = events.SessionLog(status=events.SessionLog.START)
    with contextlib.closing(writer.EventFileWriter(str(folder))) as file:
        file.add_event(events.Event(wall_time=time.time(), step=agent_steps + 1, session_log=start))

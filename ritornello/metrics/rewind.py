"""Takes the journals of a run back to a checkpoint, before the run goes on from there.

A run that was killed, or that is resumed from an older checkpoint, has written lines about updates
that the checkpoint does not know. They will happen again, differently; left in place, curves would
fold back on themselves. So they are cut, and kept under a name that nothing reads:

    metrics.jsonl.20261122-134500.cut

Journals are expendable: what cannot be read in them is cut as well, and a folder, a pipe or a link
in the place of one is renamed whole.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from ritornello.core.atomic_file import atomic_file
from ritornello.core.run_layout import (
    EVALUATIONS,
    FINDINGS,
    GAMES,
    RECORDS,
    SCORES,
    SCORES_PER_LIFE,
)
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import csv_cells, is_regular, lines_from, name_aside, set_aside

OTHER_LEARNERS = "metrics-rank*.jsonl"  # records of those after the first
ROUNDED_S = 1e-3  # records hold milliseconds


@dataclass(frozen=True)
class Cut:
    """Lines that were cut from one journal, and where they lie now."""

    name: str
    lines: int  # 0 if it was no journal at all
    aside: Path


@dataclass(frozen=True)
class Point:
    """A checkpoint's place in its run. Each method says whether a line is from before it.

    A line of another form raises ValueError, LookupError or TypeError.
    """

    updates: int
    agent_steps: int
    # The updates, times the batch size and unroll length of the session that wrote the checkpoint.
    # None: unknown; lines of the same agent steps are kept then.
    training_steps: int | None = None
    wall_s: float = math.inf  # seconds of training; inf: unknown
    has_best: bool = True  # whether there is a `best.pt` from before
    evaluated_at: int | None = None  # agent steps of the last evaluation that is not due again

    def follows_record(self, line: str) -> bool:
        """Whether a record is from before. Steps and time go on while nothing is learned."""
        record = Record.from_json(line)
        is_later = record.agent_steps > self.agent_steps or record.wall_s > self.wall_s + ROUNDED_S
        return record.updates <= self.updates and not is_later

    def follows_finding(self, line: str) -> bool:
        """Whether a line of findings.jsonl is from before."""
        finding = json.loads(line)
        return bool(
            finding["updates"] <= self.updates and finding["agent_steps"] <= self.agent_steps
        )

    def follows_evaluation(self, line: str) -> bool:
        """Whether a line of evaluations.csv is the heading, or of an evaluation not due again."""
        agent_steps, updates = line.split(",")[1:3]
        if updates == "updates":
            return True
        is_due = self.evaluated_at is not None and int(agent_steps) > self.evaluated_at
        return int(updates) <= self.updates and not is_due

    def follows_score(self, line: str) -> bool:
        """Whether a line of a table of tests is the heading, or about weights from before."""
        model, steps = csv_cells(line)[:2]
        return steps == "model_steps" or self.follows_model(model, int(steps))

    def follows_model(self, model: str, agent_steps: int) -> bool:
        """Whether the weights in a checkpoint of the name `model` are from before.

        An update may need no new agent steps; then its number in the name decides.
        """
        if model == "best" and agent_steps == self.agent_steps:
            return self.has_best
        updates = re.fullmatch(r"update_([0-9]+)", model)
        is_later = updates is not None and int(updates[1]) > self.updates
        return agent_steps <= self.agent_steps and not is_later

    def follows_update(self, line: str) -> bool:
        """Whether a line of text that ends with updates is from before."""
        return int(line.split(",")[-1]) <= self.updates

    def follows_steps(self, line: str) -> bool:
        """Whether a line of text (metrics/sinks.py) with steps as its last but one is from before.

        An update may need no new agent steps; then the training steps before them decide. Earlier
        sessions may have counted those in batches of another size, but had fewer agent steps.
        """
        columns = line.split(",")
        steps = int(columns[-2])
        if steps == self.agent_steps and self.training_steps is not None:
            return int(columns[-3]) <= self.training_steps
        return steps <= self.agent_steps


# File -> whether a point of the run follows one of its lines.
JOURNALS: dict[str, Callable[[Point, str], bool]] = {
    RECORDS: Point.follows_record,
    GAMES: Point.follows_steps,
    "Episode_steps.txt": Point.follows_steps,
    "max_reward_file.txt": Point.follows_steps,
    "Loss_file.txt": Point.follows_steps,
    "lr_file.txt": Point.follows_steps,
    "Train_time.txt": Point.follows_update,
    FINDINGS: Point.follows_finding,
    EVALUATIONS: Point.follows_evaluation,
    SCORES: Point.follows_score,
    SCORES_PER_LIFE: Point.follows_score,
}


def rewind(folder: Path, point: Point, at: datetime) -> list[Cut]:
    """Cut lines from after a checkpoint, and lines that nobody can read.

    Each journal is replaced at once, after the lines to cut are safely on the disk. `at` is the
    time in the names.

    Returns:
      What was cut, for the log; empty if there was nothing to cut.

    Raises:
      OSError: if the folder cannot be written to. Each journal is then as it was, or done.
    """
    others = {path.name: Point.follows_record for path in sorted(folder.glob(OTHER_LEARNERS))}
    every = (
        _cut(folder / name, partial(follows, point), at)
        for name, follows in (JOURNALS | others).items()
    )
    return [cut for cut in every if cut is not None]


def _cut(path: Path, wanted: Callable[[str], bool], at: datetime) -> Cut | None:
    """Move unwanted or unreadable lines of a file to another one; None if there are none."""
    if not path.exists() and not path.is_symlink():
        return None
    if not is_regular(path):
        return Cut(path.name, 0, set_aside(path, at))
    with path.open("rb") as file:
        verdicts = bytearray(_is_good(line, wanted) for line in lines_from(file))  # 1: it stays
    dropped = verdicts.count(0)
    if not dropped:
        return None
    headings = path.suffix == ".csv"  # which says nothing by itself
    if dropped >= len(verdicts) - headings:
        return Cut(path.name, dropped, set_aside(path, at))
    aside = name_aside(path, at)
    # What is cut is complete on the disk before the journal changes: the inner one is left first.
    with atomic_file(path) as kept, atomic_file(aside) as cut, path.open("rb") as file:
        for line, stays in zip(lines_from(file), verdicts, strict=True):
            (kept if stays else cut).write(line)
    return Cut(path.name, dropped, aside)


def _is_good(line: bytes, wanted: Callable[[str], bool]) -> bool:
    try:
        return line.endswith(b"\n") and wanted(line.decode("utf-8"))
    except (ValueError, LookupError, TypeError, RecursionError):
        return False

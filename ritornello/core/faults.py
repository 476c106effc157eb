"""Named points at which tests hurt a run; without a plan they do nothing.

Code says where truth changes hands: `faults.at("save.after_pt")`. A test's plan is told of each
passage, and may raise, kill the process or look at its files (tests/faulty.py). The idea is
FoundationDB's (BUGGIFY): product code knows where a fault would hurt most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

# What is about to happen, or has just happened, at each point. Points of a file pass its path.
POINTS: Mapping[str, str] = {
    "file.open": "before a file is opened for writing",
    "file.read": "before a checkpoint is read",
    "file.write": "before bytes are given to the system",
    "file.sync": "before a file's bytes are forced to the disk",
    "file.replace": "before a finished file takes its name",
    "file.sync_folder": "before a folder's names are forced to the disk",
    "file.link": "before a file gets a second name",
    "file.unlink": "before a file is removed",
    "save.begin": "before records are forced to the disk and a checkpoint is made",
    "save.after_replay": "the contents of the buffers are on the disk, if they come first",
    "save.after_pt": "the checkpoint is on the disk, older ones are not dropped yet",
    "replay.insert": "before an unroll goes into the buffers",
    "replay.sample": "a batch is taken from the buffers and its items are not chosen yet",
    "learner.step": "all gradients are known, the weights have not moved yet",
}

# Of a write: lets its first n bytes reach the system, and no others.
Tear = Callable[[int], object]


class Plan(Protocol):
    """Decides what happens at the points."""

    def reach(self, point: str, path: Path | None, tear: Tear | None) -> None:
        """Pass a point of `POINTS`; an exception raised here is raised there."""


_plan: Plan | None = None


def at(point: str, path: Path | None = None, tear: Tear | None = None) -> None:
    """Pass a named point of `POINTS`: nothing happens unless a plan is loaded.

    `path` is the file that the point is about, if any; `tear` is that of a write, see `Tear`.
    """
    if _plan is not None:
        _plan.reach(point, path, tear)


@contextmanager
def loaded(plan: Plan) -> Iterator[None]:
    """Follow `plan` within the block."""
    global _plan
    before, _plan = _plan, plan
    try:
        yield
    finally:
        _plan = before

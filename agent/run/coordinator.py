"""`Coordinator` of a learner that is alone: it returns what it is given.

The trainer calls it in each turn of its loop, so that a run of several learners has the same loop;
agent/learners/several.py has the coordinator of those, which keeps them in step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ritornello.agent.assembly import Blueprint
from ritornello.agent.learners.place import ALONE_HERE, Place
from ritornello.agent.learning.learner import Learner
from ritornello.agent.process_group import SINGLE_PROCESS, ProcessGroup
from ritornello.agent.run.experience import WorkerReport


class Synchronised(NamedTuple):
    """The result of `synchronise`, the same for all learners."""

    reports: list[WorkerReport]  # those of all learners, in the same order everywhere
    is_ready: bool  # every learner has a batch


class Coordinator:
    """Keeps the learners of a run in step; here there is one. Belongs to the learner's thread."""

    place: Place = ALONE_HERE
    group: ProcessGroup = SINGLE_PROCESS  # sums over all learners

    def broadcast(self, text: str) -> str:
        """Return the text of learner 0."""
        return text

    def begin(self, learner: Learner, blueprint: Blueprint) -> None:
        """Check that all learners are of one kind and begin with the same weights.

        `learner` is in the state from which it begins.

        Raises:
          LearnersDiffer: the message names a learner and what is different.
        """

    def agreed(self, wish: str, own: bool) -> bool:
        """Whether any learner had a wish at the last `synchronise`; the next one shares `own`.

        `wish` is "interrupted" or "seconds", the reasons to stop that one learner may have alone;
        `own` says whether this learner has it.
        """
        return own

    def synchronise(
        self, reports: Sequence[WorkerReport], has_batch: bool, missing: Callable[[], Sequence[str]]
    ) -> Synchronised:
        """Exchange reports with all learners; each calls this once in each turn of its loop.

        `reports` are those of this learner's workers since the last call. `has_batch` says whether
        this learner could make an update; if not, `missing` returns what it waits for.

        Raises:
          LearnerLost: if a learner does not answer, or has no batch for too long.
          LearnersDiffer: if the weights are not the same any more.
        """
        return Synchronised(list(reports), has_batch)

    def updated(self) -> None:
        """Note that an update was made: after the first, learners have less time to answer."""

    def announce_failure(self, error: BaseException) -> None:
        """Say why this learner leaves, so that the others can tell the user. Idempotent."""


SINGLE_LEARNER = Coordinator()

"""The history of a scenario: what each session was asked, how it ended, what it left behind."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.chaos.folder import Snapshot

# What the program promises, by the short name that the table shows. docs/reliability.md has the
# same list, with the tests that hold each.
PROMISES = {
    "kept": "the newest loadable checkpoint is at most the save period older than the last record",
    "untouched": "a session that made no update changes no byte of a checkpoint",
    "finite": "every model that is written is finite",
    "continuous": "records go on without gap or duplicate over all sessions",
    "scores": "Scores.txt has one line for each game that was counted",
    "resumes": "the run can be resumed, trains on, and ends with 0",
    "status": "the exit status is as documented",
    "said": "one cause is named, without a traceback that is not the environment's",
    "clean": "no process, temporary file, lock or shared memory is left",
    "alive": "there is progress or a message within a bound",
    "single": "at most one process writes into a run folder",
    "safe": "nothing in a file from elsewhere runs code or leaves its folder",
}
# Broken, these cost the user something that cannot be had again.
COSTLY = ("kept", "untouched", "finite", "continuous", "scores", "resumes", "single", "safe")


ROUNDED_S = 0.001  # records are rounded to so much, checkpoints are not


@dataclass(frozen=True)
class Violation:
    """A promise that was broken, and how."""

    promise: str
    text: str

    def __post_init__(self) -> None:
        assert self.promise in PROMISES, self.promise

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"


@dataclass(frozen=True)
class Expected:
    """How a session may end. The defaults are those of a session that ends well."""

    statuses: tuple[int, ...] = (0,)
    saved: bool = True  # the last thing that it did was to save its last update
    leaves_temporaries: bool = False  # it was killed, or told to leave at once
    traceback: bool = False  # the environment's own may be shown
    keeps_period: bool = True  # False: it had no place to save to
    journals: bool = True  # False: what records and scores say was damaged, or could not be said
    says: str = ""  # a regular expression that its output or its log must contain
    quiet: bool = False  # nobody could see what it printed


@dataclass
class Session:
    """One session of main.py on a run folder, from its start to its end."""

    number: int
    arguments: tuple[str, ...]
    expected: Expected
    save_period: int
    reproducible: bool
    resumed: bool
    status: int | None  # None: it had to be killed because it did not end
    seconds: float
    output: str
    log: str  # what it added to train.log
    before: Snapshot | None  # None: it made its folder itself, or none
    after: Snapshot | None
    signals: list[tuple[float, str]] = field(default_factory=list)
    left_processes: list[str] = field(default_factory=list)
    left_files: list[str] = field(default_factory=list)  # temporary files outside the run folder
    left_locks: list[str] = field(default_factory=list)
    left_memory: list[str] = field(default_factory=list)

    @property
    def start(self) -> int:
        """Updates of the checkpoint that it had to begin with."""
        return self.before.resumes_from if self.before is not None and self.resumed else 0

    @property
    def ended_well(self) -> bool:
        """Whether it ended as it should, with a status that says that all is in order."""
        return self.status in self.expected.statuses and self.status in (0, 130)

    @property
    def made_updates(self) -> bool:
        """Whether its files show an update of its own."""
        after = self.after
        if after is None:
            return False
        own = after.records[len(self.kept_lines) :] if self.before else after.records
        in_records = any(record["updates"] > self.start for record in own)
        in_files = any(
            (each.updates or 0) > self.start and each.digest not in self._digests_before
            for each in after.checkpoints
        )
        return in_records or in_files

    @property
    def kept_lines(self) -> tuple[str, ...]:
        """The record lines of earlier sessions that a resume keeps.

        A session that made no update may have written a record of the time that it waited; no
        checkpoint holds that time, so the next session sets the record aside.
        """
        if self.before is None:
            return ()
        lines, records = self.before.record_lines, self.before.records
        if len(records) != len(lines):
            return ()  # damaged: nobody can say
        resumed = self.before.resumed if self.resumed else None
        wall_s = resumed.wall_s + ROUNDED_S if resumed else math.inf
        return tuple(
            line
            for line, record in zip(lines, records, strict=True)
            if record["updates"] <= self.start and record["wall_s"] <= wall_s
        )

    @property
    def _digests_before(self) -> set[str]:
        return set(self.before.digests.values()) if self.before is not None else set()

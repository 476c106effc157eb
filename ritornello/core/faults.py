"""Named points at which a run can be hurt on purpose; without a plan they do nothing.

Code says where truth changes hands: `faults.at("save.after_pt")`. A plan says what happens there.
It is data, so that a finding is one line that anybody can repeat:

    {"at": "save.after_pt", "nth": 2, "do": "kill"}
    {"at": "file.*", "file": "*.pt", "nth": 17, "do": "enospc", "for_ever": true}
    {"at": "file.write", "file": "metrics.jsonl", "nth": 5, "do": "torn 10"}
    [{"at": "save.begin", "nth": 3, "do": "sigterm"}, {"at": "file.read", "do": "eio"}]

| key | meaning | default |
|---|---|---|
| at | name of a point (`POINTS`), or a pattern as for file names, or a list of these | |
| do | kill, sigint, sigterm, enospc, eio, raise, torn <bytes> | |
| nth | at which passage, from 1; all points that `at` means count together | 1 |
| for_ever | at that passage and at every later one | false |
| file | pattern of the file's name, for points that are about a file | * |

A plan hurts the learner's process, not its workers. `torn n` lets the first n bytes of a write
reach the system and then kills the process. The idea is FoundationDB's (BUGGIFY): product code
knows where a fault would hurt most.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ritornello.core.errors import ConfigError

log = logging.getLogger(__name__)

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
    "save.after_replay": "the contents of the buffers are on the disk, the checkpoint is not",
    "save.after_pt": "the checkpoint is on the disk, `latest` does not name it yet",
    "replay.insert": "before an unroll goes into the buffers",
    "replay.sample": "a batch is taken from the buffers and its items are not chosen yet",
    "learner.step": "all gradients are known, the weights have not moved yet",
}

_SIGNALS = {
    "kill": "SIGKILL",
    "sigint": "SIGINT",
    "sigterm": "SIGTERM",
}
_ERRORS = {"enospc": errno.ENOSPC, "eio": errno.EIO}
ACTIONS = (*_SIGNALS, *_ERRORS, "raise")
# Of a write: lets its first n bytes reach the system, and no others.
Tear = Callable[[int], object]


class InjectedFault(Exception):
    """What the action "raise" raises. No error of ours, so nothing expects it."""


@dataclass(frozen=True)
class Fault:
    """One line of a plan; see the table in the module's docstring."""

    at: tuple[str, ...]
    do: str
    torn_bytes: int = 0
    nth: int = 1
    for_ever: bool = False
    file: str = "*"

    @classmethod
    def from_json(cls, data: Any) -> Fault:
        """Check one line of a plan.

        Raises:
          ConfigError: saying what is wrong with it.
        """
        try:
            at = data["at"]
            action, _, count = data["do"].partition(" ")
            fault = cls(
                at=tuple(at) if isinstance(at, list) else (at,),
                do=action,
                torn_bytes=int(count or 0),
                **{name: value for name, value in data.items() if name not in ("at", "do")},
            )
            is_known = fault.at and all(fnmatch.filter(POINTS, pattern) for pattern in fault.at)
            is_typed = type(fault.nth) is int and isinstance(fault.file, str)
            is_torn = action == "torn" and fault.at == ("file.write",) and count
            if is_known and is_typed and fault.nth >= 1 and (is_torn or action in ACTIONS):
                return fault
        except (TypeError, ValueError, LookupError, AttributeError):
            pass
        raise ConfigError(
            f"a fault is {data!r:.200}, expected the keys of the table in core/faults.py; "
            f"at: {', '.join(POINTS)}; do: {', '.join(ACTIONS)}, and for file.write torn <bytes>."
        )


def plan_text(plan: str) -> str:
    """Return a plan as JSON, given that or the name of a file of it.

    Raises:
      ConfigError: if it cannot be read, or a fault in it makes no sense.
    """
    text = plan
    if not plan.lstrip().startswith(("{", "[")):
        try:
            text = Path(plan).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the plan of faults {plan!r:.200} cannot be read: {error}"
            ) from error
    parse_plan(text)
    return text


def parse_plan(text: str) -> tuple[Fault, ...]:
    """Return the faults of a plan in JSON.

    Raises:
      ConfigError: if a fault in it makes no sense.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the plan of faults is not JSON: {error}.") from error
    return tuple(Fault.from_json(line) for line in (data if isinstance(data, list) else [data]))


@dataclass(frozen=True)
class Firing:
    """What was done, and where."""

    point: str
    path: Path | None  # of a file that it was about
    fault: Fault


class Plan:
    """Faults, and how often each point was passed so far. Thread-safe."""

    def __init__(
        self,
        faults: Sequence[Fault],
        kill: Callable[[str], object] | None = None,
    ) -> None:
        """Count from 0.

        Args:
          faults: what to do, and where.
          kill: called instead of sending a deadly signal to this process, with the point's name.
        """
        self.hits: Counter[str] = Counter()  # passages of each point
        self.fired: list[Firing] = []  # oldest first
        self._faults = list(faults)
        self._passages = [0] * len(self._faults)
        self._kill = kill
        self._lock = threading.Lock()

    def reach(self, point: str, path: Path | None, tear: Tear | None) -> None:
        """Do what the plan says of this passage of a point."""
        if point not in POINTS:
            raise KeyError(f"fault point {point!r} is not declared in core/faults.py")
        with self._lock:
            self.hits[point] += 1
            due = [fault for i, fault in enumerate(self._faults) if self._is_due(i, point, path)]
            self.fired += [Firing(point, path, fault) for fault in due]
        for fault in due:
            self._act(fault, point, tear)

    def _is_due(self, index: int, point: str, path: Path | None) -> bool:
        fault = self._faults[index]
        if not any(fnmatch.fnmatchcase(point, pattern) for pattern in fault.at):
            return False
        if not fnmatch.fnmatchcase("" if path is None else path.name, fault.file):
            return False
        self._passages[index] += 1
        passages = self._passages[index]
        return passages >= fault.nth if fault.for_ever else passages == fault.nth

    def _act(self, fault: Fault, point: str, tear: Tear | None) -> None:
        log.debug("fault at %s, as asked for: %s", point, fault.do)
        if fault.do in _ERRORS:
            code = _ERRORS[fault.do]
            raise OSError(code, os.strerror(code))
        if fault.do == "raise":
            raise InjectedFault(f"a fault was asked for at {point}")
        if fault.do == "torn" and tear is not None:
            tear(fault.torn_bytes)
        name = _SIGNALS.get(fault.do, "SIGKILL")
        if self._kill is not None and name == "SIGKILL":
            self._kill(point)
        else:
            os.kill(os.getpid(), getattr(signal, name))


_plan: Plan | None = None


def at(point: str, path: Path | None = None, tear: Tear | None = None) -> None:
    """Pass a named point: nothing happens unless a plan is loaded.

    Args:
      point: name of the point in `POINTS`.
      path: the file that it is about, if it is about one.
      tear: of a write, see `Tear`.
    """
    if _plan is not None:
        _plan.reach(point, path, tear)


def load(plan: Plan | None) -> None:
    """Make every point of this process follow `plan` from now on; None: nothing happens again."""
    global _plan
    _plan = plan


def load_text(text: str) -> None:
    """Follow a plan in JSON from now on; without text no plan is loaded."""
    if text:
        load(Plan(parse_plan(text)))


@contextmanager
def loaded(plan: Plan) -> Iterator[Plan]:
    """Follow `plan` within the block."""
    before = _plan
    load(plan)
    try:
        yield plan
    finally:
        load(before)

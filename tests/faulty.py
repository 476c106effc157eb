"""Plans of faults, and main.py with one: python -m tests.faulty '<plan>' --env=CartPole-v1 ...

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
reach the system and then kills the process.
"""

import errno
import fnmatch
import json
import os
import signal
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ritornello.core import faults
from ritornello.core.faults import POINTS

SIGNALS = {"kill": "SIGKILL", "sigint": "SIGINT", "sigterm": "SIGTERM"}
ERRORS = {"enospc": errno.ENOSPC, "eio": errno.EIO}


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


def parse_plan(text):
    """Return the faults of a plan in JSON."""
    data = json.loads(text)
    found = []
    for line in data if isinstance(data, list) else [data]:
        at, (do, _, count) = line.pop("at"), line.pop("do").partition(" ")
        found.append(
            Fault(tuple(at) if isinstance(at, list) else (at,), do, int(count or 0), **line)
        )
        assert all(fnmatch.filter(POINTS, pattern) for pattern in found[-1].at), at
        assert do in (*SIGNALS, *ERRORS, "raise", "torn"), do
    return tuple(found)


@dataclass(frozen=True)
class Firing:
    """What was done, and where."""

    point: str
    path: Path | None  # of a file that it was about
    fault: Fault


class Plan:
    """Faults, and how often each point was passed so far. Thread-safe."""

    def __init__(self, lines):
        """Count from 0."""
        self.hits: Counter[str] = Counter()  # passages of each point
        self.fired: list[Firing] = []  # oldest first
        self._faults = list(lines)
        self._passages = [0] * len(self._faults)
        self._lock = threading.Lock()

    def reach(self, point, path, tear):
        """Do what the plan says of this passage of a point."""
        assert point in POINTS, point
        with self._lock:
            self.hits[point] += 1
            due = [fault for i, fault in enumerate(self._faults) if self._is_due(i, point, path)]
            self.fired += [Firing(point, path, fault) for fault in due]
        for fault in due:
            self._act(fault, point, tear)

    def _is_due(self, index, point, path):
        fault = self._faults[index]
        if not any(fnmatch.fnmatchcase(point, pattern) for pattern in fault.at):
            return False
        if not fnmatch.fnmatchcase("" if path is None else path.name, fault.file):
            return False
        self._passages[index] += 1
        passages = self._passages[index]
        return passages >= fault.nth if fault.for_ever else passages == fault.nth

    def _act(self, fault, point, tear):
        if fault.do in ERRORS:
            code = ERRORS[fault.do]
            raise OSError(code, os.strerror(code))
        if fault.do == "raise":
            raise InjectedFault(f"a fault was asked for at {point}")
        if fault.do == "torn" and tear is not None:
            tear(fault.torn_bytes)
        name = SIGNALS.get(fault.do, "SIGKILL")
        if name == "SIGKILL":
            self.kill(point)
        else:
            os.kill(os.getpid(), getattr(signal, name))

    def kill(self, point):
        """Die at a point."""
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    from ritornello.main import run_as_program

    # The program starts itself anew with its whole command line, and comes by here again.
    with faults.loaded(Plan(parse_plan(sys.argv.pop(1)))):
        run_as_program()

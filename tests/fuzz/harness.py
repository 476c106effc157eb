"""Runs the cases of a target and says what came of each: valid, refused, or a finding.

A case is right if it is honoured, or refused with a ConfigError or a CheckpointError whose message
is short and plain. Everything else is a finding: another exception, a message longer than a screen
or with something in it that a terminal obeys, a case that takes more processor time than any
should, and a file that is left where none was to be made. Case n of a seed is always the same.
"""

from __future__ import annotations

import resource
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from types import FrameType

from ritornello.core.errors import CheckpointError, ConfigError

CPU_LIMIT_S = 20.0  # of a case; the slowest that is right takes about one
MAX_MESSAGE = 6000  # characters: a screen, and a list of games in it
MAX_LINES = 40


class TookTooLong(BaseException):
    """A case has used up its processor time. No `except Exception` may catch it."""


@dataclass(frozen=True)
class Target:
    """One door of the program."""

    name: str
    share: int  # of 10,000 cases
    # (source of chance, an empty folder) -> what to do: it returns if the input was honoured
    case: Callable[[Random, Path], Callable[[], object]]
    leaves: tuple[str, ...] = ()  # patterns of what honoured input may make in the folder


@dataclass
class Outcome:
    """What came of the cases of one target."""

    target: str
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def row(self) -> str:
        """Return a line of a table."""
        names = ("valid", "refused", "finding")
        return f"{self.target:18}" + "".join(f"{self.counts[name]:9,}" for name in names)


def run_cases(
    target: Target, seed: int, folder: Path, cases: range, limit_s: float = CPU_LIMIT_S
) -> Outcome:
    """Run some cases of a target.

    Args:
      target: the door.
      seed: of all cases.
      folder: for files, made and removed for each case.
      cases: numbers of the cases.
      limit_s: processor time of one case.
    """
    outcome = Outcome(target.name)
    for number in cases:
        place = folder / f"{target.name}_{number}"
        place.mkdir()
        try:
            what, problem = _one(target, Random(f"{seed}/{target.name}/{number}"), place, limit_s)
        finally:
            shutil.rmtree(place)
        outcome.counts[what] += 1
        if problem:
            again = f"python -m tests.fuzz --target={target.name} --seed={seed} --case={number}"
            outcome.findings.append(f"{again}\n{problem}")
    return outcome


def _one(target: Target, rng: Random, place: Path, limit_s: float) -> tuple[str, str]:
    """Return (valid | refused | finding, what was found)."""
    action = target.case(rng, place)
    before = _files(place)
    try:
        with _limited(limit_s):
            action()
    except (ConfigError, CheckpointError) as error:
        problem = _complaint(str(error)) or _left(place, before, ())
        return ("finding", problem) if problem else ("refused", "")
    except TookTooLong:
        return "finding", f"took more than {limit_s:g} s of processor time"
    except (Exception, SystemExit):
        return "finding", traceback.format_exc(limit=-6)[-3000:]
    problem = _left(place, before, target.leaves)
    return ("finding", problem) if problem else ("valid", "")


def _complaint(message: str) -> str:
    """Return what is wrong with a message, "" if nothing."""
    lines = message.splitlines()
    if not message.strip():
        return "the message is empty"
    if len(message) > MAX_MESSAGE or len(lines) > MAX_LINES:
        return f"the message has {len(message)} characters in {len(lines)} lines: {message[:300]!r}"
    if not all(line.isprintable() for line in lines):
        return f"the message holds what a terminal obeys: {message[:500]!r}"
    return ""


def _files(place: Path) -> set[Path]:
    return {path for path in place.rglob("*") if not path.is_dir()}


def _left(place: Path, before: set[Path], allowed: tuple[str, ...]) -> str:
    """Return what lies in the folder that should not; half-written files never should."""
    new = [path.relative_to(place).as_posix() for path in sorted(_files(place) - before)]
    left = [
        name
        for name in new
        if name.endswith(".tmp") or not any(fnmatch(name, pattern) for pattern in allowed)
    ]
    return f"left behind: {', '.join(left)[:500]}" if left else ""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise TookTooLong in the body when it has used so much processor time."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TookTooLong

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, previous)


def limit_memory(extra_bytes: int) -> None:
    """Let this process have at most so much memory more, so that a bomb is a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + extra_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))

"""Why does it not learn? Ranges of healthy metrics, and a Diagnosis that says when one is left.

The ranges stand in health.csv, from which docs/health.md and the column "healthy" of
docs/metrics.md are made. Their limits are rules of thumb, set so that runs which learn (Pong and
CartPole, with and without replay) stay silent, and runs which do not are told why.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ritornello.metrics.record import Record
from ritornello.metrics.text import short

# A metric must be out of its range in so many records in a row, over so many updates, to be
# reported, and back in it for as long before it can be reported again. One noisy record says
# nothing, and where there is a record for each update (--reproducible), five say nothing either.
PATIENCE_RECORDS = 5
PATIENCE_UPDATES = 200
WARM_UP_STEPS = 50_000  # agent steps of most ranges: values start as noise, buffers fill
START_GAMES = 100  # the mean return after so many games is the start of a run ...
LAST_START_GAMES = 500  # ... but not one that is first seen later than this
JUDGED_GAMES = 1000  # Pong without --normalise_pixels needs 400 to 800 to rise above its start


@dataclass(frozen=True)
class Range:
    """Values of a metric in a healthy run, and the meaning of others: a row of the CSV.

    In the file `low` may be "start": the lower limit is then the value at the run's start. `high`
    may end in "+renewal": it grows by the updates in which a circular buffer becomes new.
    """

    metric: str  # name, or pattern: `*` stands for the name of a buffer or the number of a game
    low: float | None
    high: float | None
    after_steps: int  # agent steps before which nothing is said
    too_low: str  # cause; what to turn. `{buffer}` stands for what `*` stands for
    too_high: str
    above_start: bool
    grows: bool  # `high` grows by the updates of a renewal

    @property
    def healthy(self) -> str:
        """The range in words: "below 0.5"."""
        if self.above_start:
            return f"above its start after {JUDGED_GAMES} games"
        if self.grows:
            return f"below {self.high:g} plus updates until a circular buffer is new"
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        return f"above {self.low:g}" if self.low is not None else f"below {self.high:g}"


def _read_ranges() -> tuple[Range, ...]:
    def limit(text: str) -> float | None:
        return float(text) if text not in ("", "start") else None

    with Path(__file__).with_name("health.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Range(
                row["metric"],
                limit(row["low"]),
                limit(row["high"].removesuffix("+renewal")),
                int(row["after_steps"]),
                row["too_low"],
                row["too_high"],
                row["low"] == "start",
                row["high"].endswith("+renewal"),
            )
            for row in csv.DictReader(file)
        )


RANGES = _read_ranges()  # the first one that fits a name counts


@dataclass(frozen=True)
class Finding:
    """A metric has left its healthy range and stays outside."""

    agent_steps: int  # when it was noticed
    metric: str
    value: float
    healthy: str  # the range, in words
    cause: str  # the probable one, and the flags to turn

    def __str__(self) -> str:
        return f"{self.metric} is {short(self.value)} (healthy: {self.healthy}): {self.cause}"


@dataclass
class _Watch:
    """State of one metric: how long it has been outside or inside its range."""

    range: Range
    start: float | None = None  # the metric at the start of the run
    was_out: bool = False
    records: int = 0  # in a row on this side
    since_updates: int = 0  # when it came to this side
    reported: bool = False

    def low_after(self, games: int, value: float) -> float | None:
        """Return the lower limit after so many games; None as long as there is none."""
        if not self.range.above_start:
            return self.range.low
        # A run that went on in another folder has no start here, and is not judged by it.
        if self.start is None and START_GAMES <= games <= LAST_START_GAMES:
            self.start = value
        return self.start if games >= JUDGED_GAMES else None

    def turns_bad(self, out: bool, updates: int) -> bool:
        """Add the newest value; return whether it must be reported now."""
        if out != self.was_out:
            self.was_out, self.records, self.since_updates = out, 0, updates
        self.records += 1
        is_brief = updates - self.since_updates < PATIENCE_UPDATES
        if self.records < PATIENCE_RECORDS or is_brief or out == self.reported:
            return False
        self.reported = out
        return out


class Diagnosis:
    """Follows the records of a run and reports what is wrong with it, each thing once.

    Feed it every record from the first on: a resumed run reads its metrics.jsonl back. Not
    thread-safe, on purpose: the thread that makes records owns it.
    """

    def __init__(self, renewal_updates: int = 1) -> None:
        """Start knowing nothing; a circular buffer is new after so many updates, without one 1."""
        self._grows_by = renewal_updates - 1
        self._watches: dict[str, _Watch | None] = {}

    def add(self, record: Record) -> list[Finding]:
        """Add the next record; return what has just turned out to be wrong, mostly nothing."""
        checked = (self._check(name, value, record) for name, value in record.values.items())
        return [finding for finding in checked if finding is not None]

    def _check(self, name: str, value: float, record: Record) -> Finding | None:
        if name not in self._watches:
            fitting = (_Watch(each) for each in RANGES if fnmatchcase(name, each.metric))
            self._watches[name] = next(fitting, None)
        watch = self._watches[name]
        if watch is None:
            return None
        wanted = watch.range
        low = watch.low_after(_games(name, record), value)
        if record.agent_steps < wanted.after_steps or (wanted.above_start and low is None):
            return None
        is_low = low is not None and value <= low
        high = wanted.high
        if wanted.grows and high is not None:
            high += self._grows_by
        is_high = high is not None and value >= high
        if not watch.turns_bad(is_low or is_high, record.updates):
            return None
        healthy = wanted.healthy
        if wanted.above_start and low is not None:
            healthy = f"above {short(low)}, its start"
        elif wanted.grows:
            healthy = f"below {high:g}"
        cause = (wanted.too_low if is_low else wanted.too_high).format(buffer=name.split("/")[1])
        return Finding(record.agent_steps, name, value, healthy, cause)


def _games(name: str, record: Record) -> int:
    """Return the number of finished games of the one that a metric is about, or of all."""
    task = name.rpartition("_")[2]
    return int(record.values.get(f"episode/count_{task}", record.episodes))


def healthy_text(metric: str) -> str:
    """Return the range of a metric in words; empty if it has none."""
    return next((each.healthy for each in RANGES if each.metric == metric), "")

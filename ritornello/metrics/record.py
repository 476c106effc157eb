"""Record: the measurements of one moment; METRICS: the one list of what may be measured.

All parts hand their measurements to the trainer as plain numbers. Every `--log_interval_s` seconds
the trainer makes a Record of them and gives it to the sinks (metrics/sinks.py, metrics/console.py).
The name of a metric has the form `group/quantity_unit`. It is declared with its meaning in
metrics.csv, from which docs/metrics.md is generated (`python -m ritornello.metrics`).
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from ritornello.core.errors import PlatformError
from ritornello.core.nearest_names import did_you_mean

# Rows of name, unit, meaning and what one hopes to see. Means are over the time since the previous
# record, unless the meaning says otherwise. A `*` stands for a name that is not known here: a
# replay buffer, the number of a game, a layer, or a part of the run.
METRICS_FILE = Path(__file__).with_name("metrics.csv")


def is_usable(value: float) -> bool:
    """Whether a number can be computed with: it is finite, and not beyond MAX_VALUE."""
    return abs(value) <= MAX_VALUE


@dataclass(frozen=True)
class MetricInfo:
    """What a metric means."""

    unit: str
    doc: str  # one sentence
    healthy: str = ""  # what one hopes to see, where that can be said


def _read_metrics() -> dict[str, MetricInfo]:
    with METRICS_FILE.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        next(rows)  # the heading
        return {name: MetricInfo(*info) for name, *info in rows}


METRICS: dict[str, MetricInfo] = _read_metrics()
MAX_COUNT = 2**62  # a counter beyond it is damage, and no array could hold it
# So is a value beyond it: no float32 is, and sums, slopes and squares would not be finite.
MAX_VALUE = 1e100
_DECLARED: dict[str, MetricInfo] = {}  # those of users, by `declare`


class UndeclaredMetricError(PlatformError, ValueError):
    """A metric was recorded that nobody has declared."""


def declare(name: str, unit: str, doc: str, healthy: str = "") -> None:
    """Declare a metric of your own, so that it may be recorded.

    Args:
      name: `group/quantity_unit`; a `*` stands for a part that is not known beforehand.
      unit: its unit; "" for a number without one.
      doc: what the metric means, one sentence.
      healthy: values that one hopes to see, such as "near 1"; "" if that is not known.

    Raises:
      UndeclaredMetricError: if the name stands for another metric already.
    """
    info = MetricInfo(unit, doc, healthy)
    known = METRICS.get(name) or _DECLARED.setdefault(name, info)
    if known != info:
        raise UndeclaredMetricError(
            f"metric {name!r} is declared already, as: {known.doc} Choose another name."
        )


def check_declared(name: str) -> MetricInfo:
    """Return what a metric means.

    Raises:
      UndeclaredMetricError: if nobody declared the name; the message has the nearest one.
    """
    if name in METRICS:
        return METRICS[name]
    for pattern, info in (*METRICS.items(), *_DECLARED.items()):
        if name == pattern or ("*" in pattern and fnmatchcase(name, pattern)):
            return info
    hint = did_you_mean(name, METRICS)
    raise UndeclaredMetricError(
        f"metric {name!r} is not declared: add it to metrics/metrics.csv, or call "
        f"ritornello.metrics.record.declare beside what records it{'; ' + hint if hint else '.'}"
    )


@dataclass(frozen=True)
class Record:
    """The counters of a run at one moment, and what was measured since the moment before.

    A missing value is absent: NaN, infinity and what is beyond MAX_VALUE are left out here, so no
    sink ever meets them. A Record without values is just the counters; sinks get one with each
    finished game.
    """

    agent_steps: int = 0
    frames: int = 0
    updates: int = 0
    episodes: int = 0
    wall_s: float = 0.0  # seconds of training, earlier sessions included
    values: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        finite = {k: float(v) for k, v in self.values.items() if is_usable(v)}
        object.__setattr__(self, "values", finite)

    def to_json(self) -> str:
        """Return one line of metrics.jsonl, without the line end."""
        return json.dumps({**self.__dict__, "wall_s": round(self.wall_s, 3)})

    @classmethod
    def from_json(cls, line: str) -> Record:
        """Read back a line of metrics.jsonl.

        Raises:
          ValueError: if `to_json` cannot have written the line.
        """
        try:
            data = json.loads(line)
            counters = {n: data[n] for n in ("agent_steps", "frames", "updates", "episodes")}
            if not all(type(n) is int and 0 <= n <= MAX_COUNT for n in counters.values()):
                raise ValueError(f"counters are {counters!r:.100}")
            wall_s = float(data["wall_s"])
            if not is_usable(wall_s):
                raise ValueError(f"wall_s is {wall_s}")
            # All records of a run have the same names: one copy of each in memory.
            values = {sys.intern(name): float(value) for name, value in data["values"].items()}
            return cls(**counters, wall_s=wall_s, values=values)
        except (TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a line of metrics.jsonl: {error!r:.100}") from error

"""Lines of metrics.jsonl as records, all of them or a few from here and there in a file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from itertools import islice
from typing import Any, BinaryIO

from ritornello.live.places import lines
from ritornello.metrics.record import MAX_COUNT
from ritornello.metrics.run_files import TAIL_BYTES

SAMPLE_BYTES = 16_384  # around a record that is looked for: several records
COUNTERS = ("agent_steps", "updates", "episodes")


def record_in(line: bytes) -> dict[str, Any] | None:
    """Return the record in a line with counters that are numbers; None if it holds none."""
    try:
        data = json.loads(line)
        for name in COUNTERS:
            if type(data[name]) is not int or not 0 <= data[name] <= MAX_COUNT:
                return None
        data["wall_s"] = wall_s = float(data["wall_s"])
        if not math.isfinite(wall_s) or not isinstance(data["values"], dict):
            return None
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None
    return dict(data)


def number(value: Any) -> float | None:
    """Return a finite number that a file holds, None for anything else."""
    if type(value) not in (int, float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def sampled(file: BinaryIO, points: int) -> list[dict[str, Any]]:
    """Return at most `points` records at even distances in the file, and its newest one."""
    size = file.seek(0, os.SEEK_END)
    found: list[dict[str, Any]] = []
    if size <= 2 * SAMPLE_BYTES:
        found = [record for line in lines(file, size) if (record := record_in(line))]
        stride = -(-len(found) // points) or 1
        return found[:-1][::stride] + found[-1:]
    for place in range(points):
        begin = place * (size - SAMPLE_BYTES) // points
        around = os.pread(file.fileno(), SAMPLE_BYTES, begin).split(b"\n")
        found += _first(map(record_in, around[1 if begin else 0 : -1]))
    return found + _first(map(record_in, reversed([*lines(file, TAIL_BYTES)])))


def _first(records: Iterable[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Return the first record there is, and read no further."""
    return [*islice(filter(None, records), 1)]

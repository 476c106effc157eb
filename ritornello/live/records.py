"""Lines of metrics.jsonl as records, all of them or a few from here and there in a file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from itertools import islice
from typing import Any, BinaryIO

from ritornello.live.places import lines
from ritornello.metrics.record import Record
from ritornello.metrics.run_files import TAIL_BYTES

SAMPLE_BYTES = 16_384  # around a record that is looked for: several records


def record_in(line: bytes) -> Record | None:
    """Return the record in a line; None if it holds none."""
    try:
        return Record.from_json(line.decode("utf-8"))
    except ValueError:
        return None


def number(value: Any) -> float | None:
    """Return a finite number that a file holds, None for anything else."""
    if type(value) not in (int, float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def sampled(file: BinaryIO, points: int) -> list[Record]:
    """Return at most `points` records at even distances in the file, and its newest one."""
    size = file.seek(0, os.SEEK_END)
    found: list[Record] = []
    if size <= 2 * SAMPLE_BYTES:
        found = [record for line in lines(file, size) if (record := record_in(line))]
        stride = -(-len(found) // points) or 1
        return found[:-1][::stride] + found[-1:]
    for place in range(points):
        begin = place * (size - SAMPLE_BYTES) // points
        around = os.pread(file.fileno(), SAMPLE_BYTES, begin).split(b"\n")
        found += _first(map(record_in, around[1 if begin else 0 : -1]))
    return found + _first(map(record_in, reversed([*lines(file, TAIL_BYTES)])))


def _first(records: Iterable[Record | None]) -> list[Record]:
    """Return the first record there is, and read no further."""
    return [*islice(filter(None, records), 1)]

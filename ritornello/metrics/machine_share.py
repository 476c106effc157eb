"""How much of the machine a run had to itself.

A run beside other work looks as a slow program does. Two figures tell them apart:
`system/cpu_percent` is what all processes used, `system/own_cpu_share` what this run did, and what
lies between them is others' (or the kernel's). metrics/hardware.py measures them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ritornello.metrics.record import Record

# More than this share of the machine in other hands, and a record is disturbed: minutes that it is
# part of compare with nothing. The system itself takes a few hundredths.
OTHERS_ALLOWED = 0.1


def undisturbed_share(records: Iterable[Record]) -> float | None:
    """Return the share of a run's time in which others left the machine alone; None: not known.

    Args:
      records: of one run in order, sessions one after the other.
    """
    known = undisturbed = last_s = 0.0
    for record in records:
        # Where the run went back to a checkpoint, nobody knows when this record began.
        passed_s = max(0.0, record.wall_s - last_s)
        last_s = record.wall_s
        own = record.values.get("system/own_cpu_share")
        everybody = record.values.get("system/cpu_percent")
        if own is not None and everybody is not None:
            known += passed_s
            undisturbed += passed_s if everybody / 100.0 - own <= OTHERS_ALLOWED else 0.0
    return undisturbed / known if known else None


def load() -> str:
    """Return how many programs want to compute, as a sentence's end; empty where nobody counts."""
    try:
        waiting = os.getloadavg()[0]
    except (AttributeError, OSError):
        return ""
    return f"on {len(usable_cores())} cores, {waiting:.1f} threads wanted to compute (load average)"


def usable_cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))

"""Durations as text."""

from __future__ import annotations

from datetime import timedelta


def duration(seconds: float) -> str:
    """Return h:mm:ss, with days in front where there are any: 0:00:59, 1 day, 2:03:04."""
    return str(timedelta(seconds=int(seconds)))

"""Numbers as short text, and curves as a line of block characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta

BLOCKS = "▁▂▃▄▅▆▇█"
MISSING = "–"


def short(value: float) -> str:
    """Return about three significant digits: 0.0123, 4.56, 123, 12.3k, 4.56M."""
    size = abs(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            scaled = value / (1e3 if unit == "k" else limit)
            return f"{scaled:.{_decimals(scaled)}f}{unit}"
    if value == int(value) or size >= 100:
        return f"{value:.0f}"
    if size >= 1:
        return f"{value:.{_decimals(value)}f}"
    return f"{value:.3f}" if size >= 0.01 else f"{value:.1e}"


def same_decimals(numbers: Sequence[float], least: int = 1) -> list[str]:
    """Return numbers that belong together, in full: 1,234.5 or 0.742 or, below 0.0001, 4.80e-05.

    Their decimals, of which there are at least `least`, make three significant digits of the
    largest.
    """
    size = max(map(abs, numbers))
    if 0 < size < 1e-4:
        return [f"{number:.2e}" for number in numbers]
    decimals = max(least, _decimals(size)) if size else least
    return [f"{number:,.{decimals}f}" for number in numbers]


def _decimals(value: float) -> int:
    """Return the decimals that make three significant digits of a number other than 0."""
    return max(0, 2 - math.floor(math.log10(abs(value))))


def percent(value: float) -> str:
    """Return a fraction as a whole percentage."""
    return f"{value:.0%}"


def megabytes(value: float) -> str:
    """Return MB, or GB from 1000 MB on."""
    return f"{value / 1000:.1f} GB" if value >= 1000 else f"{value:.0f} MB"


def kilojoules(joules: float) -> str:
    """Return an energy in kJ."""
    return f"{short(joules / 1000)} kJ"


def duration(seconds: float) -> str:
    """Return h:mm:ss, with days in front where there are any: 0:00:59, 1 day, 2:03:04."""
    return str(timedelta(seconds=int(seconds)))


class History:
    """A curve of any length in at most `size` points: neighbours are merged when it is full."""

    def __init__(self, size: int) -> None:
        """Keep at most `size` points; `size` is even."""
        self._size = size
        self._points: list[float] = []
        self._pending: list[float] = []
        self._stride = 1  # values per point

    def __len__(self) -> int:
        return len(self._points)

    def add(self, value: float) -> None:
        """Add the next value."""
        self._pending.append(value)
        if len(self._pending) < self._stride:
            return
        self._points.append(sum(self._pending) / len(self._pending))
        self._pending = []
        if len(self._points) == self._size:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [(a + b) / 2 for a, b in pairs]
            self._stride *= 2

    def sparkline(self) -> str:
        """Return the curve as block characters, scaled to its own range."""
        low, high = min(self._points), max(self._points)
        scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
        return "".join(BLOCKS[round((point - low) * scale)] for point in self._points)

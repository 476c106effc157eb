"""One metric of a run: the rows in which it was recorded, and its values there.

Most metrics are in every row, some in few. A hostile file names thousands in one row alone, so
memory has to go with the values that are there, and not with rows times metrics.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ritornello.live.rows import Floats


class Column:
    """The values of one metric, by their rows."""

    def __init__(self) -> None:
        """Hold none yet."""
        self._count = 0
        self._rows = np.zeros(0, np.int32)  # ascending up to `_count`; after it there is room
        self._values: Floats = np.zeros(0)

    def add(self, rows: NDArray[np.int64], values: Floats) -> None:
        """Add values.

        Args:
          rows: their rows, ascending and without a value so far. They may lie between those that
            were added last: records of one batch come sorted by their names.
          values: `[len(rows)]`, NaN for what is no number.
        """
        begin, end = self._count, self._count + len(rows)
        if end > len(self._rows):
            room = np.zeros(max(end, 2 * begin) - begin)
            self._rows = np.concatenate([self._rows[:begin], room.astype(np.int32)])
            self._values = np.concatenate([self._values[:begin], room])
        self._rows[begin:end], self._values[begin:end] = rows, values
        self._count = end
        if begin and rows[0] < self._rows[begin - 1]:
            first = int(np.searchsorted(self._rows[:begin], rows[0]))
            order = first + np.argsort(self._rows[first:end])
            self._rows[first:end] = self._rows[order]
            self._values[first:end] = self._values[order]

    def cut(self, count: int) -> None:
        """Drop the values at row `count` and after it."""
        if self._count and self._rows[self._count - 1] >= count:
            self._count = int(np.searchsorted(self._rows[: self._count], count))

    def between(self, begin: int, end: int) -> Floats:
        """Return the values at rows `begin` to `end`, NaN where there is none."""
        found = np.full(max(0, end - begin), np.nan)
        first, last = np.searchsorted(self._rows[: self._count], (begin, max(begin, end)))
        found[self._rows[first:last] - begin] = self._values[first:last]
        return found

"""Rows for a chart: some metrics of a run over its steps and minutes, and how they are thinned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass
class Rows:
    """Some columns of a run, from some row on."""

    generation: int  # rows of another generation are of another history
    total: int  # rows of the run; what comes next has this number
    steps: Floats  # [n]
    minutes: Floats  # [n] running time, all sessions together
    columns: dict[str, Floats] = field(default_factory=dict)  # each [n], NaN where not measured

    def to_json(self) -> dict[str, Any]:
        """Return plain types, numbers with six digits, None for what was not measured."""
        return {
            "generation": self.generation,
            "total": self.total,
            "steps": [int(step) for step in self.steps],
            "minutes": _plain(self.minutes),
            "columns": {name: _plain(values) for name, values in self.columns.items()},
        }


def thinned(rows: Rows, points: int) -> Rows:
    """Return at most `points` rows that look the same: of each group its lowest and highest value.

    Neighbouring rows are put into `points` / 2 groups. Each group becomes two rows, at its first
    and its last moment, with the two extremes of each column in the order in which it moves.
    """
    count = len(rows.steps)
    if count <= points:
        return rows
    groups = max(1, points // 2)
    starts = np.linspace(0, count, groups + 1).astype(np.int64)[:-1]
    ends = np.append(starts[1:], count) - 1
    columns = {}
    for name, values in rows.columns.items():
        # fmin and fmax pass over NaN.
        low, high = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
        falls = values[ends] < values[starts]
        columns[name] = _paired(np.where(falls, high, low), np.where(falls, low, high))
    return Rows(
        rows.generation,
        rows.total,
        _paired(rows.steps[starts], rows.steps[ends]),
        _paired(rows.minutes[starts], rows.minutes[ends]),
        columns,
    )


def _paired(first: Floats, second: Floats) -> Floats:
    return np.stack([first, second], axis=1).reshape(-1)


def _plain(values: Floats) -> list[float | None]:
    return [float(f"{value:.6g}") if value == value else None for value in values.tolist()]

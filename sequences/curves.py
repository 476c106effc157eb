"""The learning curve of a run, read back from its `metrics.jsonl`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

RETURN = "episode/return_mean"
SCORE = "episode/score_mean"  # what a run of several games reports instead
BEST = "episode/return_best"


@dataclass(frozen=True)
class Curve:
    """Mean raw return of the last games over a run; agent_steps strictly increases.

    Of a run of several games: its mean score over the games, see docs/metrics.md.
    """

    agent_steps: np.ndarray  # [n] float64
    wall_s: np.ndarray  # [n] float64, running time only
    mean_return: np.ndarray  # [n] float64
    best: float | None  # best single game

    def at_steps(self, agent_steps: float) -> float:
        """Return the mean return after this many agent steps, linear between records."""
        return float(np.interp(agent_steps, self.agent_steps, self.mean_return))


def read_curve(
    metrics_files: Sequence[Path], means: Sequence[str] = (RETURN, SCORE), best_metric: str = BEST
) -> Curve | None:
    """Read one run, which may lie in several files if it was begun anew.

    A resumed run goes back to its checkpoint: what it had recorded beyond that is dropped. A last
    line that was cut by a kill is passed over.

    Args:
      metrics_files: of the run, oldest first.
      means: metrics, of which the first that a record has is its point of the curve.
      best_metric: of the best single game.

    Returns:
      The curve, or None if no game was finished.
    """
    points: list[tuple[float, float, float]] = []
    best: float | None = None
    wall_offset_s = last_wall_s = 0.0
    for record in _records(metrics_files):
        values = record["values"]
        wall_s, steps = float(record["wall_s"]), float(record["agent_steps"])
        if wall_s < last_wall_s:  # the clock of a new session
            wall_offset_s += last_wall_s
        last_wall_s = wall_s
        while points and points[-1][0] >= steps:
            points.pop()
        mean = next((values[name] for name in means if name in values), None)
        if mean is not None:
            points.append((steps, wall_offset_s + wall_s, mean))
        if best_metric in values:
            best = max(values[best_metric], best if best is not None else -np.inf)
    if not points:
        return None
    agent_steps, seconds, returns = np.array(points, dtype=np.float64).T
    return Curve(agent_steps, seconds, returns, best)


def last_record(metrics_file: Path) -> dict[str, Any] | None:
    """Return the newest complete record without reading the whole file; None if there is none.

    It has agent_steps and wall_s, finite numbers, and values, of which only the finite are kept.
    """
    try:
        with open(metrics_file, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 65_536))  # a record is a few kB
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in reversed(lines[:-1]):  # after the last newline: nothing, or half a record
        record = _parse(line)
        if record is not None:
            return record
    return None


def _records(files: Sequence[Path]) -> list[dict[str, Any]]:
    records = []
    for path in files:
        if path.is_file():
            with open(path, "rb") as file:
                records += [record for record in map(_parse, file) if record is not None]
    return records


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return a line as a record, None if it is none: a journal may be cut or damaged anywhere."""
    try:
        data = json.loads(line)
        values = {
            name: float(value)
            for name, value in data["values"].items()
            if type(value) in (int, float) and math.isfinite(value)
        }
        is_finite = math.isfinite(data["agent_steps"]) and math.isfinite(data["wall_s"])
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return None
    return {**data, "values": values} if is_finite else None

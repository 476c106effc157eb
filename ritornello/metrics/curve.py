"""What the records of a run say together: its learning curve, and who else used the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from ritornello.metrics.record import Record

RETURN = "episode/return_mean"
SCORE = "episode/score_mean"  # what a run of several games reports instead
BEST = "episode/return_best"
# More than this share of the machine in other hands, and a record is disturbed: minutes that it is
# part of compare with nothing. The system itself takes a few hundredths.
OTHERS_ALLOWED = 0.1


@dataclass(frozen=True)
class Curve:
    """Mean raw return of the last games over a run; agent_steps strictly increases.

    In a run of several games it is their mean score, see docs/metrics.md. The curve has no point if
    no game was finished.
    """

    agent_steps: np.ndarray  # [n] float64
    wall_s: np.ndarray  # [n] float64, running time only
    mean_return: np.ndarray  # [n] float64
    best: float | None  # best single game

    def at_steps(self, agent_steps: float) -> float:
        """Return the mean return after this many agent steps, linear between records.

        NaN where the curve does not reach (`covers`): the run has no mean return there.
        """
        return float(np.interp(agent_steps, self.agent_steps, self.mean_return, np.nan, np.nan))

    def at_seconds(self, seconds: float) -> float:
        """Return the mean return after this running time, as `at_steps` does."""
        return float(np.interp(seconds, self.wall_s, self.mean_return, np.nan, np.nan))

    def area(self, to_steps: float) -> float:
        """Return the mean return over 0 to `to_steps` agent steps, linear between records, points.

        Before its first record a run is taken to have had the return of that record, and after its
        last one to have kept that of the last.
        """
        inside = (self.agent_steps > 0) & (self.agent_steps < to_steps)
        steps = np.concatenate([[0.0], self.agent_steps[inside], [to_steps]])
        returns = np.interp(steps, self.agent_steps, self.mean_return)
        return float(np.trapezoid(returns, steps) / to_steps)

    def covers(self, agent_steps: float) -> bool:
        """Whether the run had a mean return after this many agent steps."""
        return bool(self.agent_steps[0] <= agent_steps <= self.agent_steps[-1])


def curve_of(
    records: Iterable[Record],
    means: Sequence[str] = (RETURN, SCORE),
    best_metric: str = BEST,
    steps_of: Callable[[Record], float] = attrgetter("agent_steps"),
) -> Curve:
    """Return the curve of a run from the records of all its folders.

    A resumed run goes back to its checkpoint, and so does its clock: later records are dropped. A
    run that was begun anew goes back to the start.

    Args:
      records: records of the run, oldest first (metrics/run_files.py reads them).
      means: names of metrics; the first that a record has is its point of the curve.
      best_metric: name of the metric for the best single game.
      steps_of: returns the agent steps of a record, if only a part of the run's steps counts. A
        record with no more steps than the one before is no point of the curve.
    """
    points: list[tuple[int, tuple[float, float, float]]] = []  # with the agent steps of the run
    best: float | None = None
    for record in records:
        while points and _is_undone(record, *points[-1]):
            points.pop()
        mean = next((record.values[name] for name in means if name in record.values), None)
        steps = steps_of(record)
        if mean is not None and (not points or steps > points[-1][1][0]):
            points.append((record.agent_steps, (steps, record.wall_s, mean)))
        if best_metric in record.values:
            best = max(record.values[best_metric], best if best is not None else -np.inf)
    table = np.array([point for _, point in points], np.float64).reshape(-1, 3)
    return Curve(table[:, 0], table[:, 1], table[:, 2], best)


def _is_undone(record: Record, steps: int, point: tuple[float, float, float]) -> bool:
    """Return whether a run that went back to its checkpoint, as `record` shows, lost a point."""
    return steps >= record.agent_steps or point[1] > record.wall_s


def undisturbed_share(records: Iterable[Record]) -> float | None:
    """Return the share of a run's time in which others left the machine alone; None: not known.

    `records` are those of one run in order, sessions one after the other. A run beside other work
    looks like a slow program. Two figures tell them apart: `system/cpu_percent` is what all
    processes used, `system/own_cpu_share` what this run did, and the difference is others' (or the
    kernel's). metrics/hardware.py measures them.
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

"""How long it takes to reach a score: `python -m ritornello.analysis compare --to_score=<score>`.

A run reaches the score where its curve (the mean return of its last games) first gets to it,
linear between records, whatever it does later. Some runs never do. To leave them out would praise
the configuration that only succeeds when it is lucky, and to count their end as the time would
praise the one that was stopped early. So the middle run is found as Kaplan and Meier find it
("Nonparametric estimation from incomplete observations", 1958): a run that ended without the score
counts as one that takes longer than that, however long that was.

The result is the time by which half of the runs have got there; without such runs it is the median.
If fewer than half do, there is none, and nothing is put in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from ritornello.agent.testing.human_scores import TABLE, all_human_normalised
from ritornello.analysis.comparison import by_game, by_label, markdown_page
from ritornello.analysis.runs import Run
from ritornello.analysis.statistics import FEW, RESAMPLES, Estimate
from ritornello.core import markdown
from ritornello.core.errors import ConfigError
from ritornello.metrics.curve import Curve
from ritornello.metrics.text import same_decimals

SAME = 1e-9  # shares that differ by less are equal: they are sums of a few fractions
ABOUT = (
    "Time to a score: until the mean return of the last games first reached it. Over the "
    "runs of a configuration: when half of them had (Kaplan and Meier: a run that ended "
    "without the score takes longer than it lasted) [95 % interval, bootstrap; none "
    f"of fewer than {FEW} runs]. "
    "Minutes compare only between runs on the same machine that had it to themselves."
)
HEADINGS = ("configuration", "reached", "agent steps", "minutes", "each seed")


class Arrival(NamedTuple):
    """The time at which one run reached the score, or ended without it."""

    is_there: bool
    agent_steps: float
    seconds: float  # running time


def arrival(curve: Curve, score: float) -> Arrival:
    """Return when a curve first reaches a raw score.

    If its first record is already there, that record is the moment: the true one came before.
    """
    there = np.flatnonzero(curve.mean_return >= score)
    if not len(there):
        return Arrival(False, float(curve.agent_steps[-1]), float(curve.wall_s[-1]))
    rise = slice(max(0, there[0] - 1), there[0] + 1)
    steps, seconds = (
        float(np.interp(score, curve.mean_return[rise], x[rise]))
        for x in (curve.agent_steps, curve.wall_s)
    )
    return Arrival(True, steps, seconds)


def half_time(times: np.ndarray, reached: np.ndarray) -> np.ndarray:
    """Return when half of the runs have reached the score, by Kaplan and Meier.

    `times`, [..., n] float64, are when each run reached the score, or ended without it; `reached`,
    [..., n] bool, says which. If exactly half have reached it for a while, the result is the middle
    of that while, as for a median of an even number of values. It is infinite if more than half
    never have, or half have and no other does.
    """
    # A run that ends at the moment at which another one arrives was still on its way then.
    order = np.lexsort((~reached, times), axis=-1)
    t, r = (np.take_along_axis(x, order, axis=-1) for x in (times, reached))
    at_risk = np.arange(t.shape[-1], 0, -1)
    left = np.cumprod(1.0 - r / at_risk, axis=-1)
    first = np.min(np.where(r & (left <= 0.5 + SAME), t, inf), axis=-1)
    beyond = np.min(np.where(r & (left < 0.5 - SAME), t, inf), axis=-1)
    return np.asarray((first + beyond) / 2.0)


def half_time_estimate(times: Sequence[float], reached: Sequence[bool]) -> Estimate:
    """Return when half of the runs have reached the score, with a 95 % percentile interval.

    It is infinite where they have not; see `half_time`. Fewer than FEW runs have no interval.
    """
    at, is_there = np.array(times, np.float64), np.array(reached, np.bool_)
    value = float(half_time(at, is_there))
    if len(at) < FEW:
        return Estimate(value)
    rng = np.random.default_rng(0)  # the same runs give the same interval
    drawn = rng.integers(0, len(at), (RESAMPLES, len(at)))
    every = half_time(at[drawn], is_there[drawn])
    # No interpolation: between a moment and "not reached" there is nothing.
    low, high = np.quantile(every, [0.025, 0.975], method="inverted_cdf")
    return Estimate(value, float(low), float(high))


def time_text(time: Estimate, scale: float = 1.0, digits: int = 0) -> str:
    """Return a time as tables show it: 412,000 [380,000, not reached]."""
    value, *bounds = (
        f"{number / scale:,.{digits}f}" if isfinite(number) else "not reached"
        for number in (time.value, time.low, time.high)
        if number is not None
    )
    return f"{value} [{', '.join(bounds)}]" if bounds else value


def to_score_page(
    runs: Sequence[Run], score: float, human: bool = False, notes: Sequence[str] = ()
) -> str:
    """Return when each configuration reached the score, the earliest first, as a Markdown page.

    `score` is raw or, with `human`, a share of human play above random play: 0.5 is half way. A
    game for which human play is not known is then left out, and one of the `notes` is added.

    Raises:
      ConfigError: if human play is not known for any game.
    """
    tables: dict[str, list[str]] = {}
    left_out = list(notes)
    for env, members in by_game(runs).items():
        raw = score
        if human:
            at = all_human_normalised(env, [0.0, 1.0])
            if not at:
                left_out.append(f"{env}: the table of {TABLE} has no score of human play in it.")
                continue
            # The normalised score is a straight line in the raw one.
            raw = (score - at[0]) / (at[1] - at[0])
        rows = [_row(label, of_label, raw) for label, of_label in by_label(members).items()]
        rows.sort(key=lambda row: row[0])
        heading = f"{env}, score {same_decimals([raw])[0]}"
        tables[heading] = markdown.table(HEADINGS, [cells for _, cells in rows])
    if not tables:
        raise ConfigError(f"--to_score={100 * score:g}%: no game has a score of human play.")
    return markdown_page(ABOUT, tables, left_out)


def _row(label: str, runs: Sequence[Run], score: float) -> tuple[tuple[float, str], list[str]]:
    """Return the sort key of a configuration in the table, and its row under HEADINGS."""
    found = [arrival(run.curve, score) for run in runs]
    reached = [each.is_there for each in found]
    steps = half_time_estimate([each.agent_steps for each in found], reached)
    minutes = half_time_estimate([each.seconds for each in found], reached)
    seeds = []
    for run, each in zip(runs, found, strict=True):
        sign = "" if each.is_there else "> "
        text = f"{sign}{each.agent_steps:,.0f} ({sign}{each.seconds / 60:.1f} min)"
        seeds.append(f"{run.about.seed}: {text}")
    cells = [label, f"{sum(reached)} of {len(runs)}", time_text(steps), time_text(minutes, 60, 1)]
    return (steps.value, label), [*cells, ", ".join(seeds)]

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
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from ritornello.agent.testing.human_scores import TABLE, all_human_normalised
from ritornello.analysis.comparison import by_game, by_label, markdown_page
from ritornello.analysis.runs import Run
from ritornello.analysis.statistics import FEW, RESAMPLES, Estimate
from ritornello.core import markdown
from ritornello.metrics.curve import Curve

SAME = 1e-9  # shares that differ by less are equal: they are sums of a few fractions
ABOUT = (
    "Time to a score: until the mean return of the last games first reached it. Over the "
    "runs of a configuration: when half of them had (Kaplan and Meier: a run that ended "
    "without the score takes longer than it lasted) [95 % interval, bootstrap; none "
    f"of fewer than {FEW} runs]. "
    "Minutes compare only between runs on the same machine that had it to themselves."
)
HEADINGS = ("configuration", "reached", "agent steps", "minutes", "each seed")


@dataclass(frozen=True)
class Arrival:
    """When one run reached the score, or that it did not."""

    seed: int
    is_there: bool
    agent_steps: float  # until it was reached, or the end of the run
    seconds: float  # running time until then

    @property
    def text(self) -> str:
        """The steps and the minutes, as tables show them."""
        sign = "" if self.is_there else "> "
        return f"{sign}{self.agent_steps:,.0f} ({sign}{self.seconds / 60:.1f} min)"


@dataclass(frozen=True)
class GameArrivals:
    """When the configurations reached the score in one game, the earliest first."""

    env: str
    score: float  # raw
    rows: tuple[tuple[str, tuple[Arrival, ...]], ...]  # label, one arrival per run by seed


def arrival(curve: Curve, score: float, seed: int = 0) -> Arrival:
    """Return when a curve first reaches a raw score.

    If its first record is already there, that record is the moment: the true one came before.
    """
    there = np.flatnonzero(curve.mean_return >= score)
    if not len(there):
        return Arrival(seed, False, float(curve.agent_steps[-1]), float(curve.wall_s[-1]))
    before, after = max(0, int(there[0]) - 1), int(there[0])
    low, high = curve.mean_return[[before, after]]
    share = (score - low) / (high - low) if high > low else 0.0
    steps, seconds = (
        float(x[before] + share * (x[after] - x[before])) for x in (curve.agent_steps, curve.wall_s)
    )
    return Arrival(seed, True, steps, seconds)


def half_time(times: np.ndarray, reached: np.ndarray) -> np.ndarray:
    """Return when half of the runs have reached the score, by Kaplan and Meier.

    Where exactly half have for a while, it is the middle of that while, as for a median of an even
    number of values; infinite if more than half never have, or half have and no other does.

    Args:
      times: `[..., n]` float64, when each run reached the score, or when it ended without.
      reached: `[..., n]` bool, which of both.
    """
    # A run that ends at the moment at which another one arrives was still on its way then.
    order = np.lexsort((~reached, times), axis=-1)
    t, r = (np.take_along_axis(x, order, axis=-1) for x in (times, reached))
    at_risk = np.arange(t.shape[-1], 0, -1)
    left = np.cumprod(1.0 - r / at_risk, axis=-1)
    first = np.min(np.where(r & (left <= 0.5 + SAME), t, inf), axis=-1)
    beyond = np.min(np.where(r & (left < 0.5 - SAME), t, inf), axis=-1)
    return np.asarray((first + beyond) / 2.0)


def half_time_estimate(runs: Sequence[tuple[float, bool]]) -> Estimate:
    """Return when half of the runs have reached the score, with a 95 % percentile interval.

    Infinite where they have not. Of fewer than FEW runs there is no interval.

    Args:
      runs: (finite time, whether it was reached then) of each run; one run at least.
    """
    pairs = np.array(runs, np.float64)
    times, reached = pairs[:, 0], pairs[:, 1] > 0
    value = float(half_time(times, reached))
    if len(pairs) < FEW:
        return Estimate(value)
    rng = np.random.default_rng(0)  # the same runs give the same interval
    drawn = rng.integers(0, len(pairs), (RESAMPLES, len(pairs)))
    every = half_time(times[drawn], reached[drawn])
    # No interpolation: between a moment and "not reached" there is nothing.
    low, high = np.quantile(every, [0.025, 0.975], method="inverted_cdf")
    return Estimate(value, float(low), float(high))


def time_text(time: Estimate, scale: float = 1.0, digits: int = 0) -> str:
    """Return it as tables show it: 412,000 [380,000, not reached]."""
    value, *bounds = (
        f"{number / scale:,.{digits}f}" if isfinite(number) else "not reached"
        for number in (time.value, time.low, time.high)
        if number is not None
    )
    return f"{value} [{', '.join(bounds)}]" if bounds else value


def arrivals(
    runs: Sequence[Run], score: float, human: bool = False
) -> tuple[list[GameArrivals], list[str]]:
    """Find when each run reached the score, game by game in the order of their names.

    Args:
      runs: of any length, finished or not, result of `find_runs`.
      score: raw, or with `human` as a share of human play above random play: 0.5 is half way.
      human: whether it is such a share.

    Returns:
      The games, and notes on those that have no such score.
    """
    games, notes = [], []
    for env, members in by_game(runs).items():
        raw = score
        if human:
            at = all_human_normalised(env, [0.0, 1.0])
            if not at:
                notes.append(f"{env}: the table of {TABLE} has no score of human play in it.")
                continue
            # The normalised score is a straight line in the raw one.
            raw = (score - at[0]) / (at[1] - at[0])
        rows = [
            (label, tuple(arrival(run.curve, raw, run.about.seed) for run in of_label))
            for label, of_label in by_label(members).items()
        ]
        rows.sort(key=lambda row: (_steps(row[1]).value, row[0]))
        games.append(GameArrivals(env, raw, tuple(rows)))
    return games, notes


def arrivals_markdown(games: Sequence[GameArrivals], notes: Sequence[str] = ()) -> str:
    """Return the times as a Markdown page: a table for each game, and what was left out."""
    tables = {}
    for game in games:
        rows = []
        for label, runs in game.rows:
            there = sum(run.is_there for run in runs)
            minutes = half_time_estimate([(run.seconds, run.is_there) for run in runs])
            each = ", ".join(f"{run.seed}: {run.text}" for run in runs)
            counts = f"{there} of {len(runs)}"
            rows.append([label, counts, time_text(_steps(runs)), time_text(minutes, 60, 1), each])
        tables[f"{game.env}, score {game.score:,.1f}"] = markdown.table(HEADINGS, rows)
    return markdown_page(ABOUT, tables, notes)


def _steps(runs: Sequence[Arrival]) -> Estimate:
    return half_time_estimate([(run.agent_steps, run.is_there) for run in runs])

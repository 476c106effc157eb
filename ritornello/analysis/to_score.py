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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from ritornello.agent.testing.human_scores import TABLE, all_human_normalised
from ritornello.analysis.comparison import by_label, left_out_lines
from ritornello.analysis.runs import Run
from ritornello.analysis.statistics import FEW, RESAMPLES
from ritornello.core import markdown
from ritornello.core.plain_data import shown_text
from ritornello.metrics.curve import Curve

SAME = 1e-9  # shares that differ by less are equal: they are sums of a few fractions
NOT_REACHED = "not reached"


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
class Time:
    """When half of some runs have arrived, and its 95 % interval; infinite: not reached."""

    value: float
    low: float | None = None
    high: float | None = None

    def text(self, scale: float = 1.0, digits: int = 0) -> str:
        """Return it as tables show it: 412,000 [380,000, not reached]."""

        def one(number: float) -> str:
            return f"{number / scale:,.{digits}f}" if isfinite(number) else NOT_REACHED

        if self.low is None or self.high is None:
            return one(self.value)
        return f"{one(self.value)} [{one(self.low)}, {one(self.high)}]"


def arrival(curve: Curve, score: float, seed: int = 0) -> Arrival:
    """Return when a curve first reaches a score.

    If its first record is already there, that record is the moment: the true one came before.

    Args:
      curve: the curve of one run, at least one record.
      score: raw score.
      seed: of the run.
    """
    there = np.flatnonzero(curve.mean_return >= score)
    if not len(there):
        return Arrival(seed, False, float(curve.agent_steps[-1]), float(curve.wall_s[-1]))
    index = int(there[0])
    if index == 0:
        return Arrival(seed, True, float(curve.agent_steps[0]), float(curve.wall_s[0]))
    before, after = curve.mean_return[index - 1], curve.mean_return[index]
    share = float((score - before) / (after - before))
    steps, seconds = (
        float(x[index - 1] + share * (x[index] - x[index - 1]))
        for x in (curve.agent_steps, curve.wall_s)
    )
    return Arrival(seed, True, steps, seconds)


def half_time(times: np.ndarray, reached: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return when half of the weight has reached the score, by Kaplan and Meier.

    Where exactly half has for a while, it is the middle of that while, as for a median of an even
    number of values; infinite if more than half never has, or half has and no other does.

    Args:
      times: `[..., n]` float64, when each run reached the score, or when it ended without.
      reached: `[..., n]` bool, which of both.
      weights: `[..., n]` float64, above 0.
    """
    # A run that ends at the moment at which another one arrives was still on its way then.
    order = np.lexsort((~reached, times), axis=-1)
    t, r, w = (np.take_along_axis(x, order, axis=-1) for x in (times, reached, weights))
    at_risk = np.flip(np.cumsum(np.flip(w, axis=-1), axis=-1), axis=-1)
    left = np.cumprod(1.0 - np.where(r, w, 0.0) / at_risk, axis=-1)
    first = np.min(np.where(r & (left <= 0.5 + SAME), t, inf), axis=-1)
    beyond = np.min(np.where(r & (left < 0.5 - SAME), t, inf), axis=-1)
    return np.asarray((first + beyond) / 2.0)


def half_time_estimate(games: Sequence[Sequence[tuple[float, bool]]]) -> Time:
    """Return when half of the runs have reached the score, with a 95 % percentile interval.

    Each game has the same weight. Runs are drawn again game by game, so the interval respects how
    many of each there are. Of fewer than FEW runs there is none.

    Args:
      games: for each game, (time, whether it was reached then) of each run; one run at least.
    """
    sizes = [len(runs) for runs in games]
    pairs = np.array([pair for runs in games for pair in runs], np.float64).reshape(-1, 2)
    if not sizes or min(sizes) < 1 or not np.isfinite(pairs).all():
        raise ValueError("expected finite times, of at least one run of each game.")
    times, reached = pairs[:, 0], pairs[:, 1] > 0
    weights = np.repeat([1.0 / size for size in sizes], sizes)
    value = float(half_time(times, reached, weights))
    if min(sizes) < 2 or sum(sizes) < FEW:
        return Time(value)
    rng = np.random.default_rng(0)  # the same runs give the same interval
    begins = np.cumsum([0, *sizes[:-1]])
    drawn = np.concatenate(
        [
            begin + rng.integers(0, size, (RESAMPLES, size))
            for begin, size in zip(begins, sizes, strict=True)
        ],
        axis=1,
    )
    again = half_time(times[drawn], reached[drawn], weights[drawn])
    # No interpolation: between a moment and "not reached" there is nothing.
    low, high = np.quantile(again, [0.025, 0.975], method="inverted_cdf")
    return Time(value, float(low), float(high))


@dataclass(frozen=True)
class GameArrivals:
    """When the configurations reached the score in one game, the earliest first."""

    env: str
    score: float  # raw
    rows: tuple[tuple[str, tuple[Arrival, ...]], ...]  # label, one arrival per run by seed


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
    for env in sorted({run.about.env for run in runs}):
        raw = _raw_score(env, score) if human else score
        if raw is None:
            notes.append(f"{env}: the table of {TABLE} has no score of human play in it.")
            continue
        members = [run for run in runs if run.about.env == env]
        rows = [
            (label, tuple(arrival(run.curve, raw, run.about.seed) for run in of_label))
            for label, of_label in by_label(members).items()
        ]
        rows.sort(key=lambda row: (_over([row[1]], "agent_steps").value, row[0]))
        games.append(GameArrivals(env, raw, tuple(rows)))
    return games, notes


def arrivals_markdown(
    games: Sequence[GameArrivals], notes: Sequence[str] = (), human: bool = False
) -> str:
    """Return the times as a Markdown page: a table for each game, and one over the games.

    Args:
      games: result of `arrivals`.
      notes: sentences about what was left out.
      human: whether the games' scores are one share of human play, and so may be taken together.
    """
    lines = [
        "Time to a score: until the mean return of the last games first reached it. Over the "
        "runs of a configuration: when half of them had (Kaplan and Meier: a run that ended "
        "without the score takes longer than it lasted) [95 % interval, stratified bootstrap; none "
        f"of fewer than {FEW} runs]. "
        "Minutes compare only between runs on the same machine that had it to themselves."
    ]
    headings = ["configuration", "reached", "agent steps", "minutes"]
    for game in games:
        lines += ["", f"## {shown_text(game.env)}, score {game.score:,.1f}", ""]
        rows = [
            [*_cells(label, [runs]), ", ".join(f"{r.seed}: {r.text}" for r in runs)]
            for label, runs in game.rows
        ]
        lines += markdown.table([*headings, "each seed"], rows)
    if human and len(games) > 1:
        lines += ["", "## Over games, each with the same weight", ""]
        rows = [_cells(label, of_games) for label, of_games in _in_all(games)]
        lines += markdown.table(headings, rows)
    return "\n".join(lines + left_out_lines(notes)) + "\n"


def _in_all(games: Sequence[GameArrivals]) -> Iterator[tuple[str, list[tuple[Arrival, ...]]]]:
    """Yield the configurations that have runs in every game, the earliest first."""
    by_game = [dict(game.rows) for game in games]
    labels = [label for label in by_game[0] if all(label in rows for rows in by_game)]
    whole = {label: [rows[label] for rows in by_game] for label in labels}
    yield from sorted(whole.items(), key=lambda item: _over(item[1], "agent_steps").value)


def _cells(label: str, games: Sequence[Sequence[Arrival]]) -> list[str]:
    runs = [run for of_game in games for run in of_game]
    return [
        label,
        f"{sum(run.is_there for run in runs)} of {len(runs)}",
        _over(games, "agent_steps").text(),
        _over(games, "seconds").text(60, 1),
    ]


def _over(games: Sequence[Sequence[Arrival]], what: str) -> Time:
    return half_time_estimate([[(getattr(r, what), r.is_there) for r in runs] for runs in games])


def _raw_score(env: str, share: float) -> float | None:
    """Return the raw score that is this share of human play; None where that is not known."""
    at = all_human_normalised(env, [0.0, 1.0])
    # The normalised score is a straight line in the raw one.
    return (share - at[0]) / (at[1] - at[0]) if at else None

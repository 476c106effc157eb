"""What a few runs or games can say: means, and bootstrap intervals that respect games.

The recommendations are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the
Statistical Precipice" (2021), https://arxiv.org/abs/2108.13264. `tests/reference/` has the formulas
as plain loops.

An interval says what other seeds of the same configuration might have given. A bootstrap of two
runs can reach no further than from one to the other, so fewer than five runs have no interval:
tables show the lowest and the highest instead, in round brackets. A score that is no number is
refused rather than left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from ritornello.metrics.text import same_decimals

RESAMPLES = 5000
FEW = 5  # of fewer runs there is no interval
AT_ONCE = 20_000_000  # numbers that are drawn again at once at most: 160 MB

# (*strata, axis=...) -> numbers: each stratum is an array with what is drawn again along `axis`.
Statistic = Callable[..., Any]
# Of one configuration: for each game the scores of its runs; only `estimate` takes an empty one.
Strata = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % bootstrap interval; None if it is not known."""

    value: float
    low: float | None = None
    high: float | None = None
    reach: tuple[float, float] | None = None  # lowest and highest of a few runs of one game

    def __str__(self) -> str:
        """Return it as tables show it: 21.5 [21.0, 22.0], or of a few runs 21.5 (21.0 to 22.0)."""
        return self._text(same_decimals(self._numbers()))

    def percent(self) -> str:
        """Return a fraction as tables show it: 119.5 [118.1, 121.0] %."""
        return f"{self._text([f'{100 * number:,.1f}' for number in self._numbers()])} %"

    def _numbers(self) -> list[float]:
        """Return the value and, if they are known, the ends of its interval or reach."""
        if self.low is not None and self.high is not None:
            return [self.value, self.low, self.high]
        return [self.value, *(self.reach or ())]

    def _text(self, shown: Sequence[str]) -> str:
        """Return `_numbers` as text, with the brackets of what they are."""
        value, *ends = shown
        if not ends:
            return value
        return (
            f"{value} ({' to '.join(ends)})" if self.low is None else f"{value} [{', '.join(ends)}]"
        )


def interquartile_mean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the mean without the lowest and highest quarter along `axis`."""
    return np.asarray(stats.trim_mean(values, 0.25, axis=axis))


def interval(strata: Sequence[np.ndarray], statistic: Statistic) -> tuple[Any, Any] | None:
    """Return the 95 % percentile interval of a statistic, or None if there are too few rows.

    Too few are one in a stratum, or fewer than FEW in all. The bootstrap is stratified: rows are
    drawn again within each stratum, so each resample has as many of each as there are. The same
    rows give the same interval.

    `strata` are arrays `[n, ...]`, whose rows are drawn as a whole; `statistic` is a function of
    them and of `axis`.

    Returns:
      (low, high), each of the shape of the statistic.

    Raises:
      ValueError: if a number is not finite.
    """
    if not all(np.isfinite(rows).all() for rows in strata):
        raise ValueError("expected finite numbers to draw from, got NaN or infinity among them.")
    if min(map(len, strata)) < 2 or sum(map(len, strata)) < FEW:
        return None
    bounds = stats.bootstrap(
        strata,
        statistic,
        axis=0,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, min(RESAMPLES, AT_ONCE // max(1, sum(map(np.size, strata))))),
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return bounds.low, bounds.high


def estimate(strata: Strata) -> Estimate:
    """Return the interquartile mean over all runs of all games, with its interval.

    With fewer than 4 values the interquartile mean leaves out none: it is the mean.
    """
    return _estimate(strata, _pooled_interquartile_mean)


def mean_estimate(strata: Strata) -> Estimate:
    """Return the mean of the strata's means, with its interval."""
    return _estimate(strata, _mean_of_means)


def over_seeds(
    curves: Sequence[tuple[np.ndarray, np.ndarray]], points: int
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray] | None] | None:
    """Return the interquartile mean of some curves as far as all of them reach, and its interval.

    A curve is (x, y) of a seed, with increasing x. The result has L = `points` points.

    Returns:
      x [L], mean [L], and its 95 % interval (low [L], high [L]) or None (see `interval`); None if
      there is only one curve, or no part that all have.
    """
    begin = max(float(x[0]) for x, _ in curves)
    end = min(float(x[-1]) for x, _ in curves)
    if len(curves) < 2 or begin >= end:
        return None
    grid = np.linspace(begin, end, points)
    every = np.stack([np.interp(grid, x, y) for x, y in curves])
    return grid, interquartile_mean(every), interval([every], interquartile_mean)


def probability_of_improvement(first: Strata, second: Strata) -> Estimate:
    """Return how likely a run of `first` scores higher than one of `second`, with its interval.

    This is the mean over games of the share of pairs (x, y) of runs with x > y, where a tie counts
    half (Mann and Whitney's U over its largest value; Agarwal et al. 2021, section 4.3). It says
    how often, not by how much, so raw scores serve as well as normalised ones. Both sides have the
    same games in the same order. Their runs are drawn again, game by game; if a side has fewer than
    FEW, there is no interval.
    """
    found = _estimate([*first, *second], _share_of_pairs)
    fewest = min(sum(map(len, side)) for side in (first, second))
    return Estimate(found.value) if fewest < FEW else found


def difference(scores: Sequence[float], control: Sequence[float]) -> Estimate:
    """Return the difference of the means of two configurations, with its 95 % interval (Welch).

    There is no interval if either has fewer than two runs, or none of them varies.
    """
    value = float(np.mean(scores) - np.mean(control))
    if min(len(scores), len(control)) < 2 or np.ptp(scores) == np.ptp(control) == 0.0:
        return Estimate(value)
    # By hand: `stats.ttest_ind` warns of a loss of precision where one side does not vary.
    parts = [np.var(side, ddof=1) / len(side) for side in (scores, control)]
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (scores, control), strict=True)
    )
    half = float(stats.t.ppf(0.975, freedom) * sum(parts) ** 0.5)
    return Estimate(value, value - half, value + half)


def profile(
    strata: Strata, levels: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """Return the performance profile: the share of runs that score higher than each level, `[L]`.

    This is the mean over games of the share of a game's runs (Agarwal et al. 2021, equation 1), so
    that each game counts the same however many runs it has. All scores are on one scale.

    Returns:
      share `[L]`, falling from 1 to 0, and its 95 % interval, of each level by itself (see
      `interval`).
    """
    rows = [(np.array(scores)[:, None] > levels).astype(np.float64) for scores in strata]
    return _mean_of_means(*rows, axis=0), interval(rows, _mean_of_means)


def _estimate(strata: Strata, statistic: Statistic) -> Estimate:
    arrays = [np.asarray(numbers, np.float64) for numbers in strata]
    bounds = interval(arrays, statistic)
    value = float(statistic(*arrays, axis=0))
    if bounds is not None:
        return Estimate(value, float(bounds[0]), float(bounds[1]))
    is_shown = len(arrays) == 1 and len(arrays[0]) > 1
    reach = (float(arrays[0].min()), float(arrays[0].max())) if is_shown else None
    return Estimate(value, reach=reach)


def _pooled_interquartile_mean(*games: np.ndarray, axis: int) -> Any:
    """Pool the games along `axis`, which SciPy puts behind the axis of resamples."""
    return interquartile_mean(np.concatenate(games, axis=axis), axis=axis)


def _mean_of_means(*strata: np.ndarray, axis: int) -> Any:
    return np.mean([numbers.mean(axis=axis) for numbers in strata], axis=0)


def _share_of_pairs(*runs: np.ndarray, axis: int) -> Any:
    """Compare the first half of the strata with the second, game by game."""
    games = len(runs) // 2
    shares = []
    for ours, theirs in zip(runs[:games], runs[games:], strict=True):
        x, y = np.moveaxis(ours, axis, -1), np.moveaxis(theirs, axis, -1)
        # By ranks, which are as many as the runs: the pairs of hundreds would fill the memory.
        ranks = stats.rankdata(np.concatenate([x, y], axis=-1), axis=-1)[..., : x.shape[-1]]
        shares.append((ranks.mean(axis=-1) - (x.shape[-1] + 1) / 2) / y.shape[-1])
    return np.mean(shares, axis=0)

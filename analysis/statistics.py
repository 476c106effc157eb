"""What a few runs can say: interquartile means, and intervals that respect games.

The recommendations are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the
Statistical Precipice" (2021), https://arxiv.org/abs/2108.13264.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from sequences.report import interquartile_mean

RESAMPLES = 5000


@dataclass(frozen=True)
class Estimate:
    """An interquartile mean and its 95 % bootstrap interval; None where nothing can be said."""

    value: float
    low: float | None
    high: float | None


def estimate(strata: Sequence[Sequence[float]]) -> Estimate:
    """Return the interquartile mean over all runs of all games, with its interval.

    The bootstrap is stratified: runs are drawn again within each game, so each resample has as
    many runs of each game as there are. Of fewer than 4 values the interquartile mean leaves out
    none: it is the mean.

    Args:
      strata: one list of scores per game, one score per run; at least one score in all.

    Returns:
      The estimate; without interval if a game has fewer than two runs.
    """
    games = [np.asarray(scores, np.float64) for scores in strata]
    value = float(interquartile_mean(np.concatenate(games)))
    if min(len(scores) for scores in games) < 2:
        return Estimate(value, None, None)
    bounds = stats.bootstrap(
        games,
        _pooled_interquartile_mean,
        vectorized=True,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),  # the same runs give the same interval
    ).confidence_interval
    return Estimate(value, float(bounds.low), float(bounds.high))


def _pooled_interquartile_mean(*games: np.ndarray, axis: int) -> Any:
    """Pool the games along `axis`, which SciPy puts behind the axis of resamples."""
    return interquartile_mean(np.concatenate(games, axis=axis), axis=axis)

"""What a few runs or games can say: means, and bootstrap intervals that respect games.

The recommendations are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the
Statistical Precipice" (2021), https://arxiv.org/abs/2108.13264.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

RESAMPLES = 5000

# (*strata, axis=...) -> numbers: each stratum is an array with what is drawn again along `axis`.
Statistic = Callable[..., Any]


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % bootstrap interval; None where nothing can be said of that."""

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        """Return it as tables show it: 21.5 [21.0, 22.0]."""
        text = f"{self.value:,.1f}"
        if self.low is None or self.high is None:
            return text
        return f"{text} [{self.low:,.1f}, {self.high:,.1f}]"

    def percent(self) -> str:
        """Return a fraction as tables show it: 119.5 [118.1, 121.0] %."""
        low, high = (None if x is None else 100 * x for x in (self.low, self.high))
        return f"{Estimate(100 * self.value, low, high)} %"


def interquartile_mean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the mean without the lowest and highest quarter along `axis`."""
    return np.asarray(stats.trim_mean(values, 0.25, axis=axis))


def interval(strata: Sequence[np.ndarray], statistic: Statistic) -> tuple[Any, Any] | None:
    """Return the 95 % percentile interval of a statistic, or None if a stratum has one row only.

    The bootstrap is stratified: rows are drawn again within each stratum, so each resample has as
    many of each as there are. The same rows give the same interval.

    Args:
      strata: arrays `[n, ...]`, whose rows are drawn as a whole.
      statistic: of them, over axis `axis`.

    Returns:
      (low, high), each of the shape of the statistic.
    """
    if min(map(len, strata)) < 2:
        return None
    bounds = stats.bootstrap(
        strata,
        statistic,
        axis=0,
        vectorized=True,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return bounds.low, bounds.high


def estimate(strata: Sequence[Sequence[float]]) -> Estimate:
    """Return the interquartile mean over all runs of all games, with its interval.

    Of fewer than 4 values the interquartile mean leaves out none: it is the mean.

    Args:
      strata: one list of scores per game, one score per run; at least one score in all.
    """
    return _estimate(strata, _pooled_interquartile_mean)


def mean_estimate(strata: Sequence[Sequence[float]]) -> Estimate:
    """Return the mean of the strata's means, with its interval.

    Args:
      strata: one list of numbers per game; at least one number in each.
    """
    return _estimate(strata, _mean_of_means)


def _estimate(strata: Sequence[Sequence[float]], statistic: Statistic) -> Estimate:
    arrays = [np.asarray(numbers, np.float64) for numbers in strata]
    value = float(statistic(*arrays, axis=0))
    bounds = interval(arrays, statistic)
    return Estimate(value) if bounds is None else Estimate(value, *map(float, bounds))


def _pooled_interquartile_mean(*games: np.ndarray, axis: int) -> Any:
    """Pool the games along `axis`, which SciPy puts behind the axis of resamples."""
    return interquartile_mean(np.concatenate(games, axis=axis), axis=axis)


def _mean_of_means(*strata: np.ndarray, axis: int) -> Any:
    return np.mean([numbers.mean(axis=axis) for numbers in strata], axis=0)

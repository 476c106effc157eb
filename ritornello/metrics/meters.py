"""Meters: they collect between two records and forget when they are read.

None of them is thread-safe, on purpose: each belongs to one thread, which reads it and hands plain
numbers on. Clocks are arguments, so that tests need not wait.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ritornello.core.episode import EpisodeEnd
from ritornello.core.saved_state import item, items, whole, within

Clock = Callable[[], float]


class Mean:
    """Weighted mean since the last read."""

    def __init__(self, sum: float = 0.0, weight: float = 0.0) -> None:
        """Start empty, or with what was added before."""
        self.sum = float(sum)
        self.weight = float(weight)

    def add(self, value: float, weight: float = 1.0) -> None:
        """Add a value that stands for `weight` measurements."""
        self.sum += value * weight
        self.weight += weight

    def read(self) -> float | None:
        """Return the mean and start again; None if nothing was added."""
        mean = self.sum / self.weight if self.weight else None
        self.sum = self.weight = 0.0
        return mean


class MeanByName:
    """Means of many named values since the last read, such as the metrics of each update.

    A value that is not finite is skipped: the mean is over the updates in which it existed.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._means: dict[str, Mean] = {}

    def add(self, values: Mapping[str, float], weight: float = 1.0) -> None:
        """Add one value of each name."""
        for name, value in values.items():
            if math.isfinite(value):
                self._means.setdefault(name, Mean()).add(float(value), weight)

    def read(self) -> dict[str, float]:
        """Return the means that exist and start again."""
        means = {name: mean.read() for name, mean in self._means.items()}
        return {name: mean for name, mean in means.items() if mean is not None}

    def state_dict(self) -> dict[str, list[float]]:
        """Return sum and weight of what was added since the last read, by name."""
        return {name: [mean.sum, mean.weight] for name, mean in self._means.items()}

    def load_state_dict(self, state: Mapping[str, Sequence[float]]) -> None:
        """Go on from `state_dict`."""
        self._means = {name: Mean(*items(state, name, float)) for name in state}


class Rate:
    """Speed of a counter that only grows, between two reads."""

    def __init__(self, clock: Clock = time.monotonic, count: float = 0.0) -> None:
        """Start now, at `count` (not 0 when a run was resumed)."""
        self._clock = clock
        self._at, self._count = clock(), count

    def rest(self, seconds: float) -> None:
        """Leave so long a time out, which has just passed."""
        self._at += seconds

    def read(self, count: float) -> float | None:
        """Return the growth per second since the last read; None if no time has passed."""
        now = self._clock()
        elapsed, growth = now - self._at, count - self._count
        if elapsed <= 0:
            return None
        self._at, self._count = now, count
        return growth / elapsed


class WindowMean:
    """Mean of the last n values. Reading does not reset it."""

    def __init__(self, size: int) -> None:
        """Keep at most `size` values."""
        self.values: deque[float] = deque(maxlen=size)

    def add(self, value: float) -> None:
        """Add a value; the oldest goes if there are too many."""
        self.values.append(value)

    def read(self) -> float | None:
        """Return the mean of what is there, or None."""
        return math.fsum(self.values) / len(self.values) if self.values else None


class EpisodeMeter:
    """Everything about finished games: since the last read, over the last of them, and the best."""

    def __init__(self, window: int = 100) -> None:
        """Start without a game; `window` is the number of games in the moving average."""
        self.count = 0
        self.best: float | None = None
        self.best_mean: float | None = None  # best mean over a full window so far
        self._window = WindowMean(window)
        self._recent = MeanByName()

    def add(self, episode: EpisodeEnd) -> None:
        """Count one game."""
        self.count += 1
        self._window.add(episode.return_raw)
        self.best = episode.return_raw if self.best is None else max(self.best, episode.return_raw)
        mean = self.full_mean
        if mean is not None and (self.best_mean is None or mean > self.best_mean):
            self.best_mean = mean
        self._recent.add(
            {
                "episode/return_raw": episode.return_raw,
                "episode/length_steps": episode.length_steps,
                "episode/length_frames": episode.length_frames,
            }
        )

    @property
    def mean(self) -> float | None:
        """Mean return of the last games (`episode/return_mean`), None before the first."""
        return self._window.read()

    @property
    def full_mean(self) -> float | None:
        """Mean return over a full window, None before: what models are ranked by."""
        is_full = len(self._window.values) == self._window.values.maxlen
        return self._window.read() if is_full else None

    def read(self) -> dict[str, float]:
        """Return the values for a Record and start a new interval."""
        values = self._recent.read()
        for name, value in (("return_mean", self.mean), ("return_best", self.best)):
            if value is not None:
                values[f"episode/{name}"] = value
        return values

    def state_dict(self) -> dict[str, Any]:
        """Return plain types for a checkpoint: a resumed run goes on with its moving average."""
        return {
            "count": self.count,
            "best": self.best,
            "best_mean": self.best_mean,
            "window": list(self._window.values),
            "window_games": self._window.values.maxlen,
            "recent": self._recent.state_dict(),
        }

    def has_window_of(self, state: Mapping[str, Any]) -> bool:
        """Whether a saved best mean is over as many games as here; older states do not say."""
        size = self._window.values.maxlen
        return bool(state.get("window_games", size) == size)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`.

        Raises:
          StateError: if it is none.
        """
        self.count = whole(state, "count")
        self.best = item(state, "best", float, default=None)
        best_mean = item(state, "best_mean", float, default=None)
        self.best_mean = best_mean if self.has_window_of(state) else None
        self._window.values.clear()
        self._window.values.extend(items(state, "window", float))
        # Checkpoints of before had none: the first record after the resume knew fewer games.
        with within("recent"):
            self._recent.load_state_dict(item(state, "recent", dict, default={}))

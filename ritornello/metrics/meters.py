"""Meters: they collect between two records and forget when they are read.

None of them is thread-safe, on purpose: each belongs to one thread, which reads it and hands plain
numbers on.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from ritornello.core.episode import EpisodeEnd
from ritornello.core.saved_state import item, items, whole, within
from ritornello.metrics.record import Record

MEMORY_S = 30.0  # a change of `Speed` is followed within about this time
FAR_S = 1e9  # 30 years, by the speed of a run that stands still: it has no end that is known
RECENT = ("return_raw", "length_steps", "length_frames")  # of a game: means since the last read


class Rate:
    """Speed of a counter that only grows, between two reads."""

    def __init__(self, count: float = 0.0) -> None:
        """Start now, at `count` (not 0 when a run was resumed)."""
        self._at, self._count = time.monotonic(), count

    def rest(self, seconds: float) -> None:
        """Leave out `seconds` that have just passed."""
        self._at += seconds

    def read(self, count: float) -> float | None:
        """Return the growth per second since the last read; None if no time has passed."""
        now = time.monotonic()
        elapsed, growth = now - self._at, count - self._count
        if elapsed <= 0:
            return None
        self._at, self._count = now, count
        return growth / elapsed


class Speed:
    """Agent steps per second, smoothed. Pauses do not count: `wall_s` of Records leaves them out.

    Nor does what was done before the first Record that tells of an update.
    """

    def __init__(self, target_steps: int, training_seconds: float | None = None) -> None:
        """Begin without a speed; the session ends at these agent steps, or after these seconds."""
        self._target_steps = target_steps
        self._training_seconds = training_seconds
        self.steps_per_s: float | None = None  # None: not known yet
        self._first: Record | None = None
        self._newest: Record | None = None

    def add(self, record: Record) -> None:
        """Take the newest Record."""
        before, self._newest = self._newest, record
        self._first = self._first or record
        if before is None or record.wall_s <= before.wall_s:
            return
        if self.steps_per_s is None and not any(x.startswith("loss/") for x in before.values):
            return  # replay filled up: much was played while the clock of the run stood still
        passed_s = record.wall_s - before.wall_s
        speed = (record.agent_steps - before.agent_steps) / passed_s
        weight = 1.0 if self.steps_per_s is None else min(1.0, passed_s / MEMORY_S)
        self.steps_per_s = speed * weight + (self.steps_per_s or 0.0) * (1 - weight)

    def seconds_left(self) -> float | None:
        """Return the time from the newest Record to the end, in seconds; None: unknown."""
        if self._first is None or self._newest is None:
            return None
        limits = []
        if self._training_seconds:
            ran_s = self._newest.wall_s - self._first.wall_s
            limits.append(max(0.0, self._training_seconds - ran_s))
        if self.steps_per_s:
            steps = max(0, self._target_steps - self._newest.agent_steps)
            limits.append(steps / self.steps_per_s)
        return min((limit for limit in limits if limit <= FAR_S), default=None)


def mean_of(returns: Collection[float]) -> float:
    """Return the mean; infinite or NaN where returns are, or their sum is too large."""
    try:
        return math.fsum(returns) / len(returns)
    except (OverflowError, ValueError):  # `fsum` adds no infinity to another
        return sum(returns) / len(returns)


class EpisodeMeter:
    """Everything about finished games: since the last read, over the last of them, and the best."""

    def __init__(self, window: int = 100) -> None:
        """Start without a game; `window` is the number of games in the moving average."""
        self.count = 0
        self.best: float | None = None
        self.best_mean: float | None = None  # best mean over a full window so far
        self._window: deque[float] = deque(maxlen=window)  # returns
        self._recent: dict[str, list[float]] = {}  # metric -> sum and number of games

    def add(self, episode: EpisodeEnd) -> None:
        """Count one game."""
        self.count += 1
        self._window.append(episode.return_raw)
        self.best = episode.return_raw if self.best is None else max(self.best, episode.return_raw)
        mean = self.full_mean
        if mean is not None and (self.best_mean is None or mean > self.best_mean):
            self.best_mean = mean
        for name in RECENT:
            value = float(getattr(episode, name))
            if math.isfinite(value):
                total, games = self._recent.get(f"episode/{name}", (0.0, 0.0))
                self._recent[f"episode/{name}"] = [total + value, games + 1.0]

    @property
    def mean(self) -> float | None:
        """Mean return of the last games (`episode/return_mean`), None before the first."""
        return mean_of(self._window) if self._window else None

    @property
    def full_mean(self) -> float | None:
        """Mean return over a full window, None before: models are ranked by it."""
        return self.mean if len(self._window) == self._window.maxlen else None

    def read(self) -> dict[str, float]:
        """Return the values for a Record and start a new interval."""
        values = {name: total / games for name, (total, games) in self._recent.items() if games}
        self._recent = {}
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
            "window": list(self._window),
            "window_games": self._window.maxlen,
            "recent": {name: list(each) for name, each in self._recent.items()},
        }

    def has_window_of(self, state: Mapping[str, Any]) -> bool:
        """Whether a saved best mean is over as many games as here; older states do not say."""
        return bool(state.get("window_games", self._window.maxlen) == self._window.maxlen)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state from `state_dict`.

        Raises:
          StateError: if `state` is malformed.
        """
        self.count = whole(state, "count")
        self.best = item(state, "best", float, default=None)
        best_mean = item(state, "best_mean", float, default=None)
        self.best_mean = best_mean if self.has_window_of(state) else None
        self._window.clear()
        self._window.extend(items(state, "window", float))
        # Checkpoints of before had none: the first record after the resume knew fewer games.
        recent = item(state, "recent", dict, default={})
        with within("recent"):
            self._recent = {}
            for name in recent:
                total, games = items(recent, name, float)
                self._recent[name] = [float(total), float(games)]

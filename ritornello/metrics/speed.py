"""How fast a run gets on, and how long it takes from here: from its Records alone."""

from __future__ import annotations

from ritornello.metrics.record import Record

MEMORY_S = 30.0  # a change of speed is followed within about this time


class Speed:
    """Agent steps per second, smoothed. Pauses do not count: `wall_s` of Records leaves them out.

    Nor does what was done before the first Record.
    """

    def __init__(self, first: Record | None = None) -> None:
        """Know no speed yet, but perhaps where the session begins."""
        self.steps_per_s: float | None = None  # None: not known yet
        self._newest = first

    def add(self, record: Record) -> None:
        """Take the newest Record."""
        before, self._newest = self._newest, record
        if before is None or record.wall_s <= before.wall_s:
            return
        passed_s = record.wall_s - before.wall_s
        speed = (record.agent_steps - before.agent_steps) / passed_s
        weight = 1.0 if self.steps_per_s is None else min(1.0, passed_s / MEMORY_S)
        self.steps_per_s = speed * weight + (self.steps_per_s or 0.0) * (1 - weight)

    def seconds_until(self, agent_steps: int) -> float | None:
        """Return how long the run takes from the newest Record until then; None: not known."""
        if self._newest is None or not self.steps_per_s:
            return None
        return max(0, agent_steps - self._newest.agent_steps) / self.steps_per_s

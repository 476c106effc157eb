"""What test mode says while no game ends: a line now and then, with the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable

from metrics.text import duration

SILENCE_S = 10.0


class PlayProgress:
    """Says how far a test of some games is, whenever nothing has been said for a while."""

    def __init__(
        self,
        wanted: int,
        show: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin now.

        Args:
          wanted: games.
          show: called with a line.
          clock: seconds.
        """
        self._wanted = wanted
        self._show = show
        self._clock = clock
        self._began_s = self._said_s = clock()
        self._steps = 0
        self._lengths: list[int] = []

    def advance(self, steps: int) -> None:
        """Count agent steps of all environments together; perhaps say something."""
        self._steps += steps
        now_s = self._clock()
        if now_s - self._said_s >= SILENCE_S:
            self._said_s = now_s
            self._show(self._line(now_s - self._began_s))

    def finished(self, length_steps: int) -> None:
        """Count a game that is over; somebody else says so."""
        self._lengths.append(length_steps)
        self._said_s = self._clock()

    def _line(self, passed_s: float) -> str:
        line = (
            f"{len(self._lengths)} of {self._wanted} games, {self._steps:,} steps in "
            f"{duration(passed_s)}"
        )
        if not self._lengths:
            return f"{line}; no game is over yet"
        # As if the others were as long as those that are over; the first to end are shorter.
        expected = sum(self._lengths) / len(self._lengths) * self._wanted
        left_s = passed_s * max(0.0, expected / self._steps - 1)
        return f"{line}; about {duration(left_s)} left"

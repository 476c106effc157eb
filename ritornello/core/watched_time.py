"""WatchedTime: a clock of the time in which its reader was there to watch.

A process that was itself stopped (SIGSTOP, a container that was paused, a computer that slept), or
that was busy with something else, would take its own absence for the silence of all others. On this
clock a gap between two looks lasts at most some seconds, however long it was: by then whatever
waited to be heard can be heard.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MAX_GAP_S = 5.0


class WatchedTime:
    """Seconds, from look to look. May be read by several threads."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, max_gap_s: float = MAX_GAP_S
    ) -> None:
        """Begin now.

        Args:
          clock: monotonic clock, in seconds.
          max_gap_s: a longer time between two looks counts as so long.
        """
        self._clock = clock
        self._max_gap_s = max_gap_s
        self._lock = threading.Lock()
        self._looked_at = self._now = clock()

    def __call__(self) -> float:
        """Look: return the time, which moves by what has passed since the last look."""
        return self._look()[0]

    @property
    def since_look_s(self) -> float:
        """Seconds since the last look, by the clock; this is none."""
        return self._clock() - self._looked_at

    def passed(self) -> float:
        """Look: return the seconds by which the time moves."""
        return self._look()[1]

    def _look(self) -> tuple[float, float]:
        with self._lock:
            now = self._clock()
            passed_s = min(now - self._looked_at, self._max_gap_s)
            self._looked_at, self._now = now, self._now + passed_s
            return self._now, passed_s

"""What the threads of the learner's process do, and since when: for the line that says who hangs.

Processes have pulses in shared memory for this (transport/pulse.py); threads share all memory, so
a dictionary will do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

# A thread that waits looks up several times a second; one that has not for so long does not wait.
STANDSTILL_S = 5.0


@dataclass(frozen=True)
class _Sign:
    what: str
    since: float  # when it began to do this
    last: float  # when it last said so
    rests: bool


class Heartbeats:
    """Signs of life of threads. `beat` by the threads, `describe` by anybody."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nobody has said anything yet.

        Args:
          clock: monotonic clock, in seconds.
        """
        self._clock = clock
        self._signs: dict[str, _Sign] = {}  # each entry is written by one thread, and at once

    def beat(self, what: str, *, rests: bool = False) -> None:
        """Say what the calling thread does from now on, or still does.

        Args:
          what: words that follow the thread's name: "inserting into replay".
          rests: it waits for others as long as it takes, and says nothing meanwhile.
        """
        now, who = self._clock(), threading.current_thread().name
        before = self._signs.get(who)
        since = before.since if before is not None and before.what == what else now
        self._signs[who] = _Sign(what, since, now, rests)

    def describe(self) -> list[str]:
        """Return a line for each thread: "ingest: inserting into replay for 75 s".

        Of one that says nothing any more, that too.
        """
        now, lines = self._clock(), []
        for who, sign in sorted(self._signs.copy().items()):
            line = f"{who}: {sign.what} for {now - sign.since:.0f} s"
            if not sign.rests and now - sign.last >= STANDSTILL_S:
                line += f", and stands still for {now - sign.last:.0f} s"
            lines.append(line)
        return lines

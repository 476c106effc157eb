"""Decides whether and when a dead process is replaced, by the rate of deaths.

There are three rules, each for a different problem:

* A run of a month may lose a process now and then, so deaths are forgotten after an hour.
* A process that dies again and again waits longer each time before it is replaced. Thus a lasting
  problem (no memory, a server that is down) does not get worse by starting processes quickly.
* A mistake in the environment's own code shows at once and everywhere. If the same failure comes
  from process after process, with no unroll in between, restarting cannot help, and the run ends
  with that failure before all restarts are used.

No clock is read and nothing is started here.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

from ritornello.core.command_line import counted

WINDOW_S = 3600.0
FIRST_DELAY_S = 1.0  # of the second death within the window; the first is replaced at once
MAX_DELAY_S = 60.0
MIN_SAME_FAILURES = 3
GIVING_UP = "; giving up."  # the end of what a pool says last


@dataclass(frozen=True)
class Verdict:
    """The decision about one death."""

    delay_s: float = 0.0  # until the successor is started
    recent: int = 0  # deaths within the window, with this one
    reason_to_give_up: str = ""  # empty: it is replaced


class RestartLimit:
    """Remembers which process died when, and of what. Used by one thread."""

    def __init__(self, max_per_hour: int, process_count: int) -> None:
        """Begin without a death. `max_per_hour` is the limit of all processes together."""
        self._max_per_hour = max_per_hour
        self.process_count = process_count
        self._deaths: defaultdict[str, deque[float]] = defaultdict(deque)
        self._failure = ""
        self._same_failures = 0

    def book_progress(self) -> None:
        """Note that an unroll has come: the last failure is not one of every process."""
        self._same_failures = 0

    def book_death(self, who: str, failure: str, now_s: float) -> Verdict:
        """Decide whether and when a process that died is replaced.

        `failure` is the cause, in words that are the same for the same cause; `now_s` is the time
        of a monotonic clock.
        """
        for deaths in self._deaths.values():
            while deaths and now_s - deaths[0] >= WINDOW_S:
                deaths.popleft()
        own = self._deaths[who]
        own.append(now_s)
        self._same_failures = self._same_failures + 1 if failure == self._failure else 1
        self._failure = failure
        recent = sum(len(deaths) for deaths in self._deaths.values())
        reason = ""
        if recent > self._max_per_hour:
            reason = (
                f"Processes were restarted {counted(recent - 1, 'time')} within the last hour "
                "already (--max_worker_restarts)"
            )
        # All may fail once at the start of a run, and at least one of them has failed again.
        elif self._same_failures >= max(MIN_SAME_FAILURES, self.process_count + 1):
            reason = (
                f"The same failure came {self._same_failures} times in a row, and not a single "
                "unroll in between, so another start would end the same way"
            )
        return Verdict(_delay_s(len(own)), recent, reason)


def _delay_s(deaths: int) -> float:
    """Return how long a successor waits after `deaths` of its process within the window."""
    if deaths < 2:
        return 0.0
    # A very large power of two is no float any more.
    return float(min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** min(deaths - 2, 30)))


def failure_of(traceback: str) -> str:
    """Return place and kind of the exception that a traceback ends with.

    The message is left out, because it often holds numbers that change from time to time.
    """
    place, kind = "", ""
    for line in traceback.splitlines():
        if line.lstrip().startswith('File "'):
            place, kind = line.strip(), ""
        elif not kind and line.strip() and not line.startswith((" ", "\t")):
            kind = line.partition(":")[0]  # what follows may be a message of many lines
    return f"{kind} at {place}"

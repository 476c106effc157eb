"""Batches made ahead of time, by background threads, so that the learner need not wait for them.

`produce` makes one batch: it draws from the replay manager, decodes, stacks, and copies to the
device (agent/run/threaded.py).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from ritornello.core.errors import Closed

T = TypeVar("T")

JOIN_TIMEOUT_S = 30.0  # a produce() that takes longer than this to return is stuck
MAX_DEPTH = 8
MAX_NEW_AGE_UPDATES = 10.0  # beyond this the cache gets shallower rather than deeper
WAITS_TOO_MUCH, WAITS_HARDLY = 0.02, 0.005  # shares of the time, of which fresher data are worth


class BatchCache(Generic[T]):
    """A bounded read-ahead of what `produce` returns. Thread-safe.

    At most `depth` batches are ready or in the making, so no batch is older than `depth` updates
    when it is used. Depth 0 has no threads: `get` calls `produce` itself.
    """

    def __init__(self, produce: Callable[[], T | None], depth: int, threads: int = 1) -> None:
        """Start the threads; with depth 0 there are none.

        Args:
          produce: returns a batch, or None for "nothing yet, ask again". It must return within
            seconds (give its waits a timeout), or `close` cannot end its thread. With several
            threads, all of them call it at once.
          depth: number of batches that are ready or in the making.
          threads: number of threads that make batches.
        """
        self._produce = produce
        self.depth = depth
        self._lock = threading.Lock()
        self._ready_or_failed = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._ready: deque[T] = deque()
        self._in_the_making = 0
        self._closed = False
        self.error: BaseException | None = None  # that has ended a thread; get() raises it
        self._stats = _Stats(time.monotonic())
        self._threads = [
            # Daemons only so that a crash of the main thread can end the program: whatever they
            # raise is raised again by get().
            threading.Thread(target=self._work, name=f"cache-{i}", daemon=True)
            for i in range(threads if depth else 0)
        ]
        for thread in self._threads:
            thread.start()

    def get(self, timeout_s: float) -> T | None:
        """Return the oldest batch; None if there is none within `timeout_s` seconds.

        Raises:
          Closed: after `close`, or if `produce` raised it.
          BaseException: whatever else `produce` raised, with its own traceback.
        """
        asked_at = time.monotonic()
        deadline = asked_at + timeout_s
        if not self._threads:
            return self._get_synchronously(asked_at, deadline)
        with self._lock:
            ready = len(self._ready)
            while not (self._ready or self._closed or self.error):
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    self._stats.waited(time.monotonic() - asked_at)
                    return None
                self._ready_or_failed.wait(remaining_s)
            if self.error is not None:
                raise self.error
            if self._closed:
                raise Closed("the batch cache is closed.")
            self._stats.got(ready, time.monotonic() - asked_at)
            self._room.notify()
            return self._ready.popleft()

    def _get_synchronously(self, asked_at: float, deadline: float) -> T | None:
        while True:
            if self._closed:
                raise Closed("the batch cache is closed.")
            batch = self._produce()
            if batch is not None or time.monotonic() >= deadline:
                break
        waited_s = time.monotonic() - asked_at
        with self._lock:
            if batch is None:
                self._stats.waited(waited_s)
            else:
                self._stats.got(0, waited_s)
        return batch

    def set_depth(self, depth: int) -> None:
        """Change the depth, to at least 1, of a cache that was built with threads.

        Batches that are ready stay so even if they are now too many.
        """
        with self._lock:
            self.depth = depth
            self._room.notify_all()

    def stats(self) -> dict[str, float]:
        """Return metrics over the time since the last call (or since the start).

        * `cache/wait_s`: seconds that `get` waited; `cache/wait_fraction`: their share of the time.
        * `cache/fill`: mean number of ready batches when `get` was called; absent if it was not.
        * `cache/depth`: the present depth.
        * `cache/waits`: how often no batch was ready, counted from the start.
        """
        with self._lock:
            now = time.monotonic()
            figures = self._stats.figures(now)
            figures["cache/depth"] = float(self.depth)
            self._stats = _Stats(now, self._stats.waits)
            return figures

    def close(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """Drop what is ready, end the threads and wait for them. Idempotent.

        Raises:
          TimeoutError: if a thread does not end, because `produce` does not return.
        """
        with self._lock:
            self._closed = True
            self._ready.clear()
            self._room.notify_all()
            self._ready_or_failed.notify_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        stuck = [thread.name for thread in self._threads if thread.is_alive()]
        if stuck:
            raise TimeoutError(
                f"{', '.join(stuck)} did not end within {timeout_s:g} s: "
                "a batch in the making does not return."
            )

    def _work(self) -> None:
        while self._reserve():
            batch: T | None = None
            try:
                batch = self._produce()
            except BaseException as error:  # not swallowed: get() raises it again
                with self._lock:
                    self.error = self.error or error
            with self._lock:
                self._in_the_making -= 1
                if batch is not None and not self._closed:
                    self._ready.append(batch)
                self._room.notify()
                self._ready_or_failed.notify_all()

    def _reserve(self) -> bool:
        """Wait until another batch may be made; False when it is time to end."""
        with self._lock:
            while not (self._closed or self.error):
                if len(self._ready) + self._in_the_making < self.depth:
                    self._in_the_making += 1
                    return True
                self._room.wait()
            return False


class _Stats:
    """Sums since the time `since`. The cache locks."""

    def __init__(self, since: float, waits: int = 0) -> None:
        self._since = since
        self.waits = waits
        self._gets = 0
        self._ready = 0
        self._wait_s = 0.0

    def got(self, ready: int, waited_s: float) -> None:
        self._gets += 1
        self._ready += ready
        self.waits += ready == 0
        self._wait_s += waited_s

    def waited(self, waited_s: float) -> None:
        self._wait_s += waited_s  # the same wait goes on, and is counted when it ends

    def figures(self, now: float) -> dict[str, float]:
        figures = {
            "cache/wait_s": self._wait_s,
            "cache/waits": float(self.waits),
            "cache/wait_fraction": min(1.0, self._wait_s / max(now - self._since, 1e-9)),
        }
        if self._gets:
            figures["cache/fill"] = self._ready / self._gets
        return figures


def next_depth(depth: int, wait_fraction: float, fill: float, age: float) -> int:
    """Return how deep a cache should be from now on: as shallow as keeps the learner busy.

    Depth evens out batches that take longer than others; its price is that each batch gets older.
    The result is at most one step from the present depth, and at most MAX_DEPTH.

    Args:
      depth: present depth.
      wait_fraction: share of the time in which the learner waited for batches.
      fill: mean number of batches that were ready when the learner asked.
      age: age of new unrolls when they are learned from, in updates.
    """
    change = 0
    if age > MAX_NEW_AGE_UPDATES:
        change = -1
    elif wait_fraction > WAITS_TOO_MUCH and fill > 0.1 * depth:
        # A cache that is always empty would stay so at any depth: production is too slow.
        change = 1
    elif wait_fraction < WAITS_HARDLY and fill > 0.75 * depth:
        change = -1
    return min(MAX_DEPTH, max(1, depth + change))

"""A thread that writes, so that nothing which is written to can stop or slow the training.

A terminal that is frozen (Ctrl-S) or closed, a full disk or a hanging file server blocks or fails a
write. Training therefore never writes itself: it submits, to a queue of limited length, and goes
on. What the queue cannot take is dropped and counted.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from logging.handlers import QueueHandler

from ritornello.core.episode import EpisodeEnd
from ritornello.metrics.record import Record
from ritornello.metrics.sinks import Sink

log = logging.getLogger(__name__)

Action = Callable[[], object]


class OutputThread:
    """Runs actions one after the other. Any thread may submit them; `submit` never raises."""

    def __init__(self, name: str, capacity: int = 10_000) -> None:
        """Start the thread; if `capacity` actions wait, further ones are dropped.

        `name` is the name of the output, for messages.
        """
        self.name = name
        self.dropped = 0  # actions that found no room
        self._capacity = capacity
        self._waiting: deque[Action] = deque()
        self._changed = threading.Condition()
        self._submitted = self._done = 0
        self._closed = False
        # A daemon: if a write never returns, the program must be able to end without it.
        self._thread = threading.Thread(target=self._work, name=f"output-{name}", daemon=True)
        self._thread.start()

    def submit(self, action: Action, patience_s: float = 0.0) -> bool:
        """Run an action soon; wait `patience_s` for room, and return False if it was dropped.

        An exception of the action on the thread is logged, and has no other effect.
        """

        def is_full() -> bool:
            return len(self._waiting) >= self._capacity

        with self._changed:
            self._changed.wait_for(lambda: self._closed or not is_full(), patience_s)
            if self._closed or is_full():
                self.dropped += 1
                return False
            self._waiting.append(action)
            self._submitted += 1
            self._changed.notify_all()
            return True

    @property
    def undone(self) -> int:
        """Actions that found no room, or are still waiting."""
        with self._changed:
            return self.dropped + self._submitted - self._done

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was submitted so far is done; return whether it is, in time."""
        with self._changed:
            goal = self._submitted
            return self._changed.wait_for(lambda: self._done >= goal, timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Take no more, finish what waits, end the thread; return whether it ended in time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                action = self._waiting.popleft()
            try:
                action()
            except BaseException as error:  # rich raises SystemExit where a pipe is broken
                log.debug("while writing to %s: %r", self.name, error)
            with self._changed:
                self._done += 1
                self._changed.notify_all()


class BackgroundSink(Sink):
    """A sink behind an output thread: records and games are written there, in their order.

    The first failure is logged, in words. After it a sink that `gives_up`, such as a terminal that
    was closed, is closed for good. Another, such as a file on a full disk, is tried again with each
    record, and the number of failures is logged at the end: a buffer below it may have kept what
    the disk refused, and have written it later.
    """

    def __init__(
        self, sink: Sink, thread: OutputThread, *, gives_up: bool, patience_s: float = 0.0
    ) -> None:
        """Own `sink`, whose methods are called on `thread` only.

        `gives_up` says whether the first failure ends all writing. `patience_s` is how long `write`
        and `episode` may wait for room before they drop.
        """
        self.failures = 0  # writes that were tried; `OutputThread` counts what found no room
        self._sink = sink
        self._thread = thread
        self._gives_up = gives_up
        self._patience_s = patience_s
        self._off = False

    def write(self, record: Record) -> None:
        """Have a record written soon."""
        self._thread.submit(partial(self._try, "write", record), self._patience_s)

    def episode(self, end: EpisodeEnd, at: Record) -> None:
        """Have a game written soon."""
        self._thread.submit(partial(self._try, "episode", end, at), self._patience_s)

    def flush(self) -> None:
        """Have everything brought to the disk soon; `OutputThread.flush` waits for it."""
        self._thread.submit(partial(self._try, "flush"))

    def close(self) -> None:
        """Have the sink closed after all that waits, and say how often it failed."""
        self._thread.submit(self._close, self._patience_s)

    def _try(self, method: str, *what: object) -> None:
        is_left_out = method != "write" and not hasattr(self._sink, method)
        if self._off or is_left_out:
            return
        try:
            getattr(self._sink, method)(*what)
        except BaseException as error:  # rich raises SystemExit where a pipe is broken
            self.failures += 1
            self._off = self._gives_up
            if self.failures == 1:
                more = "it is left alone from now on" if self._gives_up else "it is tried again"
                is_of_system = isinstance(error, OSError)
                said = error if is_of_system else f"{type(error).__name__}: {error}"
                text = "%s cannot be written to (%s): training goes on, %s"
                log.warning(text, self._thread.name, said, more)
                if not is_of_system:
                    log.debug("traceback", exc_info=error)

    def _close(self) -> None:
        with contextlib.suppress(BaseException):
            self._sink.close()
        if self.failures:
            text = "%s: writes that failed: %d; records or games may be missing"
            log.warning(text, self._thread.name, self.failures)


class BackgroundHandler(QueueHandler):
    """Hands log records to another handler on an output thread.

    Their text is made at once (`QueueHandler.prepare`), as their arguments may change.
    """

    def __init__(self, handler: logging.Handler, thread: OutputThread, *, gives_up: bool) -> None:
        """Own `handler`; level and filters are asked here, its formatter on the thread.

        `gives_up` says whether the first failure ends all writing.
        """
        super().__init__(queue=None)  # type: ignore[arg-type]  # the thread is the queue
        self.setLevel(handler.level)
        self._handler = handler
        self._thread = thread
        self._gives_up = gives_up
        self._off = False
        # What goes wrong is dealt with here, and not printed to a terminal that may be the cause.
        handler.handleError = _raise_again  # type: ignore[method-assign]

    def enqueue(self, record: logging.LogRecord) -> None:
        """Have a log record written soon."""
        self._thread.submit(partial(self._try, record))

    def close(self) -> None:
        """Have the handler closed after all that waits."""
        self._thread.submit(self._handler.close)
        super().close()

    def _try(self, record: logging.LogRecord) -> None:
        try:
            if not self._off:
                self._handler.handle(record)
        except BaseException:  # said by the sink that writes to the same place
            self._off = self._gives_up


def _raise_again(record: logging.LogRecord) -> None:
    raise  # noqa: PLE0704  (called from within an except clause)

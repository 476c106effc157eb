"""WorkerChannel: the ring of a worker plus a pipe for small typed messages.

The pipe also announces the death of a worker. A process that dies, for whatever reason, closes its
end. `multiprocessing.connection.wait` over the pipes of all workers therefore reports messages and
deaths in one call. Processes share no lock, so no process can die while it holds one.

    worker                                    learner
    slot = end.wait_for_slot(timeout_s)
    ... writes end.ring.block(slot) ...
    end.send_ready(slot, ...)                 channel.poll() -> [Ready(slot, ...)]
                                              block = channel.ring.take(slot) ... copy ...
                                              channel.free(slot)

Every message is small enough to enter the pipe at once or not at all, so a worker that is stopped
in the middle of a send never leaves half a message, for whose rest the learner would wait. A block
in which very many games ended is therefore announced in several messages. The learner never waits
in a send: it sends at most S messages that are not yet read (S slots), of a few hundred bytes each.

Next to read: replay/buffer.py, which keeps the unrolls.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import operator
import select
import time
from dataclasses import astuple, dataclass, replace
from multiprocessing.connection import Connection

from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import Closed, TransportError
from ritornello.transport.ring import SlotState, UnrollRing

# Below 8 kB, the smallest buffer of such a pipe that is in use (macOS): never half sent.
GAMES_PER_MESSAGE = 100  # 4.4 kB
MAX_LAST_WORDS = 6_000  # characters, of which nearly all take one byte


@dataclass(frozen=True)
class WorkerStats:
    """How a worker spent its time since its previous block."""

    steps: int = 0  # agent steps, all environments
    total_s: float = 0.0
    env_s: float = 0.0  # stepping the environments
    act_s: float = 0.0  # choosing actions
    wait_s: float = 0.0  # waiting for a free slot: the learner is the bottleneck

    def __add__(self, other: WorkerStats) -> WorkerStats:
        return WorkerStats(*map(operator.add, astuple(self), astuple(other)))


# Worker to learner.


@dataclass(frozen=True)
class Games:
    """Games that ended in the block of the next `Ready`, which has no room for them."""

    episodes: tuple[EpisodeEnd, ...]


@dataclass(frozen=True)
class Ready:
    """A block is complete and READY in the ring."""

    slot: int
    episodes: tuple[EpisodeEnd, ...] = ()  # whole games that ended in this block
    stats: WorkerStats = WorkerStats()


@dataclass(frozen=True)
class Failed:
    """The message of a worker that is about to exit because of an exception."""

    traceback: str


@dataclass(frozen=True)
class Report:
    """A line for the log, with its level, or metrics by name; of no block."""

    content: tuple[int, str] | dict[str, float]


# Learner to worker.


@dataclass(frozen=True)
class Free:
    """A slot is FREE again (the state is in the ring; this message wakes the waiting worker)."""

    slot: int


@dataclass(frozen=True)
class Stop:
    """The request to finish: the next `wait_for_slot` raises Closed."""


ToLearner = Ready | Failed  # as `poll` returns them
ToWorker = Free | Stop


class WorkerEnd:
    """The worker's side, for one thread. Every call raises Closed once the learner is gone."""

    def __init__(self, ring: UnrollRing, connection: Connection) -> None:
        """Made by `WorkerChannel.open`; travels to the worker as an argument of its `Process`."""
        self.ring = ring
        self.waited_s = 0.0  # seconds spent waiting for free slots since start
        self._connection = connection
        self._stopped = False

    def wait_for_slot(self, timeout_s: float) -> int | None:
        """Take a free slot for writing.

        Returns:
          The slot, now WRITING, or None if none became free in time.

        Raises:
          Closed: the learner asked this worker to stop, or died.
        """
        began = time.monotonic()
        try:
            while True:
                self._read_messages()
                slot = self.ring.acquire()
                if slot is not None:
                    return slot
                remaining_s = began + timeout_s - time.monotonic()
                if remaining_s <= 0:
                    return None
                # A slot freed since `acquire` has left its message, so this returns at once.
                self._connection.poll(remaining_s)
        except (EOFError, OSError) as error:
            raise Closed("the learner process is gone.") from error
        finally:
            self.waited_s += time.monotonic() - began

    def check_open(self) -> None:
        """Raise Closed if the learner asked this worker to stop, or died; take no slot."""
        try:
            self._read_messages()
        except (EOFError, OSError) as error:
            raise Closed("the learner process is gone.") from error

    def send_ready(
        self,
        slot: int,
        episodes: tuple[EpisodeEnd, ...] = (),
        stats: WorkerStats = WorkerStats(),
    ) -> None:
        """Commit a block, then announce it, so that an announced block is always complete."""
        self.ring.commit(slot)
        while len(episodes) > GAMES_PER_MESSAGE:
            self._send(Games(episodes[:GAMES_PER_MESSAGE]))
            episodes = episodes[GAMES_PER_MESSAGE:]
        self._send(Ready(slot, tuple(episodes), stats))

    def send_failed(self, traceback: str) -> None:
        """Report the exception that ends this worker."""
        self._send(Failed(traceback))

    def send_report(self, content: tuple[int, str] | dict[str, float]) -> None:
        """Send a line of the log or metrics; drop them where the pipe has no room."""
        with contextlib.suppress(OSError, ValueError):  # the learner is gone: `check_open` says so
            if select.select([], [self._connection], [], 0)[1]:  # so much that PIPE_BUF bytes fit
                self._connection.send(Report(content))

    def close(self) -> None:
        """Close this process's copy of the worker's end. Idempotent.

        The parent must call it right after `process.start()`. As long as the parent holds a copy,
        the death of the worker does not show as an end of file.
        """
        self._connection.close()

    def _read_messages(self) -> None:
        while self._connection.poll(0):
            message: ToWorker = self._connection.recv()
            self._stopped |= isinstance(message, Stop)
        if self._stopped:
            raise Closed("the learner asked this worker to stop.")

    def _send(self, message: ToLearner | Games) -> None:
        try:
            self._connection.send(message)
        except OSError as error:
            raise Closed("the learner process is gone.") from error


class WorkerChannel:
    """The learner's side: one ring for the whole run, and one pipe for each life of the worker.

    Not thread-safe, except for `stop`. The ingest thread polls, takes and frees.
    """

    def __init__(self, ring: UnrollRing) -> None:
        """Make a channel without a worker; `open` makes the first pipe."""
        self.ring = ring
        self.ended = True  # the other end is closed, and all its messages have been read
        self._connection: Connection | None = None
        self._games: tuple[EpisodeEnd, ...] = ()  # of the block that is announced next
        self.reports: list[tuple[int, str] | dict[str, float]] = []  # for their reader to take away

    def open(self) -> WorkerEnd:
        """Make a fresh pipe, for the first start and for each restart of the worker.

        Usage: `end = channel.open(); process = Process(args=(end,)); process.start(); end.close()`.
        """
        if not self.ended:
            raise TransportError("the pipe of a living worker cannot be replaced: stop it first.")
        if left := self.ring.count(SlotState.WRITING, SlotState.READY):
            raise TransportError(
                f"{left} slots still belong to the dead worker: call ring.reclaim() first, or they "
                "would stay lost."
            )
        self.close()
        self._connection, workers = multiprocessing.Pipe(duplex=True)
        self.ended = False
        self._games = ()
        return WorkerEnd(self.ring, workers)

    @property
    def connection(self) -> Connection:
        """The connection for `multiprocessing.connection.wait`; do not use it if `ended`."""
        if self._connection is None:
            raise TransportError("the channel has no pipe: call open() first.")
        return self._connection

    def poll(self) -> list[ToLearner]:
        """Return the messages that have arrived, without waiting.

        Messages that a worker sent before it died are still delivered. After that, `ended` is true.
        """
        messages: list[ToLearner] = []
        if self.ended:
            return messages
        try:
            while self.connection.poll(0):
                message: ToLearner | Games | Report = self.connection.recv()
                if isinstance(message, Report):
                    self.reports.append(message.content)
                    continue
                if isinstance(message, Games):
                    self._games += message.episodes
                    continue
                if isinstance(message, Ready):
                    message = replace(message, episodes=self._games + message.episodes)
                    self._games = ()
                messages.append(message)
        except (EOFError, OSError):  # OSError: it died in the middle of a message
            self.ended = True
        return messages

    def free(self, slot: int) -> None:
        """Release a slot that has been read and wake the worker."""
        self.ring.release(slot)
        self._send(Free(slot))

    def stop(self) -> None:
        """Ask the worker to finish; it raises Closed at its next `wait_for_slot`."""
        self._send(Stop())

    def close(self) -> None:
        """Close the pipe. A living worker sees the end of file and leaves. Idempotent."""
        self.ended = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, message: ToWorker) -> None:
        if self.ended:
            return
        # If it died just now, `poll` reports that, after its last messages.
        with contextlib.suppress(OSError):
            self.connection.send(message)


def last_words(traceback: str) -> str:
    """Shorten a traceback so that it can be sent; an error may contain a whole array as text."""
    if len(traceback) <= MAX_LAST_WORDS:
        return traceback
    half = MAX_LAST_WORDS // 2
    left_out = len(traceback) - 2 * half
    return f"{traceback[:half]}\n[... {left_out} characters left out ...]\n{traceback[-half:]}"

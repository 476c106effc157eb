"""Messages between a worker and the learner about the blocks in the worker's ring.

They go through a pipe, which also announces the death of a worker. A process that dies, for
whatever reason, closes its end. `multiprocessing.connection.wait` over the pipes of all workers
therefore reports messages and deaths in one call. Processes share no lock, so no process can die
while it holds one.

    worker: WorkerEnd                         learner: WorkerPlace (agent/pools/places.py)
    slot = end.wait_for_slot(timeout_s)
    ... writes end.ring.block(slot) ...
    end.send_ready(slot, ...)                 place.receive() -> [Ready(slot, ...)]
                                              block = place.ring.take(slot) ... copy ...
                                              place.free(slot)

Every message is small enough to enter the pipe at once or not at all, so a worker that is stopped
in the middle of a send never leaves half a message, for whose rest the learner would wait. A block
in which very many games ended is therefore announced in several messages. The learner never waits
in a send: it sends at most S messages that are not yet read (S slots), of a few hundred bytes each.

Next to read: replay/buffer.py, which keeps the unrolls.
"""

from __future__ import annotations

import contextlib
import operator
import select
import time
from dataclasses import astuple, dataclass
from multiprocessing.connection import Connection

from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import Closed
from ritornello.transport.ring import UnrollRing

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
    """The message of a process that is about to exit because of an exception."""

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


class WorkerEnd:
    """The worker's side, for one thread. Every call raises Closed once the learner is gone."""

    def __init__(self, ring: UnrollRing, connection: Connection) -> None:
        """Keep both, which come from the arguments of the process."""
        self.ring = ring
        self.waited_s = 0.0  # seconds spent waiting for free slots since start
        self._connection = connection
        self._stopped = False

    def wait_for_slot(self, timeout_s: float) -> int | None:
        """Take a free slot for writing.

        Returns:
          The slot, now WRITING, or None if none became free in time.

        Raises:
          Closed: if the learner asked this worker to stop, or died.
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
        """Send a line of the log or metrics; drop them if the pipe has no room."""
        with contextlib.suppress(OSError, ValueError):  # the learner is gone: `check_open` says so
            if select.select([], [self._connection], [], 0)[1]:  # so much that PIPE_BUF bytes fit
                self._connection.send(Report(content))

    def close(self) -> None:
        """Close the worker's end of the pipe. Idempotent."""
        self._connection.close()

    def _read_messages(self) -> None:
        while self._connection.poll(0):
            self._stopped |= isinstance(self._connection.recv(), Stop)
        if self._stopped:
            raise Closed("the learner asked this worker to stop.")

    def _send(self, message: Ready | Failed | Games) -> None:
        try:
            self._connection.send(message)
        except OSError as error:
            raise Closed("the learner process is gone.") from error


def last_words(traceback: str) -> str:
    """Shorten a traceback so that it can be sent; an error may contain a whole array as text."""
    if len(traceback) <= MAX_LAST_WORDS:
        return traceback
    half = MAX_LAST_WORDS // 2
    left_out = len(traceback) - 2 * half
    return f"{traceback[:half]}\n[... {left_out} characters left out ...]\n{traceback[-half:]}"

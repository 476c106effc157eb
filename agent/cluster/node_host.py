"""NodeHost: the workers of one machine, seen from far away. It knows no Ray.

    gateway                                      host, on any machine
    host.start()                                 compares programs, starts its thread
    host.set_weights(version, block)             board of this machine -> its workers
    host.take(acknowledged, ...)  <- Delivery -  blocks that its pool has made, compressed

It runs the process pool of a single machine unchanged (agent/pools/pool.py): rings, the board of
weights, restarts and the watch over silent workers. Weights reach a machine once, however many
workers it has.

A block stays here until a later `take` acknowledges it. An answer that was lost on its way can
therefore be asked for again, and nothing is lost or doubled as long as the host lives. If nobody
takes, its queue fills, then the rings, and then the workers wait.

Next to read: agent/cluster/hosts.py, which decides where hosts run.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ritornello.agent.acting.worker import WorkerConfig
from ritornello.agent.cluster.wire import (
    MAX_LINES,
    MAX_WORDS,
    Delivery,
    Fingerprint,
    HostReport,
    WireBlock,
    seal,
)
from ritornello.agent.pools.pool import ProcessPool
from ritornello.agent.pools.worker_pool import UnrollBlock, WorkerPool
from ritornello.core.errors import TransportError, WorkerDied
from ritornello.core.watched_time import WatchedTime
from ritornello.transport.channel import last_words
from ritornello.transport.weights import NO_VERSION, WeightBoard

QUEUE_BLOCKS = 2  # per worker, as in its ring
POLL_S = 0.2
GRACE_S = 3.0  # for workers to finish their unroll
JOIN_S = 30.0  # the thread looks up every POLL_S; beyond this it hangs
ABANDONED_S = 120.0  # a gateway that lives asks every few seconds


class Abandoned(WorkerDied):
    """Nobody has asked the host for anything for too long."""


@dataclass(frozen=True)
class HostTask:
    """What a host is to do. Plain and picklable."""

    epoch: int
    workers: tuple[WorkerConfig, ...]
    slots: int  # blocks in the ring of each worker
    max_restarts: int  # of workers, within an hour
    worker_timeout_s: float
    weights_nbytes: int
    fingerprint: Fingerprint | None  # of the learner; None: it cannot be another one
    abandoned_s: float = ABANDONED_S  # it ends if nobody has taken anything for so long

    def make_pool(self, board: WeightBoard) -> WorkerPool:
        """Return the pool that the host runs, not started.

        Args:
          board: where its workers find weights.
        """
        return ProcessPool(
            list(self.workers),
            board,
            slots=self.slots,
            max_restarts=self.max_restarts,
            worker_timeout_s=self.worker_timeout_s,
        )


class NodeHost:
    """Runs the workers of one machine in a thread of its own.

    `take` may be called by one thread at a time, and `set_weights` by another. The pool is started,
    polled and stopped by the host's thread alone, which lives as long as the host: processes that
    were started by a thread may be ended by the system when that thread ends.
    """

    def __init__(
        self,
        task: HostTask,
        make_pool: Callable[[HostTask, WeightBoard], WorkerPool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Allocate the board; nothing runs before `start`.

        Args:
          task: what to do.
          make_pool: makes the pool that is run; None: the task does.
          clock: monotonic clock, in seconds; the silence of the gateway is measured by it.
        """
        self._task = task
        self._make_pool = make_pool or type(task).make_pool
        self._board = WeightBoard(task.weights_nbytes)
        self._limit = QUEUE_BLOCKS * len(task.workers)
        self._blocks: deque[WireBlock] = deque()  # not yet acknowledged, numbers without gap
        self._number = 0  # of the next block
        self._changed = threading.Condition()  # guards what is written by several threads
        self._said: deque[str] = deque(maxlen=MAX_LINES)
        self._stats: dict[str, float] = {}
        self._failure = ""
        self._was_abandoned = False
        self._watched = WatchedTime(clock)  # a machine that slept takes nobody for silent
        self._stopping = False
        self._taken_at = self._watched()
        self._thread = threading.Thread(target=self._run, name=f"host-{task.epoch}", daemon=True)

    def start(self) -> str:
        """Start the host's thread; the workers begin as soon as they have weights.

        May be called again, by a conductor that the first answer did not reach.

        Returns:
          Why this machine cannot take part, in words; empty if it does.
        """
        if self._task.fingerprint is not None:
            differences = self._task.fingerprint.differences(Fingerprint.own())
            if differences:
                return "it has " + "; ".join(differences)
        self._taken_at = self._watched()
        if self._thread.ident is None:
            self._thread.start()
        return ""

    def set_weights(self, version: int, block: Any) -> int:
        """Show weights to the workers; older ones than those shown are left out.

        Args:
          version: learner updates in them.
          block: [weights_nbytes] uint8.

        Returns:
          The version that the workers see now.

        Raises:
          TransportError: if they are of another model.
        """
        weights = np.frombuffer(block, np.uint8) if isinstance(block, bytes) else block
        if weights.shape != (self._board.nbytes,) or weights.dtype != np.uint8:
            raise TransportError(
                f"weights are {weights.dtype} {weights.shape}, expected uint8 "
                f"({self._board.nbytes},): the learner has another model."
            )
        if version > self._board.version:
            with self._board.write(version) as half:
                half[...] = weights
            with self._changed:
                self._changed.notify_all()
        return self._board.version

    def take(self, acknowledged: int, max_blocks: int, timeout_s: float) -> Delivery:
        """Return the oldest blocks that were not acknowledged, waiting for the first of them.

        Asked twice with the same number it returns the same blocks, so an answer that was lost can
        be asked for again.

        Args:
          acknowledged: all blocks before this number have arrived, and are forgotten.
          max_blocks: how many to return at most; 0: only the report is wanted.
          timeout_s: how long to wait for a block.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._taken_at = self._watched()
            while self._blocks and self._blocks[0].number < acknowledged:
                self._blocks.popleft()
            self._changed.notify_all()
            while max_blocks and not self._blocks and not self._failure and not self._stopping:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            self._taken_at = self._watched()
            blocks = tuple(self._blocks)[:max_blocks]
            return Delivery(self._task.epoch, blocks, self._report())

    def _report(self) -> HostReport:
        said = tuple(self._said)
        self._said.clear()
        stats = self._stats
        return HostReport(
            alive=int(stats.get("workers/alive", 0)),
            restarts=int(stats.get("workers/restarts", 0)),
            hung=int(stats.get("workers/hung", 0)),
            lost_unrolls=int(stats.get("workers/lost_unrolls", 0)),
            queued=len(self._blocks),
            said=said,
            failure="" if self._blocks else self._failure,  # all that it has made comes first
            was_abandoned=self._was_abandoned,
        )

    def stop(self) -> None:
        """End the workers and the thread. May be called twice, and before `start`.

        Raises:
          TimeoutError: if the thread does not end.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)
            if self._thread.is_alive():
                raise TimeoutError(f"the thread of a host did not end within {JOIN_S:g} s.")
        self._board.close()

    # --- the host's thread -----------------------------------------------------------------------

    def _run(self) -> None:
        told = _Told(self._said)
        log = logging.getLogger("ritornello.agent.pools")
        log.addHandler(told)
        try:
            self._play()
        except WorkerDied as error:
            self._was_abandoned = isinstance(error, Abandoned)
            self._fail(str(error))
        except BaseException as error:
            self._fail("".join(traceback.format_exception(error)))
        finally:
            log.removeHandler(told)

    def _fail(self, words: str) -> None:
        with self._changed:
            self._failure = last_words(words)
            self._stats = {**self._stats, "workers/alive": 0.0}
            self._changed.notify_all()

    def _play(self) -> None:
        # Without weights the workers would act at random, in the name of no version.
        if not self._wait_while(lambda: self._board.version == NO_VERSION):
            return
        pool = self._make_pool(self._task, self._board)
        try:
            pool.start()
            while self._wait_while(lambda: len(self._blocks) >= self._limit):
                blocks = pool.poll(POLL_S)
                for block in blocks:
                    if self._wait_while(lambda: len(self._blocks) >= self._limit):
                        self._queue(block)
                self._stats = pool.stats()
        finally:
            pool.stop(GRACE_S)

    def _queue(self, block: UnrollBlock) -> None:
        sealed = seal(
            self._task.epoch, self._number, block.worker_id, block.records, block.episodes,
            block.stats,
        )  # fmt: skip
        block.release()
        with self._changed:
            self._number += 1
            self._blocks.append(sealed)
            self._changed.notify_all()

    def _wait_while(self, must_wait: Callable[[], bool]) -> bool:
        """Wait until there is no need to; return False if the host is to end instead.

        Raises:
          Abandoned: if nobody wants what is played here.
        """
        with self._changed:
            while not self._stopping:
                silent_s = self._watched() - self._taken_at
                if silent_s > self._task.abandoned_s:
                    raise Abandoned(
                        f"nobody has asked this host for anything for {silent_s:.0f} s: the "
                        "gateway is gone, or was stopped for so long."
                    )
                if not must_wait():
                    return True
                self._changed.wait(POLL_S)
        return False


class _Told(logging.Handler):
    """Keeps what the pool of one host logs, for the user at the other end."""

    def __init__(self, said: deque[str]) -> None:
        super().__init__(logging.WARNING)
        self._said = said
        self._owner = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._owner:  # other hosts may live in this process
            text = record.getMessage()
            self._said.append(text if len(text) <= MAX_WORDS else last_words(text))

"""WorkerPool: the seam where one process, many, and many machines are interchangeable.

`SerialPool` (agent/pools/serial_pool.py) runs rollouts in the caller's thread, `ProcessPool`
(agent/pools/pool.py) in processes, and `GatewayPool` (agent/cluster/gateway_pool.py) on other
machines. Code that takes a `WorkerPool` knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ritornello.core.episode import EpisodeEnd
from ritornello.core.unroll import Record
from ritornello.transport.channel import WorkerStats


@dataclass(frozen=True)
class UnrollBlock:
    """One unroll of each environment of one worker. Read-only and valid until `release()`."""

    worker_id: int
    records: Record  # [E, nbytes] uint8
    episodes: tuple[EpisodeEnd, ...]  # whole games that ended in it
    stats: WorkerStats
    release: Callable[[], None]


@dataclass(frozen=True)
class ProcessRow:
    """One process of a pool, for a table that people look at."""

    part: str  # part of the run: "workers", "server" or "evaluation"
    number: int  # number of the worker
    life: int  # 0, and 1 more for each time that it was replaced
    pid: int | None  # None: there is no process at present
    doing: str
    silent_s: float  # since its last sign of life, as far as somebody has looked
    unrolls: int  # received in this life


@runtime_checkable
class HasProcesses(Protocol):
    """A pool that can say more of its processes than lines for the user."""

    def processes(self) -> list[ProcessRow]:
        """Return a row for each process; any thread may ask at any time."""


class WorkerPool(Protocol):
    """Where experience comes from.

    One thread owns it: `start`, `poll`, the blocks' `release`, and `stop` must not overlap, though
    they may be called by different threads one after the other (the main thread starts it, the
    ingest thread polls it, and when that has ended the main thread stops it). What only reports
    (`stats`, `describe`) may be asked by any thread at any time.
    """

    def start(self) -> None:
        """Start all workers."""

    def poll(self, timeout_s: float) -> list[UnrollBlock]:
        """Return the blocks that are ready, waiting at most `timeout_s` for the first.

        Call it again and again: a pool also looks after its workers here.

        Raises:
          WorkerDied: if experience has ended for good; it carries the last cause.
        """

    def stats(self) -> dict[str, float]:
        """Return metrics by name, all beginning with workers/."""

    def describe(self) -> list[str]:
        """Return a line for each process: what it does, and for how long."""

    def stop(self, grace_s: float) -> None:
        """Stop all workers, which have `grace_s` to finish, and free their memory.

        May be called twice.
        """

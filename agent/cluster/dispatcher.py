"""Dispatcher: keeps every worker of a cluster busy, and replaces those that fail.

    worker   an actor that the cluster places wherever there is room, also hours later
    calls    two `collect` per worker are out or wait to be handed on, so that it never idles
    weights  the newest version is shared once; the cluster brings it to each machine once

These two calls bound every queue: if the learner stands still, everything waits, and nothing is
dropped. A worker whose machine died is placed anew at once. One that failed by itself, or was
silent for too long, is replaced within the limits of agent/pools/restarts.py.

Next to read: agent/cluster/gateway.py, which runs it in a process of its own.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ritornello.agent.acting.config import WorkerConfig
from ritornello.agent.cluster.remote_worker import Greeting, PackedBlock, differences
from ritornello.agent.pools.restarts import RestartLimit, failure_of
from ritornello.core.errors import PlatformError, WorkerDied
from ritornello.transport.weights import NO_VERSION, WeightBoard

if TYPE_CHECKING:
    from ritornello.agent.cluster.ray_cluster import RayCluster

log = logging.getLogger(__name__)

CALLS = 2  # of each worker that are out, or whose blocks wait
MAX_GAP_S = 5.0  # a longer absence of this process is not counted as silence of the workers
STARTUP_FACTOR, MIN_STARTUP_S = 5.0, 600.0  # building environments takes longer than an unroll
REFUSED_S = 60.0  # before a machine with another program is tried again
RETRY_S = 1.0  # before a worker that answered no more is placed anew; twice as long each time
RETRY_DOUBLINGS = 6  # at most, so about a minute
MIN_WEIGHTS_S = 0.05
WEIGHTS_BYTES_PER_S = 50e6  # of the network, for all machines together


class WorkerLost(PlatformError):
    """The actor of a worker answers no more, through no fault of its own."""


class WorkerFailed(PlatformError):
    """A worker raised an exception, of which this is the traceback, or has ended by itself."""


class ClusterLost(PlatformError):
    """The cluster itself is gone, or does not let this program in."""


@dataclass
class WorkerSlot:
    """The place of one worker, with its present actor."""

    config: WorkerConfig
    actor: Any = None  # None: there is none at present
    starts: int = 0
    start_at: float = 0.0  # when the next actor is due
    greeting: Any = None  # the first call, until it is answered
    machine: str = ""  # where it runs; empty: the cluster has no room for it yet
    calls: deque[Any] = field(default_factory=deque)  # `collect`, oldest first
    waiting: int = 0  # its blocks that wait to be handed on
    has_played: bool = False  # whether this actor has sent a block
    silent_s: float = 0.0  # since its last answer, while a call is out
    losses: int = 0  # actors in a row that were lost before they sent a block

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"worker {self.config.worker_id}" + (f" on {self.machine}" if self.machine else "")


class Dispatcher:
    """Used by one thread, which calls `step` again and again and empties `blocks`."""

    def __init__(
        self,
        cluster: RayCluster,
        board: WeightBoard,
        workers: Sequence[WorkerConfig],
        *,
        max_restarts: int,
        worker_timeout_s: float,
        life: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start nothing; `step` does.

        Args:
          cluster: runs the workers.
          board: where the newest weights are.
          workers: settings of all workers.
          max_restarts: limit on the workers that failed within an hour and are replaced.
          worker_timeout_s: silence after which a worker is replaced; 0: never.
          life: number of the gateway's life; workers of different lives play different games.
          clock: monotonic clock, in seconds.
        """
        self.blocks: deque[tuple[WorkerSlot, PackedBlock]] = deque()  # to be handed on
        self.counts: Counter[str] = Counter()  # restarts, hung, lost_unrolls, bytes_in, weights
        self.slots = [WorkerSlot(config) for config in workers]
        self._cluster = cluster
        self._board = board
        self._limit = RestartLimit(max_restarts, len(workers))
        self._max_restarts = max_restarts
        self._timeout_s = worker_timeout_s
        self._life = life
        self._clock = clock
        self._seen_at = clock()
        self._weights = np.zeros(board.nbytes, np.uint8)
        self._version = NO_VERSION
        self._shared: Any = None
        self._weights_at = -np.inf
        self._refused_since = np.inf  # when the first one was, while none took part

    def step(self, timeout_s: float) -> None:
        """Do what is due, then wait for an answer of any worker at most `timeout_s`.

        Raises:
          WorkerDied: if workers have failed too often, or no machine can take part.
        """
        self._share_weights()
        for slot in self.slots:
            self._start(slot)
            self._ask(slot)
        calls = [
            call for slot in self.slots for call in (slot.greeting, *list(slot.calls)[:1]) if call
        ]
        ready = self._cluster.wait(calls, timeout_s)
        for slot in self.slots:
            self._hear(slot, ready)
        self._look_for_silence()

    def hand_on(self) -> None:
        """Note that the oldest block was handed on: its worker may be asked for more."""
        slot, _ = self.blocks.popleft()
        slot.waiting -= 1
        self._limit.book_progress()

    @property
    def machines(self) -> set[str]:
        """The machines on which workers run."""
        return {slot.machine for slot in self.slots if slot.machine}

    def alive(self) -> int:
        """Return the number of workers that run."""
        return sum(bool(slot.machine) for slot in self.slots)

    def waiting_for_room(self) -> int:
        """Return the number of workers for which no machine has had room so far."""
        return sum(slot.greeting is not None for slot in self.slots)

    # --- asking ----------------------------------------------------------------------------------

    def _share_weights(self) -> None:
        """Share the newest weights, unless the network is still busy with the last ones."""
        pause_s = len(self.machines) * self._board.nbytes / WEIGHTS_BYTES_PER_S
        if self._clock() - self._weights_at < max(MIN_WEIGHTS_S, pause_s):
            return
        version = self._board.read_if_newer(self._version, self._weights)
        if version is not None:
            self._version, self._weights_at = version, self._clock()
            self._shared = self._cluster.share(self._weights)
            self.counts["weights"] += 1

    def _start(self, slot: WorkerSlot) -> None:
        if slot.actor is not None or self._clock() < slot.start_at:
            return
        config = slot.config
        if self._life or slot.starts:  # the very first plays what a run without a cluster would
            config = replace(config, launch=(self._life, slot.starts))
        slot.starts += 1
        slot.has_played, slot.silent_s = False, 0.0
        slot.actor = self._cluster.start(config)
        slot.greeting = self._cluster.call(slot.actor, "greet")

    def _ask(self, slot: WorkerSlot) -> None:
        # Without weights it would act at random, in the name of no version.
        if not slot.machine or self._version == NO_VERSION:
            return
        while len(slot.calls) + slot.waiting < CALLS:
            call = self._cluster.call(slot.actor, "collect", self._version, self._shared)
            slot.calls.append(call)

    # --- hearing ---------------------------------------------------------------------------------

    def _hear(self, slot: WorkerSlot, ready: set[Any]) -> None:
        """Handle the oldest answer of a worker, if it has come."""
        call = slot.greeting or (slot.calls[0] if slot.calls else None)
        if call is None or call not in ready:
            return
        slot.silent_s = 0.0
        try:
            answer = self._cluster.result(call)
        except WorkerLost as error:
            delay_s = RETRY_S * 2 ** min(slot.losses, RETRY_DOUBLINGS)
            log.warning("%s is placed anew in %g s: %s", slot.name, delay_s, error)
            slot.losses += 1
            self._drop(slot, delay_s)
        except WorkerFailed as error:
            self._fail(slot, str(error), failure_of(str(error)))
        else:
            self._take_in(slot, answer)

    def _take_in(self, slot: WorkerSlot, answer: Greeting | PackedBlock) -> None:
        if isinstance(answer, Greeting):
            self._greet(slot, answer)
            return
        slot.calls.popleft()
        slot.has_played, slot.losses = True, 0
        slot.waiting += 1
        self.counts["bytes_in"] += answer.nbytes
        self.blocks.append((slot, answer))

    def _greet(self, slot: WorkerSlot, greeting: Greeting) -> None:
        """Let a worker take part if its machine has the same program."""
        slot.greeting, slot.machine = None, greeting.machine
        words = differences(greeting.program)
        if not words:
            return
        text = f"{greeting.machine} cannot take part: it has {words}"
        self._drop(slot, REFUSED_S)
        if not self.machines and not any(s.has_played for s in self.slots):
            self._refused_since = min(self._refused_since, self._clock())
            is_late = self._clock() - self._refused_since >= REFUSED_S
            if is_late or not self.waiting_for_room():  # else another machine may still answer
                raise WorkerDied(f"no machine of the cluster runs this program: {text}")
        log.warning("%s", text)

    def _look_for_silence(self) -> None:
        """Replace workers that hang; those for which there is no room yet are not silent."""
        now = self._clock()
        passed_s, self._seen_at = min(now - self._seen_at, MAX_GAP_S), now
        for slot in self.slots:
            if not slot.calls or not self._timeout_s:
                continue
            slot.silent_s += passed_s
            limit_s = self._timeout_s
            if not slot.has_played:
                limit_s = max(MIN_STARTUP_S, STARTUP_FACTOR * limit_s)
            if slot.silent_s >= limit_s:
                self.counts["hung"] += 1
                words = f"gave no sign of life for {slot.silent_s:.0f} s (--worker_timeout)"
                self._fail(slot, words, "silence")

    # --- replacing -------------------------------------------------------------------------------

    def _drop(self, slot: WorkerSlot, delay_s: float = 0.0) -> None:
        """Forget a worker's actor; its successor is due after `delay_s`."""
        self.counts["lost_unrolls"] += len(slot.calls) * slot.config.num_envs
        self._cluster.kill(slot.actor)
        slot.actor, slot.greeting, slot.machine = None, None, ""
        slot.calls.clear()
        slot.start_at = self._clock() + delay_s

    def _fail(self, slot: WorkerSlot, words: str, failure: str) -> None:
        """Replace a worker that failed by itself, unless that happens too often."""
        name, now = slot.name, self._clock()
        verdict = self._limit.book_death(f"worker {slot.config.worker_id}", failure, now)
        if verdict.reason_to_give_up:
            raise WorkerDied(f"{name} failed: {words}\n{verdict.reason_to_give_up}; giving up.")
        self.counts["restarts"] += 1
        log.warning(
            "%s failed: %s\nrestarting in %g s (%d of %d in an hour)",
            name, words, verdict.delay_s, verdict.recent, self._max_restarts,
        )  # fmt: skip
        self._drop(slot, verdict.delay_s)

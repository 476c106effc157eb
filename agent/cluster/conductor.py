"""Conductor: keeps hosts on all machines, takes their blocks in order, and sends them weights.

    blocks   one `take` per host is out at a time; the next one acknowledges what came
    weights  newest version to each host, once per version and host, one call out at a time
    hosts    launched, watched and given up by the books of agent/cluster/hosts.py

The next `take` for blocks of a host leaves when all of its last ones have been handed on. Thus
every stage is bounded (one delivery per host here, some blocks per worker there), nothing is
dropped, and blocks of a host cannot overtake each other. While the learner stands still, hosts are
asked for their reports only.

A host that is gone loses the blocks that it had not delivered: at most what its queue and the rings
of its workers held. Its seats go to a new host with another epoch. What the old one may still send
is refused and counted.

Next to read: agent/cluster/gateway.py, which runs it in a process of its own.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ritornello.agent.cluster.engine import Engine, HostError, HostGone, HostUnavailable
from ritornello.agent.cluster.host_line import HostLine, Totals
from ritornello.agent.cluster.hosts import GONE_S, HostEntry, HostLedger, Launch
from ritornello.agent.cluster.node_host import HostTask
from ritornello.agent.cluster.wire import Delivery, HostReport, WireBlock
from ritornello.agent.pools.restarts import RestartLimit, failure_of_pool
from ritornello.core.errors import TransportError, WorkerDied
from ritornello.core.watched_time import WatchedTime
from ritornello.transport.weights import NO_VERSION, WeightBoard

log = logging.getLogger(__name__)

MAX_BLOCKS = 8  # per delivery
TAKE_S = 1.0  # how long a host waits for its first block
NODES_S = 2.0  # between two looks at the machines
REPORT_S = 2.0  # between two questions to a host whose blocks nobody can take
RETRY_S = 1.0  # before a host that did not answer is asked again
MIN_WEIGHTS_S = 0.05
WEIGHTS_SHARE = 0.2  # of the time may be spent with sending weights
MAX_WEIGHTS_S = 10.0  # ... but a machine that was frozen gets new ones after so long
MAX_ZOMBIE_CALLS = 1000  # of hosts that were given up, which may still be answered


class Conductor:
    """Used by one thread, which calls `step` again and again and empties `blocks`."""

    def __init__(
        self,
        engine: Engine,
        board: WeightBoard,
        make_task: Callable[[Launch], HostTask],
        worker_count: int,
        *,
        max_restarts: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start nothing; `step` does.

        Args:
          engine: runs the hosts.
          board: where the newest weights are.
          make_task: says what a host is to do.
          worker_count: number of workers on all machines together.
          max_restarts: how many hosts that failed by themselves are replaced within an hour.
          clock: monotonic clock, in seconds.
        """
        self.blocks: deque[tuple[HostLine, WireBlock]] = deque()
        self.totals = Totals()
        self.ledger = HostLedger(worker_count)
        self._engine = engine
        self._board = board
        self._make_task = make_task
        self._limit = RestartLimit(max_restarts, 1)
        self._clock = WatchedTime(clock)  # nobody is silent while this process does not run
        self._lines: dict[int, HostLine] = {}
        self._zombie_calls: dict[Any, str] = {}  # takes of hosts that were given up
        self._refusals: list[str] = []
        self._nodes_at = -math.inf
        self._weights = np.zeros(board.nbytes, np.uint8)
        self._version = NO_VERSION
        self._shared: Any = None
        self._weights_at = -math.inf  # when weights were put last

    def step(self, timeout_s: float) -> None:
        """Do what is due, then wait for an answer of any host at most `timeout_s`.

        Raises:
          EngineLost: the cluster is gone.
          WorkerDied: hosts have failed too often, or no machine can take part.
        """
        now = self._clock()
        if now - self._nodes_at >= NODES_S:
            self._nodes_at = now
            self._look_at_nodes(now)
        self._launch_due(now)
        self._read_weights(now)
        for line in list(self._lines.values()):
            self._ask(line, now)
        calls = [
            call
            for line in self._lines.values()
            for call in (line.start, line.take, line.weights)
            if call is not None
        ]
        for call in self._engine.wait([*calls, *self._zombie_calls], timeout_s):
            self._hear(call)
        self._look_for_silence()

    def next_block(self) -> WireBlock | None:
        """Return the oldest block that is to be handed on; `hand_on` follows."""
        return self.blocks[0][1] if self.blocks else None

    def hand_on(self) -> None:
        """The oldest block has been handed on: its host may be asked for more."""
        line, _ = self.blocks.popleft()
        line.waiting -= 1
        self._limit.book_progress()

    def refuse_block(self, why: str) -> None:
        """The oldest block is not what it should be: its host cannot be trusted any more.

        Raises:
          WorkerDied: if that has happened too often.
        """
        line = self.blocks[0][0]
        kept = deque(pair for pair in self.blocks if pair[0] is not line)
        self.totals.blocks_refused += len(self.blocks) - len(kept)
        self.blocks = kept
        self._fail(line, why)

    # --- machines and hosts ----------------------------------------------------------------------

    def _look_at_nodes(self, now: float) -> None:
        # Everything that has arrived is read before a host is declared gone.
        nodes = self._engine.nodes()
        lines = {entry.launch.epoch: entry for entry in self.ledger.see_nodes(nodes, now)}
        for epoch, entry in lines.items():
            self._give_up(self._lines[epoch], f"{entry.launch.node.name} has left the cluster")
        if nodes and self._refusals and not self.ledger.can_have_workers:
            raise WorkerDied(
                "no machine of the cluster can take part: " + "; ".join(self._refusals[-3:])
            )

    def _launch_due(self, now: float) -> None:
        for launch in self.ledger.due(now):
            host = self._engine.launch(launch.node, self._make_task(launch))
            line = HostLine(launch, host, asked_at=now)
            line.start = self._engine.call(host, "start")
            self._lines[launch.epoch] = line

    def _give_up(self, line: HostLine, why: str) -> None:
        """Forget a host that is in the ledger no more; what it has delivered is kept."""
        del self._lines[line.launch.epoch]
        self.totals.bury(line.report)
        self.totals.hosts_lost += 1
        if line.take is not None and len(self._zombie_calls) < MAX_ZOMBIE_CALLS:
            self._zombie_calls[line.take] = line.name
        self._engine.end(line.host)
        log.warning("%s: %s; its %d workers are placed anew", line.name, why, line.seats)

    def _lose(self, line: HostLine, why: str) -> None:
        if line.launch.epoch in self._lines:
            self.ledger.lose(line.launch.epoch, self._clock())
            self._give_up(line, why)

    def _fail(self, line: HostLine, words: str) -> None:
        """A host has failed by itself: it is replaced, unless that happens too often."""
        if line.launch.epoch not in self._lines:
            return
        now = self._clock()
        self._limit.process_count = self.ledger.node_count
        who = line.launch.node.node_id
        verdict = self._limit.book_death(who, failure_of_pool(words), now)
        if verdict.reason_to_give_up:
            raise WorkerDied(f"{line.name} failed: {words}\n{verdict.reason_to_give_up}.")
        self.ledger.lose(line.launch.epoch, now, verdict.delay_s)
        self._give_up(line, f"failed: {words}")

    def _look_for_silence(self) -> None:
        now = self._clock()
        for entry in self.ledger.newly_silent(now):
            log.warning(
                "%s has not answered for %.0f s; the others go on without it. Given up after "
                "%.0f s", self._name(entry), now - entry.heard_at, GONE_S,
            )  # fmt: skip
        for entry in self.ledger.overdue(now):
            line = self._lines[entry.launch.epoch]
            self._lose(line, f"has not answered for {now - entry.heard_at:.0f} s")

    def _name(self, entry: HostEntry) -> str:
        return self._lines[entry.launch.epoch].name

    # --- asking ----------------------------------------------------------------------------------

    def _ask(self, line: HostLine, now: float) -> None:
        if now < line.retry_at:
            return
        if not line.has_begun:
            if line.start is None:  # its answer was lost
                line.start = self._engine.call(line.host, "start")
            return
        if line.sent_version < self._version and _takes_weights(line, now):
            line.sent_version, line.weights_at = self._version, now
            line.weights = self._engine.call(line.host, "set_weights", self._version, self._shared)
            self.totals.weights_sent += 1
            self.totals.weights_bytes += self._board.nbytes
        if line.take is not None:
            return
        if not line.waiting:
            line.take = self._engine.call(line.host, "take", line.next_number, MAX_BLOCKS, TAKE_S)
        elif now - line.asked_at >= REPORT_S:
            line.take = self._engine.call(line.host, "take", line.next_number, 0, 0.0)
        else:
            return
        line.asked_at = now

    def _read_weights(self, now: float) -> None:
        """Put the newest weights where hosts can fetch them, if one is to have them now."""
        newest, lines = self._board.version, self._lines.values()
        for line in lines:
            if line.seen_version < newest and line.stale_since is None:
                line.stale_since = now
        # Hosts behind one slow link are sent weights together, or they would fill it in turns.
        took_s = statistics.median_low([line.weights_s for line in lines] or [0.0])
        if now - self._weights_at < max(MIN_WEIGHTS_S, _pause_s(took_s)):
            return
        if not any(_takes_weights(line, now) for line in lines):
            return
        version = self._board.read_if_newer(self._version, self._weights)
        if version is not None:
            self._version, self._weights_at = version, now
            self._shared = self._engine.share(self._weights)

    # --- hearing ---------------------------------------------------------------------------------

    def _hear(self, call: Any) -> None:
        if call in self._zombie_calls:
            self._hear_zombie(call)
            return
        for line in self._lines.values():
            if call in (line.start, line.take, line.weights):
                break
        else:
            return  # of a host that was given up in this very step
        try:
            answer = self._engine.result(call)
        except HostUnavailable as error:
            log.info("%s: %s", line.name, error)
            line.retry_at = self._clock() + RETRY_S
            if call is line.weights:
                line.sent_version = line.seen_version
            line.answered(call)
            return
        except HostGone as error:
            line.answered(call)
            self._lose(line, str(error))
            return
        except HostError as error:
            line.answered(call)
            self._fail(line, str(error))
            return
        was_start, was_weights = call is line.start, call is line.weights
        line.answered(call)
        if was_start:
            self._begin(line, answer)
        elif was_weights:
            line.seen_version = int(answer)
            line.weights_s = self._clock() - line.weights_at
            is_stale = line.seen_version < self._board.version
            line.stale_since = line.weights_at if is_stale else None
        else:
            self._take_in(line, answer)

    def _begin(self, line: HostLine, refusal: str) -> None:
        self.ledger.heard(line.launch.epoch, self._clock())
        if refusal:
            words = f"{line.launch.node.name} is not used: {refusal}"
            self._refusals.append(words)
            self.ledger.refuse(line.launch.epoch)
            self._give_up(line, f"is not used: {refusal}")
            return
        line.has_begun = True
        log.info("%s runs %d workers", line.name, line.seats)

    def _take_in(self, line: HostLine, delivery: Delivery) -> None:
        """Check the order of a delivery and keep its blocks."""
        if self.ledger.heard(line.launch.epoch, self._clock()):
            log.warning("%s answers again", line.name)
        try:
            line.check_order(delivery)
        except TransportError as error:
            self.totals.blocks_refused += len(getattr(delivery, "blocks", ()))
            self._fail(line, str(error))
            return
        self.totals.messages += 1
        for block in delivery.blocks:
            self.totals.bytes_in += block.nbytes
            self.blocks.append((line, block))
            line.waiting += 1
            line.next_number += 1
        line.report = delivery.report
        for words in delivery.report.said:
            log.warning("%s: %s", line.name, words)
        if delivery.report.failure and delivery.report.was_abandoned:
            self._lose(line, f"has ended: {delivery.report.failure}")
        elif delivery.report.failure:
            self._fail(line, delivery.report.failure)

    def _hear_zombie(self, call: Any) -> None:
        """Count and drop what a host delivers that was given up."""
        name = self._zombie_calls.pop(call)
        try:
            delivery = self._engine.result(call)
        except (HostGone, HostUnavailable, HostError):
            return
        count = len(delivery.blocks) if isinstance(delivery, Delivery) else 1
        self.totals.blocks_refused += count
        log.warning("%s was given up and has thawed: %d blocks of it are refused", name, count)

    # --- reports ---------------------------------------------------------------------------------

    def reports(self) -> list[HostReport]:
        """Return the last report of every host that lives."""
        return [line.report for line in self._lines.values()]

    @property
    def newest_version(self) -> int:
        """The newest version of weights that any host can have."""
        return self._version

    def weights_age_s(self) -> float:
        """Return for how long there have been newer weights than the slowest host has."""
        since = [line.stale_since for line in self._lines.values() if line.stale_since is not None]
        return self._clock() - min(since) if since else 0.0

    def describe(self) -> list[str]:
        """Return a line for each host."""
        now = self._clock()
        lines = []
        for line in self._lines.values():
            entry = self.ledger.hosts[line.launch.epoch]
            heard_s = now - entry.heard_at
            lines.append(
                f"{line.name}: {entry.state.value}, {line.report.alive} of {line.seats} workers, "
                f"heard of {heard_s:.0f} s ago"
            )
        return lines


def _takes_weights(line: HostLine, now: float) -> bool:
    """Whether a host may be sent weights: it runs, has the last ones, and has had a pause."""
    had_pause = now >= line.weights_at + _pause_s(line.weights_s)
    return line.has_begun and line.weights is None and now >= line.retry_at and had_pause


def _pause_s(took_s: float) -> float:
    """Return how long after weights were sent the next ones may follow."""
    return min(MAX_WEIGHTS_S, took_s / WEIGHTS_SHARE)

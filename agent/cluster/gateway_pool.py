"""GatewayPool: the workers of a cluster as the learner sees them, and the process in between.

To the learner's process the gateway is one worker more: `ProcessPool` starts it, watches its pulse,
replaces it when it dies and ends it. Nothing of Ray is ever loaded here.

Next to read: agent/cluster/ray_cluster.py, the only file that knows Ray.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from ritornello.agent.cluster.gateway import FINAL, GatewayConfig, gateway_main
from ritornello.agent.pools.places import Entry, WorkerPlace
from ritornello.agent.pools.pool import ProcessPool
from ritornello.agent.pools.worker_pool import UnrollBlock
from ritornello.core.errors import WorkerDied
from ritornello.transport.channel import Report
from ritornello.transport.weights import WeightBoard

log = logging.getLogger(__name__)

MAX_SLOTS = 64
GATEWAY_TIMEOUT_S = 120.0  # it beats several times a second, whatever its workers do
CLOSE_S = 15.0  # to let the workers end
COUNTERS = ("workers/restarts", "workers/hung", "workers/lost_unrolls")


class GatewayPlace(WorkerPlace):
    """The gateway's place among the processes of a pool."""

    def __init__(self, *arguments: Any) -> None:
        """Allocate the ring; the arguments are those of `WorkerPlace`."""
        super().__init__(*arguments)
        self.life.name = "gateway"
        self.metrics: dict[str, float] = {}  # as the gateway sent them last
        self.before = dict.fromkeys(COUNTERS, 0.0)  # what gateways that are gone have counted

    def entry(self, board: WeightBoard) -> Entry:
        """Return the entry point of the process, and its arguments."""
        return gateway_main, (self.config, self.ring, board)

    def hear(self, report: Report) -> None:
        """Log a line of the gateway, or keep its metrics."""
        if isinstance(report.content, dict):
            self.metrics = report.content
        else:
            log.log(report.content[0], "%s", report.content[1])

    def bury(self) -> str:
        """Take back what a dead gateway has held; its counters are kept."""
        for name in COUNTERS:
            self.before[name] += self.metrics.get(name, 0.0)
        self.metrics = {}
        return super().bury()


class GatewayPool:
    """A WorkerPool on the machines of a cluster; see `WorkerPool` for who may call what."""

    def __init__(self, config: GatewayConfig, board: WeightBoard) -> None:
        """Allocate the shared memory; no process is started before `start`."""
        self._worker_count = len(config.workers)
        self._schema = config.schema()
        self._pool = ProcessPool(
            [config],  # type: ignore[list-item]  # it looks like a worker
            board,
            slots=ring_slots(self._worker_count),
            max_restarts=config.max_restarts,
            worker_timeout_s=GATEWAY_TIMEOUT_S,
            make_place=GatewayPlace,
        )
        self._place: GatewayPlace = self._pool.members[0]  # type: ignore[assignment]

    def start(self) -> None:
        """Start the gateway; its workers come as the cluster has room for them."""
        self._pool.start()

    def poll(self, timeout_s: float) -> list[UnrollBlock]:
        """Return ready blocks; see `ProcessPool.poll`.

        Raises:
          WorkerDied: if gateways died too often, or the same failure would come again.
        """
        blocks = self._pool.poll(timeout_s)
        if self._place.life.failure.startswith(FINAL):
            raise WorkerDied(self._place.life.failure)
        return [replace(block, worker_id=self._worker_of(block)) for block in blocks]

    def _worker_of(self, block: UnrollBlock) -> int:
        return int(self._schema.view(block.records, "worker_id")[0])

    def alive(self) -> int:
        """Return the number of workers that run on all machines."""
        return int(self._place.metrics.get("workers/alive", 0.0))

    def stats(self) -> dict[str, float]:
        """Return metrics by name, those of gateways before this one included."""
        metrics = dict(self._place.metrics)
        own = self._pool.stats()
        for name in COUNTERS:
            metrics[name] = metrics.get(name, 0.0) + self._place.before[name] + own[name]
        return {"workers/alive": 0.0, **metrics}

    def describe(self) -> list[str]:
        """Return a line for the gateway, and one for its workers."""
        machines = self._place.metrics.get("cluster/machines", 0.0)
        return [
            *self._pool.describe(),
            f"{self.alive()} of {self._worker_count} workers run, on {machines:.0f} machines",
        ]

    def stop(self, grace_s: float) -> None:
        """Ask the gateway to end everything that it has started, then force it."""
        if self._place.life.is_running and not self._place.metrics:
            self._place.life.process.terminate()  # Ray, while it comes up, hears nothing else
        self._pool.stop(max(grace_s, CLOSE_S))


def ring_slots(worker_count: int) -> int:
    """Return how many blocks the ring between gateway and learner holds."""
    return max(4, min(MAX_SLOTS, 2 * worker_count))

"""GatewayPool: the workers of a cluster as the learner sees them, and the process in between.

To the learner's process the gateway is one worker more: `ProcessPool` starts it, watches its pulse,
replaces it when it dies and ends it. Nothing of Ray is ever loaded here.

Next to read: agent/cluster/ray_engine.py, the only file that knows Ray.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

from ritornello.agent.cluster.gateway import FIGURES, FINAL, GatewayConfig, gateway_main
from ritornello.agent.cluster.reports import Reports
from ritornello.agent.pools.places import WorkerPlace
from ritornello.agent.pools.pool import ProcessPool
from ritornello.agent.pools.worker_pool import UnrollBlock
from ritornello.core import faults
from ritornello.core.errors import ConfigError, WorkerDied
from ritornello.core.warden import Warden
from ritornello.transport.channel import ToLearner
from ritornello.transport.mailbox import Mailbox
from ritornello.transport.weights import WeightBoard

log = logging.getLogger(__name__)

MAX_SLOTS = 64
GATEWAY_TIMEOUT_S = 120.0  # it beats several times a second, whatever its hosts do
CLOSE_S = 15.0  # to end what the engine has started
COUNTERS = (
    "workers/restarts",
    "workers/hung",
    "workers/lost_unrolls",
    "cluster/hosts_lost",
    "cluster/nodes_lost",
    "cluster/blocks_refused",
)


class GatewayPlace(WorkerPlace):
    """The gateway's place among the processes of a pool."""

    config: Any  # a GatewayConfig

    def __init__(
        self, config: Any, slots: int, mailbox: Mailbox | None, warden: Warden,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        """Allocate ring and figures; see `WorkerPlace`."""
        super().__init__(config, slots, mailbox, warden, clock)
        self.life.name = "gateway"
        self.reports = Reports(FIGURES)
        self._final_words = ""
        self.before: dict[str, float] = dict.fromkeys(COUNTERS, 0.0)  # of gateways that are gone

    def launch(self, board: WeightBoard) -> None:
        """Start a gateway, also in the place of one that died."""
        faults.at("pool.launch")
        end = self.channel.open()
        self.unrolls = 0
        try:
            reports_end = self.reports.open()
            with closing(reports_end.mouth):
                self.life.launch(gateway_main, (self.config, end, board, reports_end))
        except OSError:
            self.channel.close()
            raise
        finally:
            end.close()

    def receive(self) -> list[ToLearner]:
        """Return what has come, without waiting; log what the gateway says."""
        messages = super().receive()
        self.tell()
        return messages

    def tell(self) -> None:
        """Log what the gateway has said."""
        for level, text in self.reports.lines():
            log.log(level, "%s", text)

    @property
    def final_words(self) -> str:
        """Why no other gateway could do better; empty as long as one can."""
        return self.failure if self.failure.startswith(FINAL) else self._final_words

    def bury(self) -> str:
        """Take back what a gateway that is gone has held; its counters are kept."""
        self.tell()
        self._final_words = self.final_words
        figures = self.reports.figures.read()
        for name in COUNTERS:
            self.before[name] += figures[name]
        self.reports.figures.clear()
        return super().bury()

    def figures(self) -> dict[str, float]:
        """Return the numbers for a record, those of gateways before this one included."""
        figures = self.reports.figures.read()
        return {name: value + self.before.get(name, 0.0) for name, value in figures.items()}


class GatewayPool:
    """A WorkerPool on the machines of a cluster; see `WorkerPool` for who may call what."""

    def __init__(self, config: GatewayConfig, board: WeightBoard) -> None:
        """Allocate the shared memory; no process is started before `start`.

        Args:
          config: settings of the gateway.
          board: where the newest weights are.

        Raises:
          ConfigError: if the workers do not all have the same number of environments.
        """
        if len({worker.num_envs for worker in config.workers}) != 1:
            raise ConfigError("workers of a cluster need the same number of environments each.")
        self._config = config
        self._schema = config.schema()
        self._pool = ProcessPool(
            [replace(config)],  # type: ignore[list-item]  # it looks like a worker
            board,
            slots=ring_slots(len(config.workers)),
            max_restarts=config.max_restarts,
            worker_timeout_s=GATEWAY_TIMEOUT_S,
            make_place=GatewayPlace,
        )
        self._place: GatewayPlace = self._pool.members[0]  # type: ignore[assignment]

    def start(self) -> None:
        """Start the gateway; its hosts come as the cluster has room for them."""
        self._pool.start()

    def poll(self, timeout_s: float) -> list[UnrollBlock]:
        """Return ready blocks; see `ProcessPool.poll`.

        Raises:
          WorkerDied: gateways died too often, or what has failed would fail again.
        """
        blocks = self._pool.poll(timeout_s)
        self._place.tell()
        if self._place.final_words:
            raise WorkerDied(self._place.final_words)
        return [replace(block, worker_id=self._worker_of(block)) for block in blocks]

    def _worker_of(self, block: UnrollBlock) -> int:
        return int(self._schema.view(block.records, "worker_id")[0])

    def alive(self) -> int:
        """Return the number of workers that run on all machines."""
        return int(self._place.reports.figures.read()["workers/alive"])

    @property
    def restarts(self) -> int:
        """How often a worker or the gateway was replaced, since the start."""
        return int(self._place.figures()["workers/restarts"]) + self._pool.restarts

    def stats(self) -> dict[str, float]:
        """Return metrics by name."""
        own = self._pool.stats()
        figures = self._place.figures()
        for name in ("workers/restarts", "workers/hung", "workers/lost_unrolls"):
            figures[name] += own[name]
        return figures

    def describe(self) -> list[str]:
        """Return a line for the gateway, and one for its hosts."""
        figures = self._place.figures()
        return [
            *self._pool.describe(),
            f"{figures['workers/alive']:.0f} of {len(self._config.workers)} workers run, in "
            f"{figures['cluster/hosts']:.0f} hosts on {figures['cluster/nodes']:.0f} machines",
        ]

    def stop(self, grace_s: float) -> None:
        """Ask the gateway to end everything that it has started, then make it."""
        self._pool.stop(max(grace_s, CLOSE_S))
        self._place.tell()
        self._place.reports.close()


def ring_slots(worker_count: int) -> int:
    """Return how many blocks the ring between gateway and learner holds."""
    return max(4, min(MAX_SLOTS, 2 * worker_count))

"""The gateway's process: all workers of a cluster, which look to the learner like one worker.

It has a ring, a pipe and the board of weights like a worker process (agent/acting/worker.py), and
is the cluster's client on its other side. Ray replaces the signal handlers of its client, and ends
its process some time after the head of the cluster has died: it does so here, not to the learner.

Next to read: agent/cluster/gateway_pool.py, the learner's side.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING

from ritornello.agent.acting.config import WorkerConfig
from ritornello.agent.acting.worker import words_of
from ritornello.agent.cluster.dispatcher import Dispatcher
from ritornello.core.errors import Closed, PlatformError, WorkerDied
from ritornello.core.plain_data import cut
from ritornello.core.process_death import ignore_interrupts
from ritornello.core.unroll import UnrollSchema
from ritornello.transport.channel import WorkerEnd, last_words
from ritornello.transport.lifeline import LifelineEnd, Phase
from ritornello.transport.ring import UnrollRing
from ritornello.transport.weights import WeightBoard

if TYPE_CHECKING:
    from ritornello.agent.cluster.ray_cluster import RayCluster

STEP_S = 0.2  # at most, so that it looks up often
SLOT_S = 0.05
METRICS_S = 1.0
MAX_CHARACTERS = 900  # of a log line; a message must stay below the 4,096 bytes of PIPE_BUF
FINAL = "on all machines: "  # the last words of a gateway whose successor would fail as well


@dataclass(frozen=True)
class GatewayConfig:
    """All that the gateway needs to know; plain and picklable, as WorkerConfig is."""

    workers: tuple[WorkerConfig, ...]  # those of all machines together
    connect: Callable[[], RayCluster]  # called in the gateway's process
    max_restarts: int
    worker_timeout_s: float
    life: int = 0  # number of the gateway's life
    worker_id: int = 0  # it stands for all of them

    @property
    def num_envs(self) -> int:
        """E, environments of each worker."""
        return self.workers[0].num_envs

    def schema(self) -> UnrollSchema:
        """Return the schema of all unrolls."""
        return self.workers[0].schema()


def gateway_main(
    config: GatewayConfig,
    ring: UnrollRing,
    board: WeightBoard,
    connection: Connection,
    lifeline: LifelineEnd,
) -> None:
    """Entry point of the process. Returns when told to stop or when the learner is gone."""
    ignore_interrupts()
    lifeline.hold()
    end = WorkerEnd(ring, connection)
    _LogReports(end).log_here()
    cluster: RayCluster | None = None
    lifeline.pulse.beat(Phase.JOINING)
    try:
        cluster = config.connect()
        signal.signal(signal.SIGTERM, _leave)  # Ray has put its own in place
        dispatcher = Dispatcher(
            cluster,
            board,
            config.workers,
            max_restarts=config.max_restarts,
            worker_timeout_s=config.worker_timeout_s,
            life=config.life,
        )
        Gateway(end, dispatcher, lifeline.pulse.beat).run()
    except Closed:
        pass  # told to stop, or the learner's process is gone
    except BaseException as error:
        words = str(error) if isinstance(error, PlatformError) else words_of(error)
        with contextlib.suppress(Closed):
            end.send_failed(last_words(FINAL * isinstance(error, WorkerDied) + words))
        sys.exit(1)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it leaves; who cannot wait kills it
        lifeline.pulse.beat(Phase.CLOSING)
        if cluster is not None:
            cluster.close()
        end.close()


class _LogReports(logging.Handler):
    """Sends to the learner what this program logs in this process, INFO and above."""

    def __init__(self, end: WorkerEnd) -> None:
        super().__init__(logging.INFO)
        self._end = end

    def log_here(self) -> None:
        logger = logging.getLogger("ritornello.agent")
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self._end.send_report((record.levelno, cut(record.getMessage(), MAX_CHARACTERS)))


class Gateway:
    """The loop between a dispatcher and the learner's ring. One thread."""

    def __init__(
        self,
        end: WorkerEnd,
        dispatcher: Dispatcher,
        beat: Callable[[Phase], None],
    ) -> None:
        """Start nothing. `end` is the worker's side of the ring; `beat` is called each turn."""
        self._end = end
        self._dispatcher = dispatcher
        self._beat = beat
        self._slot: int | None = None
        self._seen = (time.monotonic(), time.process_time(), 0, 0)  # when metrics were sent last

    def run(self) -> None:
        """Run until the learner wants no more blocks.

        Raises:
          Closed: if the learner wants no more.
          WorkerDied: if too many workers have failed.
        """
        while True:
            self._beat(Phase.WAITING if self._dispatcher.blocks else Phase.GATHERING)
            self._end.check_open()
            self._dispatcher.step(0.0 if self._dispatcher.blocks else STEP_S)
            self._hand_over()
            if time.monotonic() - self._seen[0] >= METRICS_S:
                self._end.send_report(self._metrics())

    def _hand_over(self) -> None:
        """Write blocks into the learner's ring, as far as there is room."""
        while self._dispatcher.blocks:
            if self._slot is None:
                self._slot = self._end.wait_for_slot(SLOT_S)
            if self._slot is None:
                break
            _, block = self._dispatcher.blocks[0]
            block.unpack(self._end.ring.block(self._slot))
            self._end.send_ready(self._slot, block.episodes, block.stats)
            self._slot = None
            self._dispatcher.hand_on()

    def _metrics(self) -> dict[str, float]:
        dispatcher, counts = self._dispatcher, self._dispatcher.counts
        before = self._seen
        self._seen = (time.monotonic(), time.process_time(), counts["bytes_in"], counts["weights"])
        passed_s, cpu_s, bytes_in, weights = (
            now - past for now, past in zip(self._seen, before, strict=True)
        )
        return {
            "workers/alive": float(dispatcher.alive()),
            "workers/restarts": float(counts["restarts"]),
            "workers/hung": float(counts["hung"]),
            "workers/lost_unrolls": float(counts["lost_unrolls"]),
            "cluster/machines": float(len(dispatcher.machines)),
            "cluster/workers_without_room": float(dispatcher.waiting_for_room()),
            "cluster/bytes_in_per_s": bytes_in / passed_s,
            "cluster/weights_per_s": weights / passed_s,
            "cluster/gateway_cpu_fraction": cpu_s / passed_s,
        }


def _leave(number: int, frame: FrameType | None = None) -> None:
    """Leave as if the learner were gone: the cluster is left in order."""
    raise Closed("the gateway was asked to end.")

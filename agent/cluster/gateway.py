"""The gateway's process: all workers of a cluster, which look to the learner like one worker.

It has a ring, a pipe and the board of weights like a worker process (agent/acting/worker.py), and
an engine on its other side. What may happen to the engine's own process (Ray ends its driver, takes
its signals, keeps its threads) happens here and not to the learner.

Next to read: agent/cluster/gateway_pool.py, the learner's side.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType

from ritornello.agent.acting.worker import WorkerConfig, words_of
from ritornello.agent.cluster.conductor import Conductor
from ritornello.agent.cluster.engine import Engine
from ritornello.agent.cluster.hosts import HostState, Launch
from ritornello.agent.cluster.node_host import HostTask
from ritornello.agent.cluster.reports import Figures, ReportsEnd
from ritornello.agent.cluster.wire import Fingerprint, open_block
from ritornello.core.errors import Closed, PlatformError, TransportError, WorkerDied
from ritornello.core.process_death import ignore_interrupts
from ritornello.core.unroll import UnrollSchema
from ritornello.transport.channel import WorkerEnd, last_words
from ritornello.transport.lifeline import LifelineEnd
from ritornello.transport.pulse import Phase
from ritornello.transport.weights import WeightBoard

STEP_S = 0.2  # at most, so that it looks up often
SLOT_S = 0.05
FIGURES_S = 1.0
FINAL = "on all machines: "  # the last words of a gateway whose successor would fail as well
FIRST_LAUNCH = (0, 0)  # plays what a run without a cluster would

FIGURES = (
    "workers/alive",
    "workers/restarts",
    "workers/hung",
    "workers/lost_unrolls",
    "cluster/nodes",
    "cluster/hosts",
    "cluster/hosts_silent",
    "cluster/hosts_lost",
    "cluster/nodes_lost",
    "cluster/bytes_in_per_s",
    "cluster/messages_per_s",
    "cluster/weights_bytes_per_s",
    "cluster/weights_age_s",
    "cluster/blocks_queued",
    "cluster/blocks_refused",
    "cluster/gateway_cpu_fraction",
)


@dataclass(frozen=True)
class GatewayConfig:
    """All that the gateway needs to know; plain and picklable, as WorkerConfig is."""

    workers: tuple[WorkerConfig, ...]  # of all machines together
    make_engine: Callable[[], Engine]  # called in the gateway's process
    slots: int  # blocks in the ring of each worker, on its machine
    max_restarts: int
    worker_timeout_s: float
    weights_nbytes: int
    compares_programs: bool = True  # False: all hosts are on this machine, of the same files
    life: int = 0  # of the gateway
    worker_id: int = 0  # it stands for all of them
    fault_plan: tuple[()] = ()

    @property
    def num_envs(self) -> int:
        """E, environments of each worker."""
        return self.workers[0].num_envs

    def schema(self) -> UnrollSchema:
        """Return the schema of all unrolls."""
        return self.workers[0].schema()

    def task(self, launch: Launch) -> HostTask:
        """Return what a host is to do: its workers play games that nobody has played before."""
        number = (self.life, launch.epoch)
        seed_path: tuple[int, ...] = () if number == FIRST_LAUNCH else number
        workers = [self.workers[seat] for seat in launch.seats]
        return HostTask(
            epoch=launch.epoch,
            workers=tuple(replace(worker, launch=seed_path) for worker in workers),
            slots=self.slots,
            max_restarts=self.max_restarts,
            worker_timeout_s=self.worker_timeout_s,
            weights_nbytes=self.weights_nbytes,
            fingerprint=Fingerprint.own() if self.compares_programs else None,
        )


def gateway_main(
    config: GatewayConfig,
    end: WorkerEnd,
    board: WeightBoard,
    reports: ReportsEnd,
    lifeline: LifelineEnd,
) -> None:
    """Entry point of the process. Returns when told to stop or when the learner is gone."""
    ignore_interrupts()
    lifeline.hold()
    reports.log_here()
    engine: Engine | None = None
    try:
        engine = config.make_engine()
        signal.signal(signal.SIGTERM, _leave)  # an engine may have put its own in place
        conductor = Conductor(
            engine, board, config.task, len(config.workers), max_restarts=config.max_restarts
        )
        Gateway(config, end, board, conductor, reports.figures, lifeline.pulse.beat).run()
    except Closed:
        pass  # told to stop, or the learner's process is gone
    except BaseException as error:
        _say(end, error)
        sys.exit(1)
    finally:
        lifeline.pulse.beat(Phase.CLOSING)
        if engine is not None:
            engine.close()
        end.close()


class Gateway:
    """The loop between a conductor and the learner's ring. One thread."""

    def __init__(
        self,
        config: GatewayConfig,
        end: WorkerEnd,
        board: WeightBoard,
        conductor: Conductor,
        figures: Figures,
        beat: Callable[[Phase], None],
    ) -> None:
        """Start nothing.

        Args:
          config: settings.
          end: side of the ring and pipe on which a worker is.
          board: where the learner's weights are.
          conductor: has the hosts.
          figures: where numbers for records go.
          beat: is told that this process lives.
        """
        self._end = end
        self._board = board
        self._conductor = conductor
        self._figures = figures
        self._beat = beat
        self._schema = config.schema()
        self._slot: int | None = None
        self._seen = (time.monotonic(), time.process_time(), 0, 0, 0)

    def run(self) -> None:
        """Go on until the learner does not want any more.

        Raises:
          Closed: it does not.
          EngineLost, WorkerDied: there is nothing to go on with.
        """
        while True:
            self._beat(Phase.WAITING)
            self._end.check_open()
            waits = self._conductor.next_block() is not None
            self._conductor.step(0.0 if waits else STEP_S)
            self._hand_over()
            if time.monotonic() - self._seen[0] >= FIGURES_S:
                self._write_figures()

    def _hand_over(self) -> None:
        """Write blocks into the learner's ring, as far as there is room."""
        while True:
            block = self._conductor.next_block()
            if block is None:
                break
            if self._slot is None:
                self._slot = self._end.wait_for_slot(SLOT_S)
            if self._slot is None:
                break
            try:
                newest = self._conductor.newest_version
                open_block(block, self._schema, self._end.ring.block(self._slot), newest)
            except TransportError as error:
                self._conductor.refuse_block(str(error))
                continue
            self._end.send_ready(self._slot, block.episodes, block.stats)
            self._slot = None
            self._conductor.hand_on()

    def _write_figures(self) -> None:
        conductor, totals = self._conductor, self._conductor.totals
        reports, hosts = conductor.reports(), conductor.ledger.hosts.values()
        now, cpu = time.monotonic(), time.process_time()
        counts = (totals.bytes_in, totals.messages, totals.weights_bytes)
        before = self._seen
        passed_s = now - before[0]
        self._seen = (now, cpu, *counts)
        bytes_in, messages, weights_bytes = (
            (count - past) / passed_s for count, past in zip(counts, before[2:], strict=True)
        )
        self._figures.write(
            {
                "workers/alive": sum(report.alive for report in reports),
                "workers/restarts": totals.restarts + sum(r.restarts for r in reports),
                "workers/hung": totals.hung + sum(r.hung for r in reports),
                "workers/lost_unrolls": totals.lost_unrolls + sum(r.lost_unrolls for r in reports),
                "cluster/nodes": conductor.ledger.node_count,
                "cluster/hosts": len(hosts),
                "cluster/hosts_silent": sum(host.state is HostState.SILENT for host in hosts),
                "cluster/hosts_lost": totals.hosts_lost,
                "cluster/nodes_lost": conductor.ledger.nodes_lost,
                "cluster/bytes_in_per_s": bytes_in,
                "cluster/messages_per_s": messages,
                "cluster/weights_bytes_per_s": weights_bytes,
                "cluster/weights_age_s": conductor.weights_age_s(),
                "cluster/blocks_queued": sum(report.queued for report in reports),
                "cluster/blocks_refused": totals.blocks_refused,
                "cluster/gateway_cpu_fraction": (cpu - before[1]) / passed_s,
            }
        )


def _leave(number: int, frame: FrameType | None = None) -> None:
    """Leave as if the learner were gone: the engine is closed on the way."""
    raise Closed("the gateway was asked to end.")


def _say(end: WorkerEnd, error: BaseException) -> None:
    words = str(error) if isinstance(error, PlatformError) else words_of(error)
    if isinstance(error, WorkerDied):
        words = FINAL + words
    with contextlib.suppress(Closed):
        end.send_failed(last_words(words))

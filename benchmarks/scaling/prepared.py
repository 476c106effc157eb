"""Workers that play a few blocks of a real game and then send them again and again.

What they send has the size and the content of real unrolls, and costs them one copy. So what is
measured with them is the way from the workers to the learner and nothing else. They keep the rings,
pipes and processes of real workers, on one machine as in the hosts of a cluster.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from ritornello.agent.acting.worker import WorkerBody, WorkerConfig
from ritornello.agent.cluster.gateway import GatewayConfig
from ritornello.agent.cluster.hosts import Launch
from ritornello.agent.cluster.node_host import HostTask
from ritornello.agent.pools.places import WorkerPlace
from ritornello.agent.pools.pool import ProcessPool
from ritornello.core.errors import Closed
from ritornello.core.process_death import ignore_interrupts
from ritornello.transport.channel import WorkerEnd, WorkerStats
from ritornello.transport.lifeline import LifelineEnd
from ritornello.transport.pulse import Phase
from ritornello.transport.weights import NO_VERSION, WeightBoard

SKIPPED_BLOCKS = 4  # the first frames of a game are the same image again and again
PLAYED_BLOCKS = 4
SLOT_WAIT_S = 1.0
LOOK_S = 0.05


class PreparedPlace(WorkerPlace):
    """A worker's place whose process sends prepared blocks."""

    def __init__(self, *arguments: Any, blocks_per_s: float = 0.0) -> None:
        """Allocate the ring; see `WorkerPlace`."""
        super().__init__(*arguments)
        self._blocks_per_s = blocks_per_s

    def launch(self, board: WeightBoard) -> None:
        """Start a process, also in the place of one that died."""
        end = self.channel.open()
        self.unrolls = 0
        try:
            self.life.launch(prepared_main, (self.config, end, board, self._blocks_per_s))
        finally:
            end.close()


def prepared_main(
    config: WorkerConfig,
    end: WorkerEnd,
    board: WeightBoard,
    blocks_per_s: float,
    lifeline: LifelineEnd,
) -> None:
    """Entry point of the process: play, then repeat what was played.

    Args:
      config: of the worker that it stands for.
      end: its side of the ring.
      board: where weights are; it waits for the first ones.
      blocks_per_s: how many blocks to send in a second; 0: as many as are taken.
      lifeline: shows that it lives.
    """
    ignore_interrupts()
    parent = multiprocessing.parent_process()
    lifeline.hold(None if parent is None else parent.sentinel)
    torch.set_num_threads(1)
    beat = lifeline.pulse.beat
    try:
        _send_again_and_again(config, end, board, blocks_per_s, beat)
    except Closed:
        pass  # told to stop, or the learner's process is gone
    finally:
        end.close()


def _send_again_and_again(
    config: WorkerConfig,
    end: WorkerEnd,
    board: WeightBoard,
    blocks_per_s: float,
    beat: Callable[[Phase], None],
) -> None:
    never = threading.Event()
    while board.version == NO_VERSION:
        end.check_open()
        beat(Phase.WAITING)
        never.wait(LOOK_S)
    schema = config.schema()
    blocks = play(config, board, beat)
    steps = WorkerStats(steps=config.num_envs * schema.unroll_length)
    seq = 0
    # Each begins at another time, as workers that play do.
    due = time.monotonic() + config.worker_id * 0.618 % 1.0 / (blocks_per_s or 1.0)
    while True:
        beat(Phase.WAITING)
        slot = end.wait_for_slot(SLOT_WAIT_S)
        if slot is None:
            continue
        if blocks_per_s:
            never.wait(max(0.0, due - time.monotonic()))
            due = max(due, time.monotonic() - 1.0) + 1 / blocks_per_s
        block = end.ring.block(slot)
        block[...] = blocks[seq % len(blocks)]
        schema.view(block, "seq")[...] = seq
        seq += 1
        end.send_ready(slot, (), steps)


def play(
    config: WorkerConfig, board: WeightBoard, beat: Callable[[Phase], None]
) -> list[np.ndarray]:
    """Return blocks [E, nbytes] of real games."""
    body = WorkerBody(config, board, beat=beat)
    try:
        played = [config.schema().allocate(config.num_envs) for _ in range(PLAYED_BLOCKS)]
        for block in [*[played[0]] * SKIPPED_BLOCKS, *played]:
            body.collect(block)
    finally:
        body.close()
    return played


def prepared_pool(
    workers: list[WorkerConfig], board: WeightBoard, slots: int, blocks_per_s: float
) -> ProcessPool:
    """Return a pool of such workers, not started."""
    return ProcessPool(
        workers,
        board,
        slots=slots,
        max_restarts=0,
        make_place=partial(PreparedPlace, blocks_per_s=blocks_per_s),
    )


@dataclass(frozen=True)
class PreparedTask(HostTask):
    """A host of such workers."""

    blocks_per_s: float = 0.0

    def make_pool(self, board: WeightBoard) -> ProcessPool:
        """Return the pool that the host runs, not started."""
        return prepared_pool(list(self.workers), board, self.slots, self.blocks_per_s)


@dataclass(frozen=True)
class PreparedGateway(GatewayConfig):
    """A gateway to such hosts."""

    blocks_per_s: float = 0.0

    def task(self, launch: Launch) -> HostTask:
        """Return what a host is to do."""
        return PreparedTask(**vars(super().task(launch)), blocks_per_s=self.blocks_per_s)

"""SimPool: a `WorkerPool` of virtual workers around the real `WorkerBody` and the real rings.

A worker goes on by one small step per move, so that it can die or stand still between any two: it
builds its environments, takes a slot, fills it, commits it, says so. What it has said before it
died is still delivered, as from a pipe; what it had not is lost, and counted.
"""

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

import numpy as np

from ritornello.agent.acting.worker import WorkerBody
from ritornello.agent.pools.restarts import RestartLimit
from ritornello.agent.pools.worker_pool import UnrollBlock
from ritornello.core.errors import WorkerDied
from ritornello.transport.channel import Ready
from ritornello.transport.ring import SlotState, UnrollRing
from tests.simulated.world import Move


class Phase(Enum):
    """What a worker does next."""

    BUILD = "build"
    ACQUIRE = "acquire"
    FILL = "fill"
    COMMIT = "commit"
    SEND = "send"


@dataclass(frozen=True)
class SimBlock(UnrollBlock):
    """A block, and the life of the worker that filled it."""

    life: int


class VirtualWorker:
    """One worker's place: its ring, its pipe, and the body of the present life."""

    def __init__(self, config, slots):
        self.config = config
        self.schema = config.schema()
        self.ring = UnrollRing(slots, config.num_envs, self.schema.nbytes)
        self.pipe = deque()  # said and not yet read
        self.phase = Phase.BUILD
        self.slot = None
        self.report = None
        self.body = None
        self.is_dead = False
        self.cause = ""
        self.relaunch_at = None  # None: it lives, or is not buried yet
        self.stands_still_until = 0.0
        self.silent_since = None
        self.next_is_nan = False

    @property
    def name(self):
        return f"worker {self.config.worker_id}"

    def lives(self):
        return not self.is_dead and self.relaunch_at is None

    def can_act(self, now_s):
        if not self.lives() or now_s < self.stands_still_until:
            return False
        return self.phase is not Phase.ACQUIRE or self.ring.count(SlotState.FREE) > 0

    def die(self, cause):
        self.is_dead, self.cause = True, cause

    def close_body(self):
        body, self.body = self.body, None
        if body is not None:
            body.close()


class SimPool:
    """Virtual workers in one thread; see `WorkerPool`."""

    def __init__(self, configs, board, plan, world, checker):
        self._board = board
        self._plan = plan
        self._world = world
        self._checker = checker
        self.workers = [VirtualWorker(config, plan.slots) for config in configs]
        self._limit = RestartLimit(plan.max_restarts, len(configs))
        self._runs = False

    # --- WorkerPool ------------------------------------------------------------------------------

    def start(self):
        self._runs = True
        for worker in self.workers:
            self._checker.life_begins(worker.config)

    def poll(self, timeout_s):
        self._launch_due()
        blocks = []
        for worker in self.workers:
            self._look_after(worker)
            blocks += [self._block(worker, worker.pipe.popleft()) for _ in range(len(worker.pipe))]
            if worker.is_dead:
                self._bury(worker)
        return blocks

    def alive(self):
        return sum(worker.lives() for worker in self.workers)

    def stats(self):
        return {"workers/alive": float(self.alive())}

    def describe(self):
        return [f"{worker.name}: {worker.phase.value}" for worker in self.workers]

    def stop(self, grace_s):
        self._runs = False
        for worker in self.workers:
            worker.close_body()
            worker.ring.close()

    # --- moves -----------------------------------------------------------------------------------

    def moves(self):
        if not self._runs:
            return
        weights, now_s = self._plan.weights, self._world.now_s
        for index, worker in enumerate(self.workers):
            if worker.can_act(now_s):
                yield Move(
                    worker.name, f"{worker.phase.value} {index}", weights["worker"],
                    lambda w=worker: self._act(w),
                )  # fmt: skip
            if worker.lives():
                for name, harm in (("kill", self._kill), ("stall", self._stall), ("nan", _poison)):
                    yield Move(
                        worker.name, f"{name} {index}", weights[name], lambda w=worker, h=harm: h(w)
                    )

    def _act(self, worker):
        if worker.phase is Phase.BUILD:
            worker.body = WorkerBody(worker.config, self._board)
            worker.phase = Phase.ACQUIRE
        elif worker.phase is Phase.ACQUIRE:
            worker.slot = worker.ring.acquire()
            worker.phase = Phase.FILL
        elif worker.phase is Phase.FILL:
            self._fill(worker)
            worker.phase = Phase.COMMIT
        elif worker.phase is Phase.COMMIT:
            worker.ring.commit(worker.slot)
            worker.phase = Phase.SEND
        else:
            worker.pipe.append((worker.config.life, Ready(worker.slot, *worker.report)))
            worker.slot, worker.report, worker.phase = None, None, Phase.ACQUIRE

    def _fill(self, worker):
        block = worker.ring.block(worker.slot)
        worker.schema.poison(block)
        worker.report = worker.body.collect(block)
        if worker.next_is_nan:
            worker.next_is_nan = False
            worker.schema.view(block, "reward")[...] = np.nan

    def _kill(self, worker):
        worker.die("was killed")

    def _stall(self, worker):
        now_s = self._world.now_s
        worker.stands_still_until = now_s + self._world.chance.expovariate(1 / self._plan.stall_s)
        worker.silent_since = now_s

    # --- what a pool does ------------------------------------------------------------------------

    def _look_after(self, worker):
        """As the supervisor: a worker that has been silent for too long is killed."""
        if not worker.lives() or worker.silent_since is None:
            return
        now_s = self._world.now_s
        if now_s >= worker.stands_still_until:
            worker.silent_since = None
        elif now_s - worker.silent_since >= self._plan.worker_timeout_s:
            worker.die("gave no sign of life")

    def _block(self, worker, message):
        life, ready = message
        self._limit.book_progress()
        records = worker.ring.take(ready.slot)

        block = SimBlock(
            worker.config.worker_id,
            records,
            ready.episodes,
            ready.stats,
            partial(worker.ring.release, ready.slot),
            life,
        )
        self._checker.taken(block)
        return block

    def _bury(self, worker):
        worker.ring.reclaim()
        worker.close_body()
        worker.config = replace(worker.config, life=worker.config.life + 1)
        worker.phase, worker.slot, worker.report = Phase.BUILD, None, None
        worker.is_dead, worker.silent_since, worker.stands_still_until = False, None, 0.0
        verdict = self._limit.book_death(worker.name, worker.cause, self._world.now_s)
        if verdict.reason_to_give_up:
            raise WorkerDied(f"{worker.name} {worker.cause}. {verdict.reason_to_give_up}")
        worker.relaunch_at = self._world.now_s + verdict.delay_s

    def _launch_due(self):
        for worker in self.workers:
            if worker.relaunch_at is not None and self._world.now_s >= worker.relaunch_at:
                worker.relaunch_at = None
                self._checker.life_begins(worker.config)


def _poison(worker):
    worker.next_is_nan = True

"""Workers without processes, environments and models: each block follows from its numbers alone.

They keep the protocol of a WorkerPool, so hosts run them in the place of a ProcessPool.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field

import numpy as np

from ritornello.agent.cluster.engine import Node
from ritornello.agent.cluster.gateway import GatewayConfig
from ritornello.agent.cluster.node_host import NodeHost
from ritornello.agent.cluster.thread_engine import ThreadEngine
from ritornello.agent.pools.worker_pool import UnrollBlock
from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import WorkerDied
from ritornello.core.spec import EnvSpec
from ritornello.core.unroll import UnrollSchema
from ritornello.transport.channel import WorkerStats

SPEC = EnvSpec("Light-v0", (4,), "float32", 1, ("A", "B"), 1)
SCHEMA = UnrollSchema(SPEC, 3)
ENVS = 2
WEIGHTS_NBYTES = 256


@dataclass(frozen=True)
class PlayerConfig:
    """What a host and the gateway ask of a WorkerConfig."""

    worker_id: int
    life: int = 0
    num_envs: int = ENVS
    trouble: str = ""
    launch: tuple[int, ...] = ()

    def schema(self) -> UnrollSchema:
        return SCHEMA


def play(worker_id, life, seq, version, envs=ENVS, launch=()):
    """The block [envs, nbytes] that a worker makes as its `seq`-th."""
    rng = np.random.default_rng([worker_id, life, seq, *launch])
    records = rng.integers(0, 256, (envs, SCHEMA.nbytes), dtype=np.uint8)
    unroll = SCHEMA.unroll(records)
    unroll.worker_id[...], unroll.seq[...], unroll.version[...] = worker_id, seq, version
    unroll.env_id[...], unroll.task_id[...] = np.arange(envs), 0
    unroll.action[...] %= len(SPEC.action_meanings)
    unroll.last_action[...] %= len(SPEC.action_meanings)
    return records


@dataclass
class PlayerPool:
    """The workers of one host take turns; a poll gives one block of each."""

    task: object
    board: object
    seqs: dict = field(default_factory=dict)
    is_stopped: bool = False
    restarts = 0

    def start(self):
        self.seqs = {config.worker_id: 0 for config in self.task.workers}

    def poll(self, timeout_s):
        assert not self.is_stopped
        blocks = []
        for config in self.task.workers:
            if config.trouble:
                raise WorkerDied(config.trouble)
            worker, seq = config.worker_id, self.seqs[config.worker_id]
            self.seqs[worker] += 1
            records = play(worker, config.life, seq, self.board.version, launch=config.launch)
            ends = (EpisodeEnd(0, float(seq), 3, 3),) if seq % 2 else ()
            stats = WorkerStats(steps=records.shape[0] * 3)
            blocks.append(UnrollBlock(worker, records, ends, stats, lambda: None))
        return blocks

    def alive(self):
        return len(self.seqs)

    def stats(self):
        return {"workers/alive": float(self.alive())}

    def describe(self):
        return []

    def stop(self, grace_s):
        self.is_stopped = True


def player_host(task):
    return NodeHost(task, PlayerPool)


def config(worker_count=4, make_engine=None, **values):
    """Of a gateway whose workers are players."""
    defaults = {
        "workers": tuple(PlayerConfig(worker) for worker in range(worker_count)),
        "make_engine": make_engine,
        "slots": 2,
        "max_restarts": 3,
        "worker_timeout_s": 60.0,
        "weights_nbytes": WEIGHTS_NBYTES,
    }
    return GatewayConfig(**{**defaults, **values})


def machines(*limits):
    return [Node(f"n{index}", f"machine {index}", limit) for index, limit in enumerate(limits)]


def two_machines():
    """An engine, to be made in a gateway's process."""
    return ThreadEngine(machines(2, 2), player_host)


def free_seats(ledger):
    """How many workers no host has."""
    return ledger.worker_count - sum(len(host.launch.seats) for host in ledger.hosts.values())


class Clock:
    """A clock that goes forward when it is told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def digest(records):
    return hashlib.sha256(np.ascontiguousarray(records).tobytes()).hexdigest()


def threads_of_hosts():
    return [thread for thread in threading.enumerate() if thread.name.startswith("host-")]

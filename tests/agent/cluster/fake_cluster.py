"""A cluster without Ray, on a clock of its own, whose workers play no games.

Each block follows from its numbers alone, so that every one of them can be checked.
"""

import hashlib
import os
import signal
import sys
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import numpy as np

from ritornello.agent.cluster.dispatcher import WorkerFailed, WorkerLost
from ritornello.agent.cluster.gateway import GatewayConfig
from ritornello.agent.cluster.ray_cluster import RayCluster, RaySettings
from ritornello.agent.cluster.remote_worker import Greeting, own_program, pack
from ritornello.core.episode import EpisodeEnd
from ritornello.core.spec import EnvSpec
from ritornello.core.unroll import UnrollSchema
from ritornello.transport.channel import WorkerStats
from ritornello.transport.weights import WeightBoard
from tests.deadlines import wait_until

SPEC = EnvSpec("Light-v0", (4,), "float32", 1, ("A", "B"), 1)
SCHEMA = UnrollSchema(SPEC, 3)
ENVS = 2
WEIGHTS_NBYTES = 256


@dataclass(frozen=True)
class PlayerConfig:
    """What a dispatcher and a gateway ask of a WorkerConfig."""

    worker_id: int
    num_envs: int = ENVS
    launch: tuple[int, ...] = ()

    def schema(self):
        return SCHEMA


def play(config, seq, version):
    """The block [E, nbytes] that a worker makes as its `seq`-th."""
    rng = np.random.default_rng([config.worker_id, seq, *config.launch])
    records = rng.integers(0, 256, (config.num_envs, SCHEMA.nbytes), dtype=np.uint8)
    unroll = SCHEMA.unroll(records)
    unroll.worker_id[...], unroll.seq[...], unroll.version[...] = config.worker_id, seq, version
    return records


@dataclass
class Actor:
    config: PlayerConfig
    machine: str = ""
    seq: int = 0
    calls: deque = field(default_factory=deque)
    fate: Exception | None = None  # what its calls raise
    stalls: bool = False
    ends: bool = False


@dataclass(eq=False)
class Call:
    actor: Actor
    method: str
    arguments: tuple


class FakeCluster:
    def __init__(self, **machines):
        """Name -> number of workers that fit."""
        self.room, self.programs = dict(machines), {}
        self.actors, self.now, self.is_closed = [], 0.0, False

    def clock(self):
        return self.now

    def start(self, config):
        self.actors.append(Actor(config))
        return self.actors[-1]

    def actor(self, worker_id):
        """The actor of a worker at present."""
        return next(a for a in self.actors if a.config.worker_id == worker_id and not a.ends)

    def on(self, machine):
        return [a for a in self.actors if a.machine == machine and not a.ends]

    def lose(self, machine):
        del self.room[machine]
        for actor in self.on(machine):
            actor.fate = WorkerLost("its node has died")

    def call(self, actor, method, *arguments):
        return Call(actor, method, arguments)

    def wait(self, calls, timeout_s):
        for actor in [call.actor for call in calls if not call.actor.machine]:
            free = (name for name, room in self.room.items() if len(self.on(name)) < room)
            actor.machine = next(free, "")
        ready = {c for c in calls if c.actor.fate or (c.actor.machine and not c.actor.stalls)}
        self.now += 0.01 if ready else max(timeout_s, 0.01)
        return ready

    def result(self, call):
        actor = call.actor
        if actor.fate is not None:
            raise actor.fate
        if call.method == "greet":
            return Greeting(actor.machine, self.programs.get(actor.machine, own_program()))
        version, weights = call.arguments
        assert (weights == version).all()
        records, actor.seq = play(actor.config, actor.seq, version), actor.seq + 1
        ends = (EpisodeEnd(0, float(actor.seq), 3, 3),) if actor.seq % 2 else ()
        return pack(actor.config.worker_id, records, ends, WorkerStats(steps=ENVS * 3))

    def share(self, weights):
        return weights.copy()

    def kill(self, actor):
        actor.ends = True

    def close(self):
        self.is_closed = True


def two_machines():
    """To be made in a gateway's process."""
    return FakeCluster(a=2, b=2)


def one_that_comes_up_without_room(is_up):
    """It comes up as soon as there is a file `is_up`."""
    wait_until(is_up.exists)
    return FakeCluster()


def a_ray_that_fails_and_is_asked_to_end_as_it_leaves():
    """Connect to it as if it were Ray."""

    def fails(**arguments):
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))  # as Ray does
        raise RuntimeError("timed out")

    leaves = partial(os.kill, os.getpid(), signal.SIGTERM)
    sys.modules["ray"] = SimpleNamespace(init=fails, shutdown=leaves)
    return RayCluster(RaySettings("", 1, 0))


class TerminatedAsItCloses(FakeCluster):
    def __init__(self, note):
        """Write to the file `note` once it is closed."""
        super().__init__(a=2, b=2)
        self.note = note

    def close(self):
        os.kill(os.getpid(), signal.SIGTERM)
        self.note.write_text("closed")


def one_whose_workers_raise():
    cluster = FakeCluster(a=4)
    cluster.result = _raise
    return cluster


def _raise(call):
    raise WorkerFailed('Traceback\n  File "env.py", line 3, in step\nValueError: no 7')


def one_whose_workers_die():
    cluster = FakeCluster(a=4)
    cluster.result = _die
    return cluster


def _die(call):
    raise WorkerFailed("The actor died unexpectedly: pid 77, segmentation fault")


def board(version=0):
    made = WeightBoard(WEIGHTS_NBYTES)
    publish(made, version)
    return made


def publish(weights, version):
    with weights.write(version) as half:
        half[...] = version


def config(worker_count=4, connect=two_machines, **values):
    """Of a gateway whose workers are players."""
    workers = tuple(PlayerConfig(worker) for worker in range(worker_count))
    return GatewayConfig(
        workers, connect, **{"max_restarts": 3, "worker_timeout_s": 60.0, **values}
    )


def digest(record):
    return hashlib.sha256(np.ascontiguousarray(record)).hexdigest()

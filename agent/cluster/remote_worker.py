"""RemoteWorker: one worker as an actor of a cluster runs it, and the blocks that it sends.

It is the body of a worker process (agent/acting/worker.py) without ring and pipe: weights come as
an argument of `collect`, and a block of unrolls goes back as its result. Each record is compressed
as compressed replay keeps it (replay/codec.py): Atari frames get 20 to 50 times smaller, and bytes
are what limits a network. This file knows no Ray.

Next to read: agent/cluster/dispatcher.py, which calls it.
"""

from __future__ import annotations

import hashlib
import math
import platform
import socket
import time
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ritornello.agent.acting.config import WorkerConfig
from ritornello.agent.acting.worker import WorkerBody, prepare_process
from ritornello.core.episode import EpisodeEnd
from ritornello.core.project import PACKAGE
from ritornello.core.unroll import Record
from ritornello.replay.codec import decode, encode
from ritornello.transport.channel import WorkerStats
from ritornello.transport.weights import WeightBoard

# What runs in a worker; a difference there changes what is played, or how it is written down.
PACKAGES = ("core", "flags", "wrappers", "replay", "transport", "agent")
LIBRARIES = ("torch", "numpy", "gymnasium", "ale-py", "lz4")


@dataclass(frozen=True)
class PackedBlock:
    """One unroll of each environment of one worker, compressed."""

    worker_id: int
    payloads: tuple[bytes, ...]  # one for each of the E records
    episodes: tuple[EpisodeEnd, ...]  # games that ended in it
    stats: WorkerStats

    @property
    def nbytes(self) -> int:
        """Number of bytes of its payloads."""
        return sum(map(len, self.payloads))

    def unpack(self, into: Record) -> None:
        """Decompress into `[E, nbytes]` uint8, all of which is overwritten."""
        for record, payload in zip(into, self.payloads, strict=True):
            record[...] = decode(np.frombuffer(payload, np.uint8), "lz4")


def pack(
    worker_id: int, records: Record, episodes: tuple[EpisodeEnd, ...], stats: WorkerStats
) -> PackedBlock:
    """Return a block of `records` [E, nbytes] uint8 that shares no memory with them."""
    payloads = tuple(encode(record, "lz4").tobytes() for record in records)
    return PackedBlock(worker_id, payloads, episodes, stats)


class Greeting(NamedTuple):
    """The first answer of a worker that has been placed on a machine."""

    machine: str  # for people, such as a host name
    program: tuple[tuple[str, str], ...]  # part -> version or digest; see `own_program`


class RemoteWorker:
    """Collects unrolls when asked. Called by one thread."""

    def __init__(self, config: WorkerConfig, weights_nbytes: int) -> None:
        """Build nothing before the first `collect`; its weights have `weights_nbytes` bytes."""
        self._config = config
        self._board = WeightBoard(weights_nbytes)
        self._body: WorkerBody | None = None
        self._block: Record | None = None
        self._waited_s = 0.0  # between calls: the learner is the bottleneck
        self._returned_at = math.inf

    def greet(self) -> Greeting:
        """Return which machine this is, and which program it has."""
        return Greeting(socket.gethostname(), own_program())

    def collect(self, version: int, weights: NDArray[np.uint8]) -> PackedBlock:
        """Act for one unroll in each environment, with weights [weights_nbytes] uint8."""
        if version > self._board.version:
            with self._board.write(version) as half:
                half[...] = weights
        if self._body is None or self._block is None:
            prepare_process(self._config)
            self._body = WorkerBody(self._config, self._board)
            self._block = self._config.schema().allocate(self._config.num_envs)
        self._waited_s += max(0.0, time.monotonic() - self._returned_at)
        episodes, stats = self._body.collect(self._block, self._waited_s)
        packed = pack(self._config.worker_id, self._block, episodes, stats)
        self._returned_at = time.monotonic()
        return packed

    def close(self) -> None:
        """Close the environments. Idempotent."""
        body, self._body = self._body, None
        if body is not None:
            body.close()
        self._board.close()


@cache
def own_program() -> tuple[tuple[str, str], ...]:
    """Return versions of Python and libraries, and a digest of each package of this program."""
    parts = [("Python", platform.python_version())]
    for library in LIBRARIES:
        try:
            parts.append((library, metadata.version(library)))
        except metadata.PackageNotFoundError:
            parts.append((library, "missing"))
    for package in PACKAGES:
        digest = hashlib.sha256()
        for path in sorted((PACKAGE / package).rglob("*.py")):
            digest.update(path.relative_to(PACKAGE).as_posix().encode() + path.read_bytes())
        parts.append((f"ritornello.{package}", digest.hexdigest()[:12]))
    return tuple(parts)


def differences(theirs: tuple[tuple[str, str], ...]) -> str:
    """Return in words how another machine's `own_program` differs from this one's; "" if equal."""
    ours = dict(own_program())
    pairs = [
        f"{part} {got} instead of {ours.get(part)}" for part, got in theirs if ours.get(part) != got
    ]
    return "; ".join(pairs)

"""What travels between a host of workers and the gateway: blocks of unrolls, sealed and opened.

A block leaves a host as a `WireBlock`: each record compressed as compressed replay keeps it
(replay/codec.py), with a checksum over all of it. Frames of games get 20 to 50 times smaller, and
bytes are what limits a network. The gateway opens it straight into a slot of the learner's ring.

Nothing of what arrives is believed: another number, host, worker or size than expected, bytes that
have changed on their way, or a payload that would unpack to more than a record raise TransportError
and are never seen by the learner.

Next to read: agent/cluster/node_host.py, which makes deliveries.
"""

from __future__ import annotations

import hashlib
import math
import platform
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from numbers import Real
from typing import Any

import lz4.frame
import numpy as np

from ritornello.core.episode import EpisodeEnd
from ritornello.core.errors import TransportError
from ritornello.core.project import PACKAGE
from ritornello.core.unroll import Record, UnrollSchema
from ritornello.replay.codec import Lz4
from ritornello.transport.channel import WorkerStats

CODEC = Lz4()
NO_STATS = WorkerStats()
MAX_WORDS = 8_000  # characters of one line that a host says, such as a traceback
MAX_LINES = 20  # that wait in a host to be told
# What runs on a host; a difference there changes what is played, or how it is written down.
PACKAGES = ("core", "flags", "wrappers", "replay", "transport", "agent")
LIBRARIES = ("torch", "numpy", "gymnasium", "ale-py", "lz4")


@dataclass(frozen=True)
class WireBlock:
    """One unroll of each environment of one worker, on its way."""

    epoch: int  # which launch of a host made it; never used twice in a run
    number: int  # 0, 1, 2, ... of all blocks of the host, whichever worker they are of
    worker_id: int
    payloads: tuple[bytes, ...]  # E compressed records
    crc32: int
    episodes: tuple[EpisodeEnd, ...] = ()
    stats: WorkerStats = NO_STATS

    @property
    def nbytes(self) -> int:
        """Bytes of its payloads."""
        return sum(map(len, self.payloads))


@dataclass(frozen=True)
class HostReport:
    """How a host is."""

    alive: int = 0  # workers
    restarts: int = 0  # the numbers of agent/pools/pool.py, since the host began
    hung: int = 0
    lost_unrolls: int = 0
    queued: int = 0  # blocks that wait to be taken, or to be acknowledged
    said: tuple[str, ...] = ()  # what it has to tell the user since the last report
    failure: str = ""  # what ended it, with its last words; empty as long as it goes on
    was_abandoned: bool = False  # it ended because nobody asked for anything: no fault of its own


@dataclass(frozen=True)
class Delivery:
    """The answer of a host to one `take`."""

    epoch: int
    blocks: tuple[WireBlock, ...]
    report: HostReport


def seal(
    epoch: int,
    number: int,
    worker_id: int,
    records: Record,
    episodes: tuple[EpisodeEnd, ...] = (),
    stats: WorkerStats = NO_STATS,
) -> WireBlock:
    """Return a block ready to travel; it shares no memory with `records`.

    Args:
      epoch: of the host.
      number: of the block.
      worker_id: of the worker that made it.
      records: [E, nbytes] uint8.
      episodes: games that ended in it.
      stats: times of the worker.
    """
    payloads = tuple(CODEC.encode(record).tobytes() for record in records)
    checksum = _checksum(epoch, number, worker_id, payloads)
    return WireBlock(epoch, number, worker_id, payloads, checksum, episodes, stats)


def open_block(block: WireBlock, schema: UnrollSchema, into: Record, newest: int) -> None:
    """Unpack a block and check that it is what it says.

    Args:
      block: as it came; nothing of it is trusted.
      schema: layout of the records.
      into: [E, schema.nbytes] uint8, all of it is overwritten, also if the block is refused.
      newest: the newest version of weights that any worker can have.

    Raises:
      TransportError: it is damaged, or of another layout, worker or time.
    """
    _check_types(block, len(into), schema.env_spec.task_count)
    where = f"block {block.number} of worker {block.worker_id} (epoch {block.epoch})"
    if _checksum(block.epoch, block.number, block.worker_id, block.payloads) != block.crc32:
        raise TransportError(f"{where} was changed on its way: its checksum does not fit.")
    for record, payload in zip(into, block.payloads, strict=True):
        record[...] = np.frombuffer(restore(payload, schema.nbytes, where), np.uint8)
    expected = {"worker_id": np.full(len(into), block.worker_id), "env_id": np.arange(len(into))}
    for name, value in expected.items():
        got = schema.view(into, name)
        if (got != value).any():
            raise TransportError(
                f"{where} has {name} {got.tolist()} in its records, expected "
                f"{value.tolist()}: it belongs to another worker."
            )
    seq, version = schema.view(into, "seq"), schema.view(into, "version")
    if (seq != seq[0]).any() or seq[0] < 0:
        raise TransportError(f"{where} has unrolls {seq.tolist()}, expected one and the same.")
    if version.min() < 0 or version.max() > newest:
        raise TransportError(
            f"{where} was played with weights of updates {version.tolist()}, expected 0 to "
            f"{newest}, the newest that were sent."
        )
    _check_range(schema, into, where)


def _check_range(schema: UnrollSchema, records: Record, where: str) -> None:
    """Raise TransportError if records name a game or an action that there is not."""
    count = schema.env_spec.task_count
    task = schema.view(records, "task_id")
    if task.min() < 0 or task.max() >= count:
        raise TransportError(f"{where} is of games {task.tolist()}, expected 0 to {count - 1}.")
    for name in ("action", "last_action"):
        for chosen, count in schema.env_spec.actions.choices_in(schema.view(records, name)):
            # Written so that NaN is none of them either.
            if not ((chosen >= 0) & (chosen < count) & (chosen % 1 == 0)).all():
                raise TransportError(
                    f"{where} has {name} of {count} choices, expected whole numbers from 0 to "
                    f"{count - 1}."
                )


def _checksum(epoch: int, number: int, worker_id: int, payloads: Sequence[bytes]) -> int:
    checksum = zlib.crc32(struct.pack("<qqqq", epoch, number, worker_id, len(payloads)))
    for payload in payloads:
        checksum = zlib.crc32(payload, checksum)
    return checksum


def restore(payload: bytes, nbytes: int, where: str) -> bytes:
    """Return the `nbytes` of a record, without ever taking more memory than that."""
    try:
        stated = lz4.frame.get_frame_info(payload)["content_size"]
        if stated != nbytes:
            raise TransportError(
                f"{where} has a record of {stated} bytes, expected {nbytes}: it is of another "
                "layout."
            )
        decompressor = lz4.frame.LZ4FrameDecompressor()
        restored: bytes = decompressor.decompress(payload, max_length=nbytes)
        if not decompressor.eof:  # the mark of the end may come after the last byte
            restored += decompressor.decompress(b"", max_length=1)
    except (RuntimeError, ValueError, EOFError) as error:
        raise TransportError(f"{where} cannot be unpacked: {error}.") from error
    if len(restored) != nbytes or not decompressor.eof or decompressor.unused_data:
        raise TransportError(f"{where} does not unpack to {nbytes} bytes as it says.")
    return restored


def _check_types(block: Any, envs: int, tasks: int) -> None:
    if not isinstance(block, WireBlock):
        raise TransportError(f"a host sent {type(block).__name__}, expected WireBlock.")
    numbers = (block.epoch, block.number, block.worker_id, block.crc32)
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise TransportError(f"a host sent a block with the numbers {numbers!r:.200}.")
    payloads = block.payloads
    if not isinstance(payloads, tuple) or not all(type(p) is bytes for p in payloads):
        raise TransportError(f"block {block.number} has payloads that are no bytes.")
    if len(payloads) != envs:
        raise TransportError(
            f"block {block.number} of worker {block.worker_id} has {len(payloads)} records, "
            f"expected {envs}, one for each environment."
        )
    ends = block.episodes
    if not isinstance(ends, tuple) or not all(isinstance(end, EpisodeEnd) for end in ends):
        raise TransportError(f"block {block.number} reports games that are no EpisodeEnd.")
    for end in ends:
        counts = (end.env_id, end.task_id, end.length_steps, end.length_frames)
        can_be = all(type(count) is int and count >= 0 for count in counts)
        can_be = can_be and end.env_id < envs and end.task_id < tasks
        if not (can_be and _is_number(end.return_raw)):
            raise TransportError(
                f"block {block.number} reports a game that cannot be: {end!r:.200}."
            )
    stats = block.stats
    if not isinstance(stats, WorkerStats):
        raise TransportError(f"block {block.number} reports times that are no WorkerStats.")
    if type(stats.steps) is not int or not all(map(_is_number, vars(stats).values())):
        raise TransportError(f"block {block.number} reports times that cannot be: {stats!r:.200}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


# --- the same program everywhere -----------------------------------------------------------------


@dataclass(frozen=True)
class Fingerprint:
    """What a host must have in common with the learner, besides the interpreter's protocol."""

    python: str
    libraries: tuple[tuple[str, str], ...]  # name, version
    files: tuple[tuple[str, str], ...]  # of the program: path, digest

    @classmethod
    def own(cls) -> Fingerprint:
        """Return that of this process; reads the program's files the first time."""
        return _own_fingerprint()

    def differences(self, other: Fingerprint) -> list[str]:
        """Return what `other` has differently, in words; empty if nothing."""
        found = []
        if self.python != other.python:
            found.append(f"Python {other.python} instead of {self.python}")
        theirs = dict(other.libraries)
        for name, version in self.libraries:
            if theirs.get(name) != version:
                found.append(f"{name} {theirs.get(name) or 'missing'} instead of {version}")
        ours, files = dict(self.files), dict(other.files)
        changed = sorted(
            path for path in ours.keys() | files.keys() if ours.get(path) != files.get(path)
        )
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            found.append(f"another version of {', '.join(changed[:3])}{more}")
        return found


@cache
def _own_fingerprint() -> Fingerprint:
    files = []
    for package in PACKAGES:
        for path in sorted((PACKAGE / package).rglob("*.py")):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            files.append((path.relative_to(PACKAGE).as_posix(), digest))
    libraries = tuple((name, _version(name)) for name in LIBRARIES)
    return Fingerprint(platform.python_version(), libraries, tuple(files))


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""

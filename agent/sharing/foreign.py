"""How an unroll travels from one agent to another, and what is checked where it arrives.

What travels is the record without what only its own network understands: the stored features, and
the memory before its first row. An agent whose network remembers starts a foreign unroll from the
initial memory, which is zeros, and has its first rows as burn-in only (agent/algorithms/rows.py).

Nothing of what arrives is believed: a payload that is damaged, of another layout, or holds numbers
that no environment of these terms can give raises TransportError and is never seen by the learner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ritornello.agent.cluster.wire import CODEC, restore
from ritornello.core.errors import ShapeError, TransportError
from ritornello.core.unroll import Record, UnrollSchema
from ritornello.replay.codec import Lz4, Payload


@dataclass(frozen=True)
class ForeignUnroll:
    """An unroll of another agent, checked, in this agent's own layout."""

    agent: int
    record: Record  # [nbytes], read-only or not to be written to
    payload: Payload | None  # the record as LZ4 keeps it, if it came just so


class UnrollPost:
    """Seals own unrolls for travelling, and opens those of others. Stateless."""

    def __init__(self, schema: UnrollSchema) -> None:
        """Prepare for one layout.

        Args:
          schema: layout of this agent's own records.
        """
        self._own = schema
        self.travelling = UnrollSchema(schema.env_spec, schema.unroll_length)
        self._is_same = self.travelling.nbytes == schema.nbytes
        # What cannot be compressed gets a little longer (LZ4: by 1/255, and a few words).
        self.max_bytes = self.travelling.nbytes * 101 // 100 + 1024

    def seal(self, record: Record) -> bytes:
        """Return an own record `[nbytes]` as it travels."""
        return CODEC.encode(record if self._is_same else self._stripped(record)).tobytes()

    def open(self, message: bytes, agent: int) -> ForeignUnroll:
        """Return the unroll in a message of another agent.

        Raises:
          TransportError: it is damaged, of another layout, or impossible.
        """
        where = f"an unroll of agent {agent}"
        restored = restore(message, self.travelling.nbytes, where)
        record = np.frombuffer(restored, np.uint8)
        self._check(record, where)
        if self._is_same:
            return ForeignUnroll(agent, record, np.frombuffer(message, np.uint8))
        return ForeignUnroll(agent, self._adopted(record), None)

    def _check(self, record: Record, where: str) -> None:
        unroll = self.travelling.unroll(record)
        try:
            self.travelling.check(unroll)
        except ShapeError as error:
            raise TransportError(f"{where} is impossible: {error}") from error
        tasks = self.travelling.env_spec.task_count
        numbers = {
            name: int(getattr(unroll, name))
            for name in ("worker_id", "env_id", "seq", "version", "task_id")
        }
        if min(numbers.values()) < 0 or numbers["task_id"] >= tasks:
            raise TransportError(
                f"{where} has {numbers}, expected numbers from 0 and a task below {tasks}."
            )
        # NumPy takes any byte for a bool, and torch computes with what it finds there.
        for name in ("first", "terminated"):
            if (self.travelling.view(record, name).view(np.uint8) > 1).any():
                raise TransportError(
                    f"{where} has a value in {name} that is neither True nor False."
                )

    def _stripped(self, record: Record) -> Record:
        stripped = np.zeros(self.travelling.nbytes, np.uint8)
        _copy(self._own, record, self.travelling, stripped)
        return stripped

    def _adopted(self, record: Record) -> Record:
        adopted = np.zeros(self._own.nbytes, np.uint8)  # of zeros is the initial memory, too
        _copy(self.travelling, record, self._own, adopted)
        return adopted


def is_kept_as_it_comes(codec: object) -> bool:
    """Whether a codec keeps records just as they travel, whatever its level."""
    return isinstance(codec, Lz4)


def _copy(source: UnrollSchema, record: Record, target: UnrollSchema, into: Record) -> None:
    """Copy all fields that both layouts have."""
    for name in source.fields.keys() & target.fields.keys():
        target.view(into, name)[...] = source.view(record, name)

"""An unroll in replay, its place in a buffer, and one choice of it for a batch."""

from __future__ import annotations

from dataclasses import dataclass

from ritornello.core.unroll import Record
from ritornello.replay.codec import Codec, Payload


@dataclass(frozen=True, eq=False, slots=True)
class Item:
    """An unroll with its bookkeeping: immutable, encoded once, shared by all buffers.

    Python frees it when the last buffer and the last batch under construction let go, so an
    eviction can never pull an unroll from under a thread that is just reading it.
    """

    id: int  # unique within a manager, in order of insertion
    payload: Payload  # encoded record; nobody writes to it
    codec: Codec
    version: int  # learner updates in the weights that acted
    inserted_at_update: int

    def record(self) -> Record:
        """Return the decoded record `[nbytes]`, read-only. Any thread may call this."""
        return self.codec.decode(self.payload)


@dataclass(slots=True)
class Entry:
    """An item's place in one buffer."""

    item: Item
    draws: int = 0  # times drawn from this buffer (`Circular.draws_at_start` counts as well)
    distance: float = 0.0  # drift when last examined (elite insertion)


@dataclass(frozen=True, eq=False)
class Draw:
    """One choice of an item for a batch."""

    item: Item
    source: int  # index of the buffer it was drawn from
    record: Record  # decoded, read-only
    # New: drawn from a queue, or from a circular buffer that has counted no draw of it before. (At
    # its start such a buffer counts some draws ahead: `Circular.draws_at_start`.)
    is_online: bool
    weight: float = 1.0  # importance weight of its loss; below 1 where it is drawn too often

"""An unroll in replay, its place in a buffer, its choice for a batch, its form in checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ritornello.core.errors import CheckpointError
from ritornello.core.saved_state import array, expect, items, whole
from ritornello.core.unroll import Record, UnrollSchema
from ritornello.replay.codec import CODECS, Codec, Payload, decode, decoded_nbytes
from ritornello.replay.evidence import Floats


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
        return decode(self.payload, self.codec)


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


@dataclass(frozen=True)
class Proposal:
    """Candidates for `count` draws, with their counters as they were when proposed."""

    count: int
    items: list[Item]
    draws: NDArray[np.int64]  # [C]
    weights: Floats | None = None  # [C] importance weights; None: all are 1

    @property
    def leaves_a_choice(self) -> bool:
        """Whether there are more candidates than draws, so that they must be scored."""
        return len(self.items) > self.count

    def weighted(self) -> Iterator[tuple[Item, float]]:
        """Yield the items with their importance weights."""
        weights = [1.0] * len(self.items) if self.weights is None else self.weights.tolist()
        yield from zip(self.items, weights, strict=True)


def pack_items(held: Iterable[Item], schema: UnrollSchema) -> dict[str, Any]:
    """Return items as a dict of arrays.

    Payloads are shared, not copied: nobody ever writes to them, and a second set of them could be
    gigabytes.
    """
    held = list(held)
    return {
        "record_nbytes": schema.nbytes,
        "unroll_length": schema.unroll_length,
        "ids": np.array([item.id for item in held], np.int64),
        "versions": np.array([item.version for item in held], np.int64),
        "inserted_at_update": np.array([item.inserted_at_update for item in held], np.int64),
        "codecs": [item.codec for item in held],
        "payloads": [item.payload for item in held],
    }


def unpack_items(state: Mapping[str, Any], schema: UnrollSchema) -> dict[int, Item]:
    """Return id -> item from the dict of `pack_items`.

    Raises:
      StateError: if `state` is malformed.
      CheckpointError: if the records are of another schema.
    """
    size = whole(state, "record_nbytes", low=1)
    # Fields are padded, so unrolls of several lengths may have one size. Older files do not say.
    steps = whole(state, "unroll_length", default=schema.unroll_length)
    if (size, steps) != (schema.nbytes, schema.unroll_length):
        raise CheckpointError(
            f"stored unrolls have {steps} steps in {size} bytes, this run's have "
            f"{schema.unroll_length} in {schema.nbytes}: "
            "another environment, unroll length or network, or a checkpoint from before unrolls "
            "held the last action and reward. Go on without replay contents (--load_replay=False)."
        )
    ids = array(state, "ids", np.int64, (None,)).tolist()
    columns = {
        name: array(state, name, np.int64, (len(ids),)).tolist()
        for name in ("versions", "inserted_at_update")
    }
    names, payloads = items(state, "codecs", str), items(state, "payloads", np.ndarray)
    expect(len(set(ids)) == len(ids) and min(ids, default=0) >= 0, "each item once", "ids")
    for name, column in columns.items():
        expect(min(column, default=0) >= 0, "updates from 0", name)
    expect(set(names) <= set(CODECS), f"one of {', '.join(CODECS)}", "codecs")
    for number, (name, payload) in enumerate(zip(names, payloads, strict=True)):
        fits = payload.dtype == np.uint8 and payload.ndim == 1
        fits = fits and decoded_nbytes(payload, name) == size
        expect(fits, f"{size} bytes", "payloads", number)
    rows = zip(ids, payloads, names, *columns.values(), strict=True)
    return {
        i: Item(i, payload, codec, version, update) for i, payload, codec, version, update in rows
    }

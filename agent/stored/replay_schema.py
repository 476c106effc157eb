"""What the saved state of replay must look like: counters, whose turn it is, and the unrolls.

See agent/stored/state_schema.py. The manager's classes that it mirrors are in replay/.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import lz4.frame
import numpy as np
from pydantic import Field, model_validator

from ritornello.agent.stored.state_schema import (
    Bytes,
    Count,
    Integers,
    Part,
    RunState,
    array_of,
    check_part,
)
from ritornello.core.plain_data import shown_text
from ritornello.replay.priorities import LARGEST

Floats64 = Annotated[np.ndarray, array_of("float64")]
Ids = list[Count]
Word32 = Annotated[int, Field(ge=0, lt=2**32)]
Word128 = Annotated[int, Field(ge=0, lt=2**128)]
Units = Annotated[int, Field(gt=-(2**80), lt=2**80)]


class PcgState(Part):
    """What NumPy's PCG64 counts with."""

    state: Word128
    inc: Word128


class GeneratorState(Part):
    """`core.rng.generator_state`."""

    bit_generator: Literal["PCG64"]
    state: PcgState
    has_uint32: Annotated[int, Field(ge=0, le=1)]
    uinteger: Word32


class QuotasState(Part):
    """`replay.quotas.Quotas`: units per draw, then the claim of each buffer; what is carried."""

    claims: Annotated[list[Units], Field(min_length=2)]
    carry: list[Units]

    @model_validator(mode="after")
    def _check(self) -> QuotasState:
        unit, *claims = self.claims
        if unit < 1 or min(claims) < 1 or sum(claims) % unit:
            raise ValueError("expected shares that make whole batches")
        limit = unit + sum(claims)
        if len(self.carry) != len(claims) or sum(self.carry) != 0 or any(
            abs(units) > limit for units in self.carry
        ):  # fmt: skip
            raise ValueError(
                "expected less than a batch carried for each buffer, and nothing in all"
            )
        return self


class MixerState(Part):
    """`replay.mixing.Mixer`."""

    rng: GeneratorState
    quotas: QuotasState
    wanted: list[Count]
    drop_newest_next: bool
    share: Annotated[list[Units], Field(min_length=2, max_length=2)] | None = None  # of replay

    @model_validator(mode="after")
    def _check(self) -> MixerState:
        if self.share is not None and not 0 < self.share[0] < self.share[1]:
            raise ValueError("expected a share of replay between 0 and 1")
        unit, *claims = self.quotas.claims
        if len(self.wanted) != len(claims) or sum(self.wanted) * unit != sum(claims):
            raise ValueError("expected what is wanted of each buffer to make a batch")
        return self


class CountersState(Part):
    """`replay.manager.ReplayManager`."""

    next_id: Count
    update: Count
    draws: Count
    online_draws: Count


class ItemsState(Part):
    """`replay.snapshot.pack_items`."""

    record_nbytes: Annotated[int, Field(ge=1, le=2**40)]
    ids: Integers
    versions: Integers
    inserted_at_update: Integers
    codecs: list[Literal["none", "lz4"]]
    payloads: list[Bytes]

    @model_validator(mode="after")
    def _check(self) -> ItemsState:
        columns = (self.ids, self.versions, self.inserted_at_update, self.codecs, self.payloads)
        if len({len(column) for column in columns}) != 1:
            raise ValueError("expected as many ids as versions, insertions, codecs and payloads")
        if len(np.unique(self.ids)) != len(self.ids) or (self.ids < 0).any():
            raise ValueError("expected each item once")
        if (self.versions < 0).any() or (self.inserted_at_update < 0).any():
            raise ValueError("expected updates from 0")
        for number, (codec, payload) in enumerate(zip(self.codecs, self.payloads, strict=True)):
            if _decoded_bytes(codec, payload) != self.record_nbytes:
                raise ValueError(f"expected {self.record_nbytes} bytes in unroll {number}")
        return self


class BufferState(Part):
    """`replay.buffer.Buffer`."""

    name: str
    ids: Integers
    draws: Integers
    distances: Floats64
    priorities: Floats64 | None = None  # of a kind that draws by them
    highest_priority: Annotated[float, Field(ge=0, le=LARGEST)] = 0.0
    oldest_first: Integers
    offered: Count
    unused: Count
    unused_while_filling: Count = 0
    drawn: Count
    batches_unexamined: Count

    @model_validator(mode="after")
    def _check(self) -> BufferState:
        if not len(self.ids) == len(self.draws) == len(self.distances):
            raise ValueError("expected as many ids as draws and distances")
        ids = np.sort(self.ids)
        if (np.diff(ids) == 0).any() or not np.array_equal(np.sort(self.oldest_first), ids):
            raise ValueError("expected each item once, also in the order by age")
        if (self.draws < 0).any():
            raise ValueError("expected draws from 0")
        if self.priorities is not None:
            known = (self.priorities > 0) & (self.priorities <= LARGEST)
            if len(known) != len(self.ids) or not known.all():
                raise ValueError(f"expected a priority above 0, at most {LARGEST:g}, for each id")
        return self


class ContentsState(Part):
    """`replay.mixing.Mixer.contents`."""

    items: ItemsState
    buffers: list[BufferState]
    collected: list[Ids]
    newest: list[Annotated[list[int], Field(min_length=3, max_length=3)]]  # worker, env, item
    pace: Annotated[list[Count], Field(min_length=2, max_length=2)]
    draws_per_unroll: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = (
        None  # of the pace
    )

    @model_validator(mode="after")
    def _check(self) -> ContentsState:
        if len(self.collected) != len(self.buffers):
            raise ValueError("expected collected items for each buffer")
        held = set(self.items.ids.tolist())
        named = [
            *(i for buffer in self.buffers for i in buffer.ids.tolist()),
            *(i for ids in self.collected for i in ids),
            *(i for _, _, i in self.newest),
        ]
        if not held.issuperset(named):
            raise ValueError("a buffer names an item that is not there")
        return self


class CountsState(Part):
    """`replay.counts.Counts`."""

    offered: Count
    drawn: Count
    unused: Count
    unused_while_filling: Count


class ReplayState(Part):
    """`replay.manager.ReplayManager.state_dict`, with or without contents."""

    format: int
    buffers: Annotated[list[str], Field(min_length=1)]
    counters: CountersState
    mixer: MixerState
    counts: list[CountsState] | None = None  # of each buffer
    contents: ContentsState | None

    @model_validator(mode="after")
    def _check(self) -> ReplayState:
        count = len(self.buffers)
        if len(self.mixer.wanted) != count:
            raise ValueError(f"expected what is wanted of {count} buffers")
        if self.counts is not None and len(self.counts) != count:
            raise ValueError(f"expected the counts of {count} buffers")
        if self.contents is None:
            return self
        if [buffer.name for buffer in self.contents.buffers] != self.buffers:
            names = shown_text(", ".join(self.buffers))
            raise ValueError(f"expected the contents of the buffers {names}")
        if len(ids := self.contents.items.ids) and ids.max() >= self.counters.next_id:
            raise ValueError("an item has a number that is yet to be given")
        return self


def check_run(state: Mapping[str, Any], contents: Mapping[str, Any] | None = None) -> None:
    """Raise ValueError, naming the place, unless this is the state of a run.

    Args:
      state: what the file of a checkpoint holds.
      contents: what the file of its replay contents holds, if there is one.
    """
    check_part(RunState, state)
    if state.get("replay") is not None:
        check_part(ReplayState, state["replay"], "state['replay']")
    if contents is not None:
        check_part(ReplayState, contents, "contents")


def _decoded_bytes(codec: str, payload: np.ndarray) -> int:
    """Return how long the record in a payload says that it is; -1 if it is no payload."""
    if codec == "none":
        return len(payload)
    try:
        return int(lz4.frame.get_frame_info(payload[:32].tobytes())["content_size"])
    except (RuntimeError, KeyError):
        return -1

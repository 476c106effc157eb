"""The flags of the group `replay`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from flags.group import FlagGroup, flag
from flags.kinds import Count, Fraction01, Number, ReplayParameters
from replay.mixing import DiscardingStrategy
from replay.registry import type_names

DEFAULT_REPLAY = (
    '[{"type": "queue", "capacity": 4, "sample_ratio": 0.5}, '
    '{"type": "standard", "capacity": 1000, "sample_ratio": 0.5}]'
)


class ReplayFlags(FlagGroup):
    """Which experience is kept, and how batches are put together from it."""

    batch_size: Count = flag(8, "B, unrolls per update, all buffers together", le=100_000)
    replay_parameters: ReplayParameters = flag(
        DEFAULT_REPLAY,
        f"JSON list of buffers; each {{type: {'|'.join(type_names())}, capacity: unrolls, sample_ratio: share of the batch, ...}}; ratios sum to 1; see docs/replay.md",
    )
    training_fill_in_factor: Fraction01 = flag(
        0.05, "part of each replay buffer's capacity to fill before training starts"
    )
    discarding_strategy: DiscardingStrategy = flag(
        "block",
        "what a full queue does with a new unroll: make the worker wait, drop the oldest, drop the new one, or drop every other one",
    )
    max_draws_per_unroll: Number | None = flag(
        None,
        "upper limit of draws per new unroll; needed when no queue sets the pace",
        gt=0,
    )
    use_replay_compression: bool = flag(
        False,
        "keep unrolls LZ4-compressed in memory: about 5 times smaller, costs processor time",
    )
    lz4_compression_level: int = flag(0, "LZ4 frame level; 0 is fastest", ge=0, le=16)
    caching: bool = flag(True, "compose batches in background threads ahead of the learner")
    caching_threads: Count = flag(1, "background threads that compose batches", le=64)
    cache_output_buffer_size: Annotated[
        int | Literal["auto"], Field(union_mode="left_to_right")
    ] = flag(
        "auto",
        "batches composed ahead; auto adapts it to the learner's waiting and to the age of the data",
    )

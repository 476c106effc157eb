"""The flags of the group `replay`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import Count, CountOrAuto, Fraction01, Number, ReplayParameters
from ritornello.replay.mixing import DiscardingStrategy
from ritornello.replay.registry import KINDS

DEFAULT_REPLAY = (
    '[{"type": "queue", "capacity": 4, "sample_ratio": 0.4375}, '
    '{"type": "standard", "capacity": 1000, "sample_ratio": 0.5625}]'
)


class ReplayFlags(FlagGroup, effect="learning"):
    """Which experience is kept, and how batches are put together from it."""

    batch_size: Count = flag(
        8, "B, number of unrolls per update, from all buffers together", le=100_000, main=True
    )
    replay_parameters: ReplayParameters = flag(
        DEFAULT_REPLAY,
        f"replay buffers, each <type>:<capacity in unrolls>:<share of the batch>, then :<key>=<value> for more, e.g. queue:4:0.5,elite:2000:0.5:score_stride=4; or a list in JSON or YAML, [{{type: queue, capacity: 4, sample_ratio: 1}}]. type: {', '.join(KINDS)}, or <module>:<name> of your own. The shares must sum to 1. See docs/replay.md",
        main=True,
        also="replay",
    )
    training_fill_in_factor: Annotated[
        Fraction01 | Literal["auto"], Field(union_mode="left_to_right")
    ] = flag(
        "auto",
        "share of the capacity of each replay buffer (queues and circular ones excepted) that must be filled before training starts; auto: 0.05, or more, until the largest buffer holds three unrolls of each environment, but at most a tenth of the run",
    )
    discarding_strategy: DiscardingStrategy = flag(
        "block",
        "what a full queue or circular buffer does with a new unroll; block: make the worker wait; keep_latest: drop the oldest unroll; keep_oldest: drop the new one; alternating: the last two in turn",
    )
    max_draws_per_unroll: Number | None = flag(
        None,
        "upper limit of draws per new unroll; required if there is no queue and no circular buffer to set the pace",
        gt=0,
    )
    use_replay_compression: bool = flag(
        False,
        "keep unrolls compressed in memory with LZ4: 20 to 50 times smaller on Atari, at the cost of processor time",
        effect="machine",
    )
    caching_threads: CountOrAuto = flag(
        1,
        "background threads that compose batches ahead of the learner; 0: the learner composes each itself",
        le=64,
        effect="machine",
    )
    cache_output_buffer_size: Annotated[
        int | Literal["auto"], Field(union_mode="left_to_right")
    ] = flag(
        "auto",
        "number of batches composed ahead of the learner; auto: as few as possible while the learner seldom waits",
    )

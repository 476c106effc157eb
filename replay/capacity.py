"""What follows from the capacities of the buffers: unrolls held, and how long they are used."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from replay.kinds import BufferConfig


def most_unrolls_held(
    configs: Sequence[BufferConfig], discarding_strategy: str, batch_size: int
) -> int:
    """Return how many different unrolls all buffers together can hold.

    An unroll that lies in several buffers is stored once. Buffers that drop their oldest hold the
    newest unrolls, so the smaller one's are among the larger one's; the choice of a reservoir or of
    elite insertion, and of a queue that skips new unrolls, may have nothing in common with others.

    Args:
      configs: result of `parse_replay_parameters` or `split_by_task`.
      discarding_strategy: what a full queue does with a new unroll.
      batch_size: B; a batch's unrolls are held until it is made, also when buffers dropped them.
    """
    newest: dict[int | None, int] = {}  # by game: they share no unroll
    others = 0
    for config in configs:
        skips = config.is_queue and discarding_strategy in ("keep_oldest", "alternating")
        if config.drops_oldest and not skips:
            newest[config.task] = max(config.capacity, newest.get(config.task, 0))
        else:
            others += config.capacity
    return sum(newest.values()) + others + 2 * batch_size


def renewal_updates(configs: Sequence[BufferConfig], batch_size: int) -> int:
    """Return N * K: updates until all unrolls of the circular buffer are new; 1 without one.

    Args:
      configs: result of `parse_replay_parameters`.
      batch_size: B, number of draws per batch.
    """
    periods = [
        Fraction(config.capacity * config.values["uses"]) / (config.sample_ratio * batch_size)
        for config in configs
        if config.takes_turns
    ]
    return max(1, ceil(max(periods, default=1)))

"""How the items of a circular buffer take turns: who is next, and who has had the last one.

replay/samplers.py (`Circular`) says why. Next to read: replay/buffer.py, which calls it.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np

from ritornello.core.errors import ConfigError
from ritornello.replay.entry_table import EntryTable
from ritornello.replay.proposal import Proposal
from ritornello.replay.samplers import Circular


def next_in_turn(table: EntryTable, sampler: Circular, count: int) -> Proposal:
    """Draw the items that are due, and drop those that have been drawn often enough.

    Args:
      table: a full buffer's entries.
      sampler: knows how often an item is drawn.
      count: number of draws, at most the number of entries.
    """
    size = len(table)
    if not any(entry.draws for entry in table.entries):
        for rank, entry in enumerate(table.next_in_turn(size)):
            entry.draws = sampler.draws_at_start(rank, size, count)
    due = table.next_in_turn(count)
    draws = np.array([entry.draws for entry in due], np.int64)
    for entry in due:
        entry.draws += 1
        table.to_the_end(entry.item)
        if entry.draws >= sampler.uses:
            position = table.position(entry.item.id)
            assert position is not None
            table.remove(position)
    return Proposal(count, [entry.item for entry in due], draws)


def check_room(name: str, capacity: int, ratio: Fraction, batch_size: int) -> None:
    """Raise ConfigError if a circular buffer has not room for its share of one batch.

    Args:
      name: name of the buffer.
      capacity: largest number of its items.
      ratio: its share of a batch.
      batch_size: B, number of draws per batch.
    """
    share = ceil(ratio * batch_size)
    if capacity < share:
        raise ConfigError(
            f"replay buffer {name} has capacity {capacity}, expected at least {share}, its share "
            f"of a batch of {batch_size}: {share} times N for N batches that take turns. Raise its "
            "capacity in --replay_parameters, or lower --batch_size."
        )

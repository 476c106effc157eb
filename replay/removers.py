"""Who is dropped: the rules by which a full buffer makes room.

A remover is asked only when its buffer is full. It answers with a position among the entries, or
with None: then the incoming item is the one that is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ritornello.core.errors import ConfigError
from ritornello.replay.distance import Distance, Evidence, Floats
from ritornello.replay.entry_table import EntryTable


@dataclass(frozen=True)
class Examination:
    """What a remover wants measured, beside what a batch needs anyway."""

    distance: Distance
    count: int  # random items to measure
    period: int  # batches between two examinations

    def measure(self, evidence: Evidence) -> Floats:
        """Return the drift of each item, [C]. One that is no number counts as the farthest.

        Nothing can be learned from such an item; and NaN is neither near nor far.
        """
        drift = self.distance.drift(evidence)
        return np.where(np.isnan(drift), np.inf, drift)


class Scorable(Protocol):
    """What a remover sees of an entry of a buffer."""

    distance: float  # when last examined; 0 before


class Remover(Protocol):
    """A rule to drop. Stateless: what it needs to remember is kept with the items."""

    examination: Examination | None

    def victim(
        self, entries: Sequence[Scorable], oldest: int, offered: int, rng: np.random.Generator
    ) -> int | None:
        """Return the position of the entry to drop, or None to drop the incoming item.

        Args:
          entries: all items of the full buffer, in no particular order.
          oldest: position of the one that was inserted first.
          offered: items offered to the buffer so far, the incoming one included.
          rng: the only source of chance.
        """
        ...


class Oldest:
    """Drop what was inserted first: the buffer is a ring."""

    examination: Examination | None = None

    def victim(
        self, entries: Sequence[Scorable], oldest: int, offered: int, rng: np.random.Generator
    ) -> int | None:
        """Return the oldest."""
        del entries, offered, rng
        return oldest


class Reservoir:
    """Keep each past unroll with the same probability, capacity / offered.

    Algorithm R of Vitter, "Random sampling with a reservoir" (1985); CLEAR (Rolnick et al. 2019)
    keeps its replay so, that old skills are still rehearsed when there is much newer experience.
    What was lost otherwise leaves its places empty until the draw falls on one.
    """

    examination: Examination | None = None

    def victim(
        self, entries: Sequence[Scorable], oldest: int, offered: int, rng: np.random.Generator
    ) -> int | None:
        """Let the incoming item in with probability capacity / offered."""
        del oldest
        return self.place(len(entries), offered, rng)

    def place(self, capacity: int, offered: int, rng: np.random.Generator) -> int | None:
        """Return the place of the incoming item, also if there is room; None: it is dropped.

        Args:
          capacity: number of places, each of which holds an item or nothing.
          offered: as for `victim`; more than `capacity`.
          rng: the only source of chance.
        """
        position = int(rng.integers(offered))
        return position if position < capacity else None


def place_of(
    remover: Remover,
    table: EntryTable,
    capacity: int,
    offered: int,
    is_short: bool,
    rng: np.random.Generator,
) -> int | None:
    """Return where an incoming item belongs; None if it is dropped.

    Beyond the last entry there is room. Before it stands the entry that has to go.

    Args:
      remover: rule of the buffer.
      table: entries of the buffer.
      capacity: how many there may be.
      offered: as for `Remover.victim`.
      is_short: whether there are too few to draw from: none is dropped then while there is room.
      rng: the only source of chance.
    """
    size = len(table)
    if isinstance(remover, Reservoir) and offered > capacity:
        # Also with room, where items were lost: it is not for the next ones to come.
        place = remover.place(capacity, offered, rng)
        return size if place is None and is_short else place
    if size < capacity:
        return size
    oldest = table.oldest()
    return remover.victim(table.entries, oldest, offered, rng)


class FarthestFeatures:
    """Elite insertion: of some random items, drop the one that has drifted farthest.

    The distances are those of the last measurement, because a forward pass for each arriving unroll
    would delay the ingest thread. Every `score_period` batches, `elite_batch_size` random items are
    measured again, together with the candidates of the batch. An item that was never measured has
    the distance 0, because it was made by nearly the present policy.
    """

    def __init__(
        self, distance: Distance | None = None, elite_batch_size: int = 20, score_period: int = 1
    ) -> None:
        """Build the rule.

        Args:
          distance: how drift is measured; the 2-norm of features unless given.
          elite_batch_size: items to compare, and to examine.
          score_period: number of batches between two examinations.
        """
        if elite_batch_size < 1 or score_period < 1:
            raise ConfigError(
                f"elite_batch_size is {elite_batch_size} and score_period {score_period}, "
                "expected at least 1."
            )
        self.count = elite_batch_size
        self.examination: Examination | None = Examination(
            distance or Distance(), elite_batch_size, score_period
        )

    def victim(
        self, entries: Sequence[Scorable], oldest: int, offered: int, rng: np.random.Generator
    ) -> int | None:
        """Return the farthest of `elite_batch_size` random entries.

        On a tie it is the oldest of the buffer, if that is among them, or else any of the equals.
        """
        del offered
        count = min(self.count, len(entries))
        compared = [int(i) for i in rng.choice(len(entries), count, replace=False)]
        farthest = max(entries[i].distance for i in compared)
        if entries[oldest].distance == farthest and oldest in compared:
            return oldest
        return next(i for i in compared if entries[i].distance == farthest)

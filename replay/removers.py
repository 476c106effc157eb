"""Who is dropped: the rules by which a full buffer makes room.

A remover says where an incoming item belongs: at the end, in the place of an entry, or nowhere.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from ritornello.replay.distance import Distance, Evidence, Floats
from ritornello.replay.entry_table import EntryTable


class Remover:
    """A rule to drop. Stateless: what it needs to remember is kept with the items."""

    def place(
        self, table: EntryTable, capacity: int, offered: int, is_short: bool, rng: Generator
    ) -> int | None:
        """Return where an incoming item belongs; None if it is dropped.

        Beyond the last entry there is room. Before it stands the entry that has to go.

        Args:
          table: entries of the buffer.
          capacity: how many there may be.
          offered: items offered to the buffer so far, the incoming one included.
          is_short: whether there are too few to draw from: none is dropped then while there is
            room.
          rng: the only source of chance.
        """
        del offered, is_short
        return len(table) if len(table) < capacity else self.victim(table, rng)

    def victim(self, table: EntryTable, rng: Generator) -> int:
        """Return the position of the entry that a full buffer drops."""
        raise NotImplementedError


class Oldest(Remover):
    """Drop what was inserted first: the buffer is a ring."""

    def victim(self, table: EntryTable, rng: Generator) -> int:
        """Return the oldest."""
        del rng
        return table.oldest()


class Reservoir(Remover):
    """Keep each past unroll with the same probability, capacity / offered.

    Algorithm R of Vitter, "Random sampling with a reservoir" (1985); CLEAR (Rolnick et al. 2019)
    keeps its replay so, that old skills are still rehearsed when there is much newer experience.
    What was lost otherwise leaves its places empty until the draw falls on one: it is not for the
    next ones to come.
    """

    def place(
        self, table: EntryTable, capacity: int, offered: int, is_short: bool, rng: Generator
    ) -> int | None:
        """Let the incoming item in with probability capacity / offered; see `Remover.place`."""
        size = len(table)
        if size < capacity and offered <= capacity:
            return size
        place = int(rng.integers(offered))
        if place < capacity:
            return place
        return size if is_short and size < capacity else None


class FarthestFeatures(Remover):
    """Elite insertion: of some random items, drop the one that has drifted farthest.

    The distances are those of the last measurement: `measure` is asked about `count` random items
    every `period` batches, because a forward pass for each arriving unroll would delay the ingest
    thread. An item that was never measured has distance 0.
    """

    def __init__(
        self, distance: Distance | None = None, elite_batch_size: int = 20, score_period: int = 1
    ) -> None:
        """Build the rule.

        Args:
          distance: how drift is measured; the 2-norm of features unless given.
          elite_batch_size: random items to compare, and to examine.
          score_period: number of batches between two examinations.
        """
        self.distance = distance or Distance()
        self.count = elite_batch_size
        self.period = score_period

    def measure(self, evidence: Evidence) -> Floats:
        """Return the drift of each item, [C]. One that is no number counts as the farthest.

        Nothing can be learned from such an item; and NaN is neither near nor far.
        """
        drift = self.distance.drift(evidence)
        return np.where(np.isnan(drift), np.inf, drift)

    def victim(self, table: EntryTable, rng: Generator) -> int:
        """Return the farthest of `elite_batch_size` random entries.

        On a tie it is the oldest of the buffer, if that is among them, or else any of the equals.
        """
        entries, oldest = table.entries, table.oldest()
        count = min(self.count, len(entries))
        compared = [int(i) for i in rng.choice(len(entries), count, replace=False)]
        farthest = max(entries[i].distance for i in compared)
        if entries[oldest].distance == farthest and oldest in compared:
            return oldest
        return next(i for i in compared if entries[i].distance == farthest)

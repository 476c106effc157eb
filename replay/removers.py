"""Who is dropped: the rules by which a full buffer makes room.

A remover says where an incoming item belongs: at the end, in the place of an entry, or nowhere.
"""

from __future__ import annotations

from numpy.random import Generator

from ritornello.replay.entry_table import EntryTable
from ritornello.replay.evidence import Evidence, Floats


class Remover:
    """A rule to drop. Stateless: what it needs to remember is kept with the items."""

    count = 0  # random items that it wants measured every `period` batches
    period = 1
    needs_stored_features = False  # to measure

    def measure(self, evidence: Evidence) -> Floats:
        """Return the distance [C] of examined items, which is kept with them."""
        raise NotImplementedError

    def place(
        self, table: EntryTable, capacity: int, offered: int, is_short: bool, rng: Generator
    ) -> int | None:
        """Return where an incoming item belongs; None if it is dropped.

        Beyond the last entry there is room. Before it stands the entry that has to go. So many
        items as `offered` says came to the buffer so far, the incoming one included. If it
        `is_short`, there are too few to draw from: none is dropped then while there is room.
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

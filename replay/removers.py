"""Removers: the rules by which a full buffer makes room.

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
        """Decide where an incoming item goes.

        Args:
          table: entries of the buffer.
          capacity: largest number of entries.
          offered: number of items offered to the buffer so far, the incoming one included.
          is_short: whether there are too few items to draw from; the incoming one is then kept if
            there is room.
          rng: the only source of random numbers.

        Returns:
          The position of the entry to drop; `len(table)` if there is room; None to drop the
          incoming item.
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

    Algorithm R of Vitter, "Random sampling with a reservoir" (1985). CLEAR (Rolnick et al. 2019)
    keeps its replay this way, so that old skills are still rehearsed when there is much newer
    experience. The place of an item that was lost otherwise stays empty until a draw falls on it;
    it is not simply for the next item that comes.
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

"""The entries of a buffer: each is found by its position, by its item's id, and by its age.

replay/buffer.py decides what to draw and what to drop; this file keeps what is there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ritornello.core.saved_state import array, expect
from ritornello.replay.evidence import Floats
from ritornello.replay.item import Entry, Item

if TYPE_CHECKING:
    from ritornello.replay.priorities import Priorities


class EntryTable:
    """A set of entries, none of which is held twice. Not thread-safe.

    The entries are a dense list, so that a random one costs a single look-up. Taking one out moves
    the last one into its place: positions change, so nobody may keep them.
    """

    def __init__(self, with_priorities: bool) -> None:
        """Hold nothing. If `with_priorities`, the table keeps a priority for each entry."""
        self.entries: list[Entry] = []  # in no particular order; only this class changes the list
        self.priorities: Priorities | None = None  # by position
        if with_priorities:
            from ritornello.replay.priorities import Priorities

            self.priorities = Priorities()
        # id -> index, oldest first; where items take turns, the one that waits longest first
        self._positions: OrderedDict[int, int] = OrderedDict()
        self._sum_inserted_at = 0

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def items(self) -> list[Item]:
        """The items, oldest first."""
        return [self.entries[position].item for position in self._positions.values()]

    @property
    def mean_inserted_at_update(self) -> float:
        """The mean number of the update at which the items were inserted; needs at least one."""
        return self._sum_inserted_at / len(self)

    def oldest(self) -> int:
        """Return the position of the item that was inserted first; needs at least one."""
        return next(iter(self._positions.values()))

    def position(self, item_id: int) -> int | None:
        """Return the present position of an item; None if it is not here."""
        return self._positions.get(item_id)

    def still_held(self, items: Iterable[Item]) -> Iterator[Entry | None]:
        """Yield the entry of each of these items; None for those that are not here any more."""
        for item in items:
            position = self._positions.get(item.id)
            yield None if position is None else self.entries[position]

    def next_in_turn(self, count: int) -> list[Entry]:
        """Return `count` entries that are due: those never drawn, then those drawn longest ago."""
        waiting = [self.entries[position] for position in self._positions.values()]
        return sorted(waiting, key=lambda entry: entry.draws > 0)[:count]  # sorting keeps the order

    def to_the_end(self, item: Item) -> None:
        """Let an item rank as the newest."""
        self._positions.move_to_end(item.id)

    def append(self, item: Item) -> None:
        """Add an item that is not here yet; it becomes the newest, at the last position."""
        if self.priorities is not None:
            self.priorities.append(len(self.entries))
        self._positions[item.id] = len(self.entries)
        self.entries.append(Entry(item))
        self._sum_inserted_at += item.inserted_at_update

    def remove(self, position: int) -> Entry:
        """Take an entry out; the last one moves into its place."""
        entry = self.entries[position]
        last = self.entries.pop()
        if self.priorities is not None:
            self.priorities.remove(position, len(self.entries))
        if last is not entry:
            self.entries[position] = last
            self._positions[last.item.id] = position  # keeps its rank by age
        del self._positions[entry.item.id]
        self._sum_inserted_at -= entry.item.inserted_at_update
        return entry

    def reprioritise(self, ids: Sequence[int], priorities: Floats) -> None:
        """Store new priorities [n] of n items, if any are kept; ignore items that are not here."""
        if self.priorities is None:
            return
        found = [(self._positions.get(i), p) for i, p in zip(ids, priorities, strict=True)]
        held = [(position, p) for position, p in found if position is not None]
        if held:
            positions, kept = zip(*held, strict=True)
            self.priorities.give(np.array(positions, np.intp), np.array(kept, np.float64))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the bookkeeping, as arrays. It has the ids of items, not the items."""
        kept = {} if self.priorities is None else self.priorities.state_dict(len(self))
        return {
            **kept,
            "ids": np.array([entry.item.id for entry in self.entries], np.int64),
            "draws": np.array([entry.draws for entry in self.entries], np.int64),
            "distances": np.array([entry.distance for entry in self.entries], np.float64),
            "oldest_first": np.array(list(self._positions), np.int64),
        }

    def load_state_dict(self, state: Mapping[str, Any], items: Mapping[int, Item]) -> None:
        """Take over a state from `state_dict`; `items` gives the item of each id.

        Raises:
          StateError: if `state` is malformed.
        """
        ids = array(state, "ids", np.int64, (None,)).tolist()
        draws = array(state, "draws", np.int64, (len(ids),))
        distances = array(state, "distances", np.float64, (len(ids),))
        oldest_first = array(state, "oldest_first", np.int64, (len(ids),)).tolist()
        places = {i: place for place, i in enumerate(ids)}
        expect(len(places) == len(ids) and places.keys() <= items.keys(), "items once each", "ids")
        expect(bool((draws >= 0).all()), "counts from 0", "draws")
        expect(places.keys() == set(oldest_first), "each item once", "oldest_first")
        self.entries = [
            Entry(items[i], *counted)
            for i, *counted in zip(ids, draws.tolist(), distances.tolist(), strict=True)
        ]
        self._positions = OrderedDict((i, places[i]) for i in oldest_first)
        self._sum_inserted_at = sum(entry.item.inserted_at_update for entry in self.entries)
        if self.priorities is not None:
            self.priorities.load_state_dict(state, len(self))

"""What an update says of the unrolls it learned from, and the priorities that follow from it.

The way of a priority: an unroll is drawn (with its id) -> learned from -> `Outcome` ->
`Sampler.priorities`, outside the lock -> `Buffer.reprioritise`, under it -> the next draws.
Next to read: replay/prioritised.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ritornello.core.saved_state import array, expect, number
from ritornello.replay.sum_tree import Masses, Positions, SumTree

FIRST = 1.0  # the priority of new items until a first one is known
LARGEST = 1e100  # sums of so many as fit into memory stay finite


class Priorities:
    """The priority of each item of a buffer, by its position among the entries.

    An item is new until it was learned from; it then has the highest priority ever given, so that
    nothing waits for ever for its first turn (Schaul et al. 2016, algorithm 1, line 6).
    """

    def __init__(self) -> None:
        """Know no item."""
        self.tree = SumTree()
        self._highest = 0.0  # of those that were given; 0: none was

    @property
    def of_new_items(self) -> float:
        """The priority that the next new item gets."""
        return self._highest or FIRST

    def append(self, position: int) -> None:
        """Give a new item, which is the last, the priority `of_new_items`."""
        self.tree.set(position, self.of_new_items)

    def remove(self, position: int, last: int) -> None:
        """Forget the item at `position`, into whose place the last one moves."""
        moved = float(self.tree[last])
        self.tree.set(last, 0.0)
        if position != last:
            self.tree.set(position, moved)

    def give(self, positions: Positions, priorities: Masses) -> None:
        """Set the priorities of some items, [k] each."""
        if len(positions):
            self.tree.set_many(positions, priorities)
            self._highest = max(self._highest, float(priorities.max()))

    def state_dict(self, size: int) -> dict[str, Any]:
        """Return a copy of the priorities of `size` items, and the highest."""
        return {"priorities": self.tree[np.arange(size)].copy(), "highest_priority": self._highest}

    def load_state_dict(self, state: Mapping[str, Any], size: int) -> None:
        """Take over a state, or treat `size` items as new if it says nothing of priorities."""
        self._highest = number(state, "highest_priority", default=0.0)
        expect(0 <= self._highest <= LARGEST, f"0 to {LARGEST:g}", "highest_priority")
        given = array(state, "priorities", np.float64, (size,), default=None)
        if given is None:
            given = np.full(size, self.of_new_items)
        known = ((given > 0) & (given <= LARGEST)).all()
        expect(bool(known), f"a priority above 0, at most {LARGEST:g}, for each id", "priorities")
        self.tree = SumTree(given)


def checked_priorities(priorities: ArrayLike, count: int, of: str) -> Masses:
    """Return what the sampler of buffer `of` said of `count` unrolls, float64 [count].

    Raises:
      ValueError: if the numbers are not above 0 and at most LARGEST, one for each unroll.
    """
    checked = np.asarray(priorities, np.float64)
    if checked.shape != (count,):
        raise ValueError(
            f"the sampler of buffer {of} gave priorities of shape {checked.shape}, expected one "
            f"for each of the {count} unrolls."
        )
    bad = checked[~((checked > 0) & (checked <= LARGEST))]
    if len(bad):
        raise ValueError(
            f"the sampler of buffer {of} gave the priority {bad[0]}, expected numbers above 0 "
            f"and at most {LARGEST:g}: what has none could never be drawn again."
        )
    return checked

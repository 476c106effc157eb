"""A bounded set of items, with a rule for drawing them and a rule for dropping them.

All kinds of replay are this class. They differ only in their sampler and their remover;
replay/registry.py has the table of kinds.

Next to read: replay/mixing.py, which makes batches from several buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from ritornello.core.errors import CheckpointError
from ritornello.core.plain_data import shown
from ritornello.core.saved_state import expect, item, whole
from ritornello.replay.entry_table import EntryTable
from ritornello.replay.evidence import Evidence, Floats
from ritornello.replay.item import Item, Proposal
from ritornello.replay.removers import Remover
from ritornello.replay.sampler import Candidates, Contents, Outcome, Sampler


@dataclass
class Counts:
    """Counters of one buffer, all since the start of the run."""

    offered: int = 0  # items that came, whether or not they got in
    drawn: int = 0
    unused: int = 0  # items that left, or never got in, and were never drawn
    unused_while_filling: int = 0  # such items that had to go so that other buffers could fill up

    def add_unused(self, while_filling: bool) -> None:
        """Count an item that was never drawn and now never will be."""
        if while_filling:
            self.unused_while_filling += 1
        else:
            self.unused += 1

    def stats(self) -> dict[str, float]:
        """Return figures by short name; what only some buffers count is absent in the others."""
        figures = {"draws": float(self.drawn), "dropped": float(self.unused)}
        if self.unused_while_filling:
            figures["dropped_while_filling"] = float(self.unused_while_filling)
        return figures

    def state_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        return asdict(self)

    def go_on_without_items(self, state: Mapping[str, Any]) -> None:
        """Take over counters from `state_dict` into a buffer that is empty again.

        `offered` stays as it is: it tells a reservoir of how many items its own are a sample.
        """
        self.load_state_dict({**state, "offered": self.offered})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over counters by name; one that an older version did not count stays as it is."""
        for field in fields(self):
            if field.name in state:
                setattr(self, field.name, whole(state, field.name))


class Buffer:
    """A bounded set of items, with a sampler that draws and a remover that drops.

    Not thread-safe, on purpose: the manager locks. It never blocks. Only `choose`, `measure` and
    `priorities` may be called without the lock, because they read only their arguments.

    Invariants: never more than `capacity` items, none twice, each with a non-negative counter.
    """

    def __init__(
        self,
        name: str,
        capacity: int,
        sampler: Sampler,
        remover: Remover,
        *,
        min_size: int = 1,
        score_stride: int = 1,
        task: int | None = None,
    ) -> None:
        """Build an empty buffer.

        Args:
          name: name of the buffer in metrics and messages.
          capacity: largest number of items.
          sampler: rule that chooses the items to draw.
          remover: rule that chooses the item to drop.
          min_size: number of items below which nothing may be drawn.
          score_stride: n; every n-th row of an item is scored, counted from the last.
          task: number of the only game whose unrolls the buffer takes; None for all games.
        """
        self.name = name
        self.capacity = capacity
        self.sampler = sampler
        self.remover = remover
        self.min_size = min_size
        self.score_stride = score_stride
        self.task = task
        # A queue, the source of online data: an item is drawn once and then gone.
        self.consumes = sampler.consumes
        # Each item is drawn in turn a number of times, and then gone.
        self.takes_turns = sampler.takes_turns
        # It makes the workers wait while it is full, instead of dropping an item.
        self.sets_the_pace = sampler.sets_the_pace()
        # It may need the present model's outputs for its items,
        self.needs_evaluation = sampler.scores or remover.count > 0
        # and those of the policy that made them, which unrolls must then carry.
        self.needs_stored_features = sampler.needs_stored_features or remover.needs_stored_features
        # It needs the errors that updates find in its items.
        self.uses_priorities = sampler.uses_priorities
        self._table = EntryTable(with_priorities=sampler.uses_priorities)
        self.counts = Counts()
        # The games' parts of one buffer are examined in turn, not all for the same batch.
        self._batches_unexamined = task or 0

    def __len__(self) -> int:
        return len(self._table)

    @property
    def items(self) -> list[Item]:
        """The items, oldest first."""
        return self._table.items

    def can_insert(self) -> bool:
        """Whether there is room, or an item may be dropped for a new one."""
        return not self.sets_the_pace or len(self) < self.capacity

    def can_sample(self) -> bool:
        """Whether the buffer holds enough items to draw from."""
        return len(self) >= self.min_size

    def insert(self, item: Item, rng: np.random.Generator) -> Item | None:
        """Add an item.

        Returns:
          The item that was dropped in its place, if any; `item` itself if the remover rejects it.

        Raises:
          ValueError: if not `can_insert`. Nothing has changed then.
        """
        if not self.can_insert():
            raise ValueError(
                f"buffer {self.name} holds {len(self)} of {self.capacity} items and may not evict."
            )
        self.counts.offered += 1
        offered, is_short = self.counts.offered, not self.can_sample()
        place = self.remover.place(self._table, self.capacity, offered, is_short, rng)
        if place is None:
            self.counts.add_unused(while_filling=False)
            return item
        dropped = self._evict(place) if place < len(self) else None
        self._table.append(item)
        return dropped

    def make_room(self, *, while_filling: bool = False) -> Item | None:
        """Drop and return the oldest item of a full buffer; None if there is room.

        The sampler and the remover are not asked. `while_filling` says that other buffers have yet
        to fill up before anything is drawn.
        """
        if len(self) < self.capacity:
            return None
        return self._evict(self._table.oldest(), while_filling)

    def discard(self, ids: Iterable[int]) -> None:
        """Drop the items with these ids that are here, as long as enough are left to draw from."""
        refills = self.sets_the_pace  # it waits for new items anyway
        for i in ids:
            position = self._table.position(i)
            if position is not None and (refills or len(self) > self.min_size):
                self._evict(position)

    def skip(self, *, while_filling: bool = False) -> None:
        """Count an item that did not get in because the buffer is full; see `make_room`."""
        self.counts.offered += 1
        self.counts.add_unused(while_filling)

    def propose(self, count: int, progress: float, rng: np.random.Generator) -> Proposal:
        """Return candidates for `count` draws; this is cheap and uses no model.

        If the sampler sets the pace, items leave the buffer here with their last draw. What other
        samplers propose is checked, because a sampler may be a user's.
        """
        size = len(self)
        if not count:
            return Proposal(0, [], np.zeros(0, np.int64))
        if not size:
            raise ValueError(f"{count} draws asked of buffer {self.name}, which is empty.")
        if self.sets_the_pace:
            if count > size or not self.can_sample():
                raise ValueError(f"{count} draws asked of {self.name}, which holds {size} items.")
            return self.sampler.take(self._table, count)
        held, priorities = self._table.entries, self._table.priorities
        contents = Contents(held, None if priorities is None else priorities.tree)
        found = self.sampler.propose(contents, count, progress, rng)
        if not isinstance(found, Candidates):
            raise ValueError(
                f"the sampler of buffer {self.name} proposed {shown(found)}, expected Candidates."
            )
        found.check(count, size, self.name, more_is_fine=self.sampler.scores)
        entries = [held[position] for position in found.positions]
        draws = np.array([entry.draws for entry in entries], np.int64)
        return Proposal(count, [entry.item for entry in entries], draws, found.weights)

    def choose(self, proposal: Proposal, evidence: Evidence | None) -> Proposal:
        """Return exactly `proposal.count` of the candidates. May run without the lock.

        `evidence` is read only if `proposal.leaves_a_choice`.
        """
        if not proposal.leaves_a_choice:
            return proposal
        assert evidence is not None, "there are more candidates than draws"
        chosen = self.sampler.choose(proposal.count, proposal.draws, evidence)
        draws, size = proposal.count, len(proposal.items)
        Candidates(chosen).check(draws, size, self.name, more_is_fine=False)
        weights = proposal.weights
        return replace(
            proposal,
            items=[proposal.items[index] for index in chosen],
            draws=proposal.draws[chosen],
            weights=None if weights is None else weights[chosen],
        )

    def commit(self, drawn: Iterable[Item]) -> None:
        """Count a draw for each item; items that were evicted meanwhile stay valid."""
        for entry in self._table.still_held(drawn):
            self.counts.drawn += 1
            if entry is not None and not self.takes_turns:  # whose turn it is was counted at once
                entry.draws += 1

    def online(self, proposal: Proposal) -> list[bool]:
        """Return for each draw of a proposal whether its item is handed out for the first time."""
        if self.takes_turns:
            return [draws == 0 for draws in proposal.draws.tolist()]
        return [self.consumes] * len(proposal.items)

    def priorities(self, outcome: Outcome) -> Floats:
        """Return the priority of each unroll, [n], from a sampler that uses them. Needs no lock."""
        from ritornello.replay.priorities import checked_priorities

        found = self.sampler.priorities(outcome)
        return checked_priorities(found, len(outcome.errors), self.name)

    def reprioritise(self, ids: Sequence[int], priorities: Floats) -> None:
        """Store new priorities [n] of n items; items that were evicted meanwhile are ignored."""
        self._table.reprioritise(ids, priorities)

    def propose_examination(self, rng: np.random.Generator) -> list[Item]:
        """Return items whose drift the remover needs now; usually none."""
        if not self.remover.count or not len(self):
            return []
        self._batches_unexamined += 1
        if self._batches_unexamined < self.remover.period:
            return []
        self._batches_unexamined = 0
        count = min(self.remover.count, len(self))
        chosen = rng.choice(len(self), count, replace=False)
        return [self._table.entries[position].item for position in chosen]

    def measure(self, evidence: Evidence) -> Floats:
        """Return the drift of examined items, [C]. May run without the lock."""
        return self.remover.measure(evidence)

    def remember(self, items: Sequence[Item], distances: Floats) -> None:
        """Store measured drifts for the remover; evicted items are ignored."""
        for entry, distance in zip(self._table.still_held(items), distances, strict=True):
            if entry is not None:
                entry.distance = float(distance)

    def stats(self, update: int) -> dict[str, float]:
        """Return figures by short name; `update` is the learner's present update number."""
        figures = {"fill": len(self) / self.capacity, **self.counts.stats()}
        if len(self):
            figures["mean_age_updates"] = update - self._table.mean_inserted_at_update
        return figures

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the bookkeeping. It has ids of items; the manager owns the items."""
        return {
            **self._table.state_dict(),
            **self.counts.state_dict(),
            "name": self.name,
            "batches_unexamined": self._batches_unexamined,
        }

    def load_state_dict(self, state: Mapping[str, Any], items: Mapping[int, Item]) -> None:
        """Take over a state from `state_dict`; `items` gives the item of each id.

        Raises:
          StateError: if `state` is malformed.
          CheckpointError: if the contents do not fit.
        """
        expect(item(state, "name", str) == self.name, self.name, "name")
        self.check_room_for(state)
        self._table.load_state_dict(state, items)
        self.counts.load_state_dict(state)
        self._batches_unexamined = whole(state, "batches_unexamined")

    def check_room_for(self, state: Mapping[str, Any]) -> None:
        """Raise CheckpointError if a state from `state_dict` holds more items than fit."""
        count = len(item(state, "ids", np.ndarray))
        if count > self.capacity:
            raise CheckpointError(
                f"checkpoint holds {count} items of buffer {self.name}, capacity is "
                f"{self.capacity}. Raise the capacity or resume without replay contents."
            )

    def _evict(self, position: int, while_filling: bool = False) -> Item:
        entry = self._table.remove(position)
        if not entry.draws:
            self.counts.add_unused(while_filling)
        return entry.item

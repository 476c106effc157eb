"""Sampler: the rule that chooses the items of a buffer for a batch.

A draw has two parts. First the sampler *proposes* candidates, under the manager's lock and without
a model. If there are more than needed, it then *chooses* among them, outside the lock, by
`Evidence` from a model.

A sampler with a name is a kind of replay (replay/registry.py). Next to read: replay/samplers.py,
replay/scored.py and replay/prioritised.py, which have all samplers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ritornello.core.plain_data import shown
from ritornello.replay.entry_table import EntryTable
from ritornello.replay.evidence import Evidence, Floats
from ritornello.replay.item import Entry, Proposal
from ritornello.replay.keys import Key

if TYPE_CHECKING:
    from ritornello.replay.sum_tree import SumTree

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Contents:
    """The contents of a buffer, for its sampler, which must not change them."""

    entries: Sequence[Entry]  # all items, in no particular order; at least one
    priorities: SumTree | None  # by position of the entry; None unless `uses_priorities`


@dataclass(frozen=True)
class Candidates:
    """The proposal of a sampler."""

    positions: Indices  # [C] among the entries
    # [C] float64, importance weights of the losses, above 0 and at most 1; None: all are 1.
    weights: Floats | None = None

    def check(self, count: int, size: int, of: str, more_is_fine: bool) -> None:
        """Raise ValueError unless these are candidates for `count` draws from `size` entries.

        `of` is the name of the buffer in the message. If `more_is_fine`, there may be more
        candidates than draws.
        """
        positions = np.asarray(self.positions)
        enough = positions.size >= count if more_is_fine else positions.size == count
        is_index = positions.ndim == 1 and positions.dtype.kind in "iu"
        sampler = f"the sampler of buffer {of}"
        if not (is_index and enough and positions.min() >= 0 and positions.max() < size):
            raise ValueError(
                f"{sampler} chose {shown(positions.tolist())} for {count} draws, "
                f"expected {'at least ' if more_is_fine else ''}{count} whole numbers below {size}."
            )
        weights = self.weights
        if weights is not None and not (
            np.shape(weights) == positions.shape
            and isinstance(weights, np.ndarray)
            and ((weights > 0) & (weights <= 1)).all()
        ):
            raise ValueError(
                f"{sampler} gave the importance weights {shown(np.asarray(weights).tolist())}, "
                f"expected an array of {len(positions)} numbers above 0 and at most 1."
            )


@dataclass(frozen=True)
class Outcome:
    """What one update said of n unrolls of T steps."""

    errors: Floats  # [n, T] |target - value|, in the units in which values are learned
    learned: NDArray[np.bool_]  # [n, T] whether the step was learned from; elsewhere errors mean 0


class Sampler:
    """A rule to draw. With a name it is a kind of replay: see `replay.registry.register`.

    This one draws any item with equal probability, all different as long as there are enough. A
    kind of your own overrides only what differs; mostly that is `propose` alone.

    A sampler has no state: what it needs to remember is kept with the items (times drawn,
    priority). Calls of `propose` never overlap; `choose` and `priorities` may run in several
    threads at once.
    """

    about: ClassVar[str] = ""  # who is drawn, in a few words, for the documentation
    keys: ClassVar[Mapping[str, Key]] = MappingProxyType({})  # in --replay_parameters
    consumes = False  # the oldest items are taken out for good: the queue alone
    # Items are drawn in turn, each `uses` times, and then dropped: see `Circular`.
    takes_turns = False
    scores = False  # proposes more than needed, and chooses by evidence
    needs_queries = False  # choose compares with the present states of the agent
    needs_stored_features = False
    uses_priorities = False  # wants to be told what was learned, see `priorities`

    @classmethod
    def sets_the_pace(cls) -> bool:
        """Whether a full buffer of this kind makes the workers wait until the learner has drawn.

        Its capacity then ties the number of updates to that of new unrolls.
        """
        return cls.consumes or cls.takes_turns

    @classmethod
    def from_keys(cls, values: Mapping[str, Any]) -> Sampler:
        """Build the sampler of a buffer from its `values`, which have at least all of `keys`."""
        return cls(**{name: values[name] for name in cls.keys})

    def pool_size(self, n: int, progress: float) -> int:
        """Return how many candidates to propose for `n` draws; `progress` is as for `propose`."""
        del progress
        return n

    def propose(
        self, contents: Contents, n: int, progress: float, rng: np.random.Generator
    ) -> Candidates:
        """Return candidates for n draws: exactly n, or at least n of a sampler that `scores`.

        Runs under the manager's lock, so it must be quick, and neither decode an item nor wait.

        Args:
          contents: contents of the buffer.
          n: number of draws, at least 1; may exceed the number of items.
          progress: share of training done, 0 to 1.
          rng: the only source of random numbers.
        """
        size = len(contents.entries)
        if n > size:
            return Candidates(rng.integers(size, size=n))
        pool = min(size, int(self.pool_size(n, progress)))  # a share of n is a float
        return Candidates(rng.choice(size, pool, replace=False))

    def take(self, table: EntryTable, count: int) -> Proposal:
        """Draw `count` entries, at most all, and drop those that have had their last draw.

        This is called in place of `propose`, and only of a sampler that sets the pace.
        """
        raise AssertionError(f"asked to take {count} of {len(table)}, but draws are proposed")

    def choose(self, n: int, draws: NDArray[np.int64], evidence: Evidence) -> Indices:
        """Return the indices [n] of the candidates to draw.

        This is called only of a sampler that `scores`, if there are more candidates than draws.

        Args:
          n: number of draws, fewer than candidates.
          draws: [C] number of earlier draws of each candidate.
          evidence: what the model says of the C candidates.
        """
        raise AssertionError(f"asked to choose {n} of {len(draws)}, but the proposal is the choice")

    def priorities(self, outcome: Outcome) -> Floats:
        """Return a number above 0 for each unroll that an update has learned from, [n].

        This is called only of a sampler that `uses_priorities`. The unrolls were drawn from any
        buffer: an update knows as much of one that came by the queue.
        """
        raise AssertionError("asked for priorities, but uses_priorities is not set")


class Fifo(Sampler):
    """Oldest first, each once: it is removed when drawn, so no two threads draw the same unroll."""

    about = "the oldest"
    consumes = True

    def take(self, table: EntryTable, count: int) -> Proposal:
        """Take out the oldest items."""
        taken = [table.remove(table.oldest()).item for _ in range(count)]
        return Proposal(count, taken, np.zeros(count, np.int64))


class Uniform(Sampler):
    """Every item equally likely."""

    about = "any, with equal probability"

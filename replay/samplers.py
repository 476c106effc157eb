"""Samplers that look at how often items were drawn.

Next to read: replay/scored.py (samplers that look at distances), replay/prioritised.py (the one
that looks at errors), replay/removers.py (which item is dropped), then replay/buffer.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from ritornello.replay.entry_table import EntryTable
from ritornello.replay.item import Proposal
from ritornello.replay.keys import Key, at_least_one, positive, whole_number
from ritornello.replay.sampler import Candidates, Contents, Sampler

LARGEST_POOL = 2**62  # more than any buffer holds; lambda may be as large as a float can be


class Circular(Sampler):
    """Draw every item in turn, `uses` times; then drop it, and a new one takes its place.

    The circular buffer of Luo et al., "IMPACT" (ICLR 2020, https://arxiv.org/abs/1912.00167).
    docs/replay.md, "Circular", says why new items come first and only a full buffer is drawn from.
    """

    about = "new ones first, then the one that has waited longest"
    keys: ClassVar[Mapping[str, Key]] = {
        "uses": Key(
            "whole number >= 1",
            2,
            "K, how often each unroll is drawn before it is dropped. N, the number of batches that "
            "take turns, is `capacity` over the draws per batch.",
            whole_number,
        )
    }
    takes_turns = True

    def __init__(self, uses: int = 2) -> None:
        """Drop an item after `uses` draws, at least 1: the K of the paper."""
        self.uses = uses

    def take(self, table: EntryTable, count: int) -> Proposal:
        """Draw the items of a full buffer that are due; drop those that were drawn often enough."""
        size = len(table)
        if not any(entry.draws for entry in table.entries):
            for rank, entry in enumerate(table.next_in_turn(size)):
                entry.draws = self.draws_at_start(rank, size, count)
        due = table.next_in_turn(count)
        draws = np.array([entry.draws for entry in due], np.int64)
        for entry in due:
            entry.draws += 1
            table.to_the_end(entry.item)
            if entry.draws >= self.uses:
                position = table.position(entry.item.id)
                assert position is not None
                table.remove(position)
        return Proposal(count, [entry.item for entry in due], draws)

    def draws_at_start(self, rank: int, size: int, count: int) -> int:
        """Return the draws to count in advance for an item, when no item of a full buffer has any.

        Otherwise all items would have their last draw at almost the same moment, and N new batches
        would have to come at once, each time. So of the first N batches the n-th is used n K / N
        times.

        Args:
          rank: place of the item by age, 0 for the oldest.
          size: number of items in the buffer.
          count: number of draws of this buffer per batch.
        """
        batches = -(-size // count)
        return self.uses - -(-self.uses * (rank // count + 1) // batches)


class Annealed(Sampler):
    """Look at a pool of lambda * n random candidates for n draws.

    Lambda falls linearly from its initial value to 1 while training goes on, and stays there:

        lambda(progress) = max(1, lambda_0 - (lambda_0 - 1) * progress / alfa)

    (Sun, Zhou and Li, "Attentive Experience Replay", AAAI 2020). At lambda = 1 it is uniform.
    """

    keys: ClassVar[Mapping[str, Key]] = {
        "lambda_batch_multiplier": Key(
            "number >= 1",
            6.0,
            "λ₀, candidates per draw at the start of training. With 1 the draw is uniform.",
            at_least_one,
        ),
        "alfa_annealing_factor": Key(
            "number > 0",
            1.0,
            "Share of the annealing length after which λ has fallen to 1.",
            positive,
        ),
    }

    def __init__(
        self, lambda_batch_multiplier: float = 6.0, alfa_annealing_factor: float = 1.0
    ) -> None:
        """Build the sampler.

        `lambda_batch_multiplier` is lambda_0, candidates per draw at the start of training, at
        least 1. `alfa_annealing_factor` is alfa, the share of training after which lambda is 1; it
        may exceed 1.
        """
        self.initial_lambda = lambda_batch_multiplier
        self.alfa = alfa_annealing_factor

    def current_lambda(self, progress: float) -> float:
        """Return lambda; `progress` is the share of training done."""
        return max(1.0, self.initial_lambda - (self.initial_lambda - 1) * progress / self.alfa)

    def pool_size(self, n: int, progress: float) -> int:
        """Return lambda * n, rounded."""
        return max(n, round(min(self.current_lambda(progress) * n, LARGEST_POOL)))


class LeastDrawn(Annealed):
    """Of lambda * n random items the n that were drawn least often, ties at random. No model."""

    about = "of λ·n random ones, the n that were drawn least often"

    def propose(
        self, contents: Contents, n: int, progress: float, rng: np.random.Generator
    ) -> Candidates:
        """Return n of the pool; its order is random, and sorting keeps the order of equals."""
        pool = super().propose(contents, n, progress, rng).positions
        draws = np.array([contents.entries[position].draws for position in pool])
        return Candidates(pool[np.argsort(draws, kind="stable")[:n]])

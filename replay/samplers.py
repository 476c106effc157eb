"""Who is drawn: the rules that look at nothing, at how often items were drawn, or at distances.

Next to read: replay/prioritised.py (the one that looks at what was learned), replay/removers.py
(who is dropped), then replay/buffer.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ritornello.core.errors import ConfigError
from ritornello.replay.distance import Distance, Evidence, Floats
from ritornello.replay.entry_table import EntryTable
from ritornello.replay.item import Proposal
from ritornello.replay.keys import Key, at_least_one, positive, whole_number
from ritornello.replay.sampler import Candidates, Contents, Indices, Sampler

STRATEGIES = (1, 2, 3, 4)
LARGEST_POOL = 2**62  # more than any buffer holds; lambda may be as large as a float can be


class Fifo(Sampler):
    """Oldest first, each once: taken out at once, so that no two threads draw the same unroll."""

    about = "the oldest"
    consumes = True

    def take(self, table: EntryTable, count: int) -> Proposal:
        """Take out the oldest items."""
        taken = [table.remove(table.oldest()).item for _ in range(count)]
        return Proposal(count, taken, np.zeros(count, np.int64))


class Uniform(Sampler):
    """Every item equally likely."""

    about = "any, with equal probability"


class Circular(Sampler):
    """Every item in turn, each `uses` times; then it is dropped and a new one takes its place.

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
        """Return how many of its draws an item of a buffer without any draws does without.

        Otherwise all would be through at almost the same moment, and N new batches would have to
        come at once, each time. So of the first N batches the n-th is used n K / N times.

        Args:
          rank: place of the item by age, 0 for the oldest.
          size: number of items in the buffer.
          count: number of draws of a batch.
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

        Args:
          lambda_batch_multiplier: candidates per draw at the start of training, at least 1.
          alfa_annealing_factor: share of training over which lambda falls to 1; may exceed 1.
        """
        self.initial_lambda = lambda_batch_multiplier
        self.alfa = alfa_annealing_factor

    def current_lambda(self, progress: float) -> float:
        """Return the multiplier in force after this share of training."""
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
        """Return n of the pool; its order is random, and sorting keeps that of equals."""
        pool = super().propose(contents, n, progress, rng).positions
        draws = np.array([contents.entries[position].draws for position in pool])
        return Candidates(pool[np.argsort(draws, kind="stable")[:n]])


def _strategy(value: Any) -> int:
    if isinstance(value, str) and value.startswith("strategy"):
        value = int(value.removeprefix("strategy"))
    if isinstance(value, bool) or value not in STRATEGIES:
        raise ValueError
    return int(value)


def _strategy_key(default: int) -> Key:
    return Key(
        "strategy1 … strategy4, or 1 … 4",
        default,
        "How draws are chosen from the ranked candidates.",
        _strategy,
        f"strategy{default}",
    )


class _Scored(Annealed):
    """Propose lambda * n candidates, keep n by their distance. At lambda = 1 no model is needed."""

    scores = True

    def __init__(
        self,
        distance: Distance | None = None,
        initial_lambda: float = 6.0,
        alfa: float = 1.0,
        strategy: int | None = None,
    ) -> None:
        """Build the sampler.

        Args:
          distance: how candidates are ranked; the 2-norm of features unless given.
          initial_lambda: candidates per draw at the start of training, at least 1.
          alfa: share of training over which lambda falls to 1; may exceed 1.
          strategy: 1 to 4, see `select`; that of the kind unless given.

        Raises:
          ConfigError: also for policy_kl where states are compared, not policies on one state.
        """
        super().__init__(initial_lambda, alfa)
        default = self.keys["elite_sampling_strategy"].default
        self.strategy = default if strategy is None else strategy
        self.distance = distance or Distance()
        reads_stored = self.distance.needs_stored_features
        if self.needs_queries and not reads_stored:
            raise ConfigError(
                f"attentive_sampling cannot use dist_function {self.distance.name}: it compares "
                "states. Use ln_norm, cos_dist or kl_div."
            )
        self.needs_stored_features = reads_stored and not self.needs_queries

    @classmethod
    def from_keys(cls, values: Mapping[str, Any]) -> Sampler:
        """Build the sampler of a buffer."""
        return cls(
            Distance(values["dist_function"], values["p"]),
            values["lambda_batch_multiplier"],
            values["alfa_annealing_factor"],
            values["elite_sampling_strategy"],
        )

    def measure(self, evidence: Evidence) -> Floats:
        """Return the distance `[C]` by which candidates are ranked."""
        raise NotImplementedError

    def choose(self, n: int, draws: NDArray[np.int64], evidence: Evidence) -> Indices:
        """Rank the candidates and apply the strategy."""
        return select(self.strategy, self.measure(evidence), draws, n)


class Elite(_Scored):
    """Prefer unrolls whose rows look to the model as they did when they were made.

    Distance: features now (or action distribution now) against those stored with the unroll.
    """

    about = "n of λ·n random ones, for which the network's output has changed least"
    keys: ClassVar[Mapping[str, Key]] = {
        **Annealed.keys,
        "elite_sampling_strategy": _strategy_key(3),
    }

    def measure(self, evidence: Evidence) -> Floats:
        """Return how far each candidate has drifted since it was made."""
        return self.distance.drift(evidence)


class Attentive(_Scored):
    """Prefer unrolls through states like those where the agent is now.

    Distance: mean over the rows of a candidate of the distance to the nearest query, both under the
    present model. Queries are the last rows of the newest unrolls.
    """

    about = "of λ·n random ones, the n nearest to where the agent is now"
    keys: ClassVar[Mapping[str, Key]] = {
        **Annealed.keys,
        "elite_sampling_strategy": _strategy_key(1),
    }
    needs_queries = True

    def measure(self, evidence: Evidence) -> Floats:
        """Return how far each candidate is from the present states."""
        return self.distance.to_nearest(evidence)


def select(strategy: int, distances: Floats, draws: NDArray[np.int64], n: int) -> Indices:
    """Return the positions of exactly n of C >= 1 candidates; all different if C >= n.

    Strategies, over the candidates sorted by distance:
      1. the n nearest;
      2. cut into n strata of equal size (but for one), the nearest of each: keeps some variety;
      3. the least drawn, among equals the nearest;
      4. as 2, but of each stratum the least drawn, among equals the nearest.

    With fewer candidates than n all are taken, and again from the start of the order.

    Args:
      strategy: number of the strategy, 1 to 4.
      distances: [C] distances; smaller is closer.
      draws: [C] number of earlier draws.
      n: number of draws.
    """
    nearest_first = np.argsort(distances, kind="stable")
    count = len(nearest_first)
    if strategy == 3:
        order = np.lexsort((distances, draws))  # the last key is the primary one
    elif strategy == 1 or count <= n:
        order = nearest_first
    else:
        bounds = np.arange(n + 1) * count // n
        order = nearest_first[bounds[:-1]]
        if strategy == 4:
            # argmin takes the first of equals, which is the nearest.
            order = nearest_first[
                [
                    start + int(np.argmin(draws[nearest_first[start:stop]]))
                    for start, stop in pairwise(bounds)
                ]
            ]
    return np.resize(order, n)  # repeats the order if it is shorter than n

"""Samplers, and a remover, that compare items by distances, which need the present model."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ritornello.core.errors import ConfigError
from ritornello.replay.distance import Distance
from ritornello.replay.entry_table import EntryTable
from ritornello.replay.evidence import Evidence, Floats
from ritornello.replay.keys import Key
from ritornello.replay.removers import Remover
from ritornello.replay.sampler import Indices, Sampler
from ritornello.replay.samplers import Annealed

STRATEGIES = (1, 2, 3, 4)


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
        """Rank candidates by `distance`, by default the 2-norm of features; see `Annealed`.

        `strategy` is 1 to 4 (see `select`), by default that of the kind.

        Raises:
          ConfigError: if the kind compares different states, but `distance` is policy_kl, which
            compares two policies in one state.
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
        """Build the sampler from the values of its keys, among which are those of `Distance`."""
        return cls(
            Distance(values["dist_function"], values["p"]),
            values["lambda_batch_multiplier"],
            values["alfa_annealing_factor"],
            values["elite_sampling_strategy"],
        )

    def measure(self, evidence: Evidence) -> Floats:
        """Return the distance by which candidates are ranked, [C]."""
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
    """Return the indices of exactly n of C >= 1 candidates; all different if C >= n.

    Strategies, over the candidates sorted by distance:
      1. the n nearest;
      2. cut into n strata of equal size (but for one), the nearest of each: keeps some variety;
      3. the least drawn, among equals the nearest;
      4. as 2, but of each stratum the least drawn, among equals the nearest.

    If there are fewer candidates than n, all are taken, and again from the start of the order.

    Args:
      strategy: number of the strategy, 1 to 4.
      distances: [C] distance of each candidate; smaller is closer.
      draws: [C] number of earlier draws of each candidate.
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


class FarthestFeatures(Remover):
    """Elite insertion: of some random items, drop the one that has drifted farthest.

    The distances are those of the last measurement: `measure` is asked about `count` random items
    every `period` batches, because a forward pass for each arriving unroll would delay the ingest
    thread. An item that was never measured has distance 0.
    """

    def __init__(
        self, distance: Distance | None = None, elite_batch_size: int = 20, score_period: int = 1
    ) -> None:
        """Measure drift by `distance`, by default the 2-norm of features.

        `elite_batch_size` random items are compared when one is dropped, and as many are measured
        at each examination, every `score_period` batches.
        """
        self.distance = distance or Distance()
        self.needs_stored_features = self.distance.needs_stored_features
        self.count = elite_batch_size
        self.period = score_period

    def measure(self, evidence: Evidence) -> Floats:
        """Return the drift of each item, [C]; a NaN counts as the farthest.

        Nothing can be learned from such an item, and NaN is neither near nor far.
        """
        drift = self.distance.drift(evidence)
        return np.where(np.isnan(drift), np.inf, drift)

    def victim(self, table: EntryTable, rng: Generator) -> int:
        """Return the farthest of `elite_batch_size` random entries.

        On a tie this is the oldest entry of the buffer, if it is among the equals, or else any of
        them.
        """
        entries, oldest = table.entries, table.oldest()
        count = min(self.count, len(entries))
        compared = [int(i) for i in rng.choice(len(entries), count, replace=False)]
        farthest = max(entries[i].distance for i in compared)
        if entries[oldest].distance == farthest and oldest in compared:
            return oldest
        return next(i for i in compared if entries[i].distance == farthest)

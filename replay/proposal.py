"""What a buffer offers for a batch: candidates, from which as many as are wanted are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ritornello.replay.distance import Floats
from ritornello.replay.item import Item


@dataclass(frozen=True)
class Proposal:
    """Candidates for `count` draws, with their counters as they were when proposed."""

    count: int
    items: list[Item]
    draws: NDArray[np.int64]  # [C]
    weights: Floats | None = None  # [C] importance weights; None: all are 1

    @property
    def leaves_a_choice(self) -> bool:
        """Whether there are more candidates than draws, so that they must be scored."""
        return len(self.items) > self.count

    def weighted(self) -> Iterator[tuple[Item, float]]:
        """Yield the items with their importance weights."""
        weights = [1.0] * len(self.items) if self.weights is None else self.weights.tolist()
        yield from zip(self.items, weights, strict=True)

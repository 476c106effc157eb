"""How often an unroll may be drawn on average, where no queue sets the pace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ritornello.core.saved_state import expect, items, number

NO_PACE = {"pace": [0, 0], "draws_per_unroll": None}  # the state where a queue sets it


class Pace:
    """Holds draws per unroll near a given number, from both sides.

    This is the samples-per-insert limiter of Reverb (Cassirer et al. 2021): `balance` is kept in
    [-slack, slack] by making the learner wait at one end and the workers at the other. The slack is
    one batch (or what one unroll allows, if more), so that one side can always go on.
    """

    def __init__(self, draws_per_unroll: float, batch_size: int) -> None:
        """Start balanced; `draws_per_unroll` is above 0."""
        self.draws_per_unroll = draws_per_unroll
        self.batch_size = batch_size
        self.slack = max(float(batch_size), draws_per_unroll)
        self.unrolls = 0
        self.draws = 0

    @property
    def balance(self) -> float:
        """Draws that are still owed to the unrolls so far."""
        return self.draws_per_unroll * self.unrolls - self.draws

    def state_dict(self) -> dict[str, Any]:
        """Return the counts, [unrolls, draws], and the rate by which they are judged."""
        return {"pace": [self.unrolls, self.draws], "draws_per_unroll": self.draws_per_unroll}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state from `state_dict`; an older state has no rate, and gets this one.

        If the rate has changed, only the balance is kept: otherwise one side would have to wait for
        all that was done at the old rate.
        """
        self.unrolls, self.draws = items(state, "pace", int)
        rate = number(state, "draws_per_unroll", default=None)
        expect(min(self.unrolls, self.draws) >= 0, "counts from 0", "pace")
        expect(rate is None or rate > 0, "a rate above 0", "draws_per_unroll")
        if rate in (None, self.draws_per_unroll):
            return
        owed = min(max(rate * self.unrolls - self.draws, -self.slack), self.slack)
        self.unrolls = math.ceil(max(owed, 0.0) / self.draws_per_unroll)
        self.draws = round(self.draws_per_unroll * self.unrolls - owed)

    def allows_batch(self) -> bool:
        """Whether another batch keeps the learner from running ahead."""
        return self.balance - self.batch_size >= -self.slack

    def allows_unroll(self) -> bool:
        """Whether another unroll keeps the workers from running ahead."""
        return self.balance + self.draws_per_unroll <= self.slack

"""How many draws of a batch come from each buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import Any

from ritornello.core.saved_state import expect, item, items, within

FINEST = 10**18  # largest common denominator of shares, with which claims stay below 2^80


def with_replay_share(
    ratios: Sequence[Fraction], consumes: Sequence[bool], share: Fraction
) -> list[Fraction]:
    """Return ratios of which replay has this share; within each side they keep their proportions.

    Args:
      ratios: share of each buffer in a batch; the sum is 1.
      consumes: whether each buffer is a queue; at least one is, and at least one is not.
      share: new share of all buffers together that are no queues, between 0 and 1.
    """
    own = replay_share(ratios, consumes)
    assert own is not None, "only asked where a share can be changed"
    return [
        ratio * ((1 - share) / (1 - own) if is_queue else share / own)
        for ratio, is_queue in zip(ratios, consumes, strict=True)
    ]


def replay_share(ratios: Sequence[Fraction], consumes: Sequence[bool]) -> Fraction | None:
    """Return the share of a batch from buffers that are no queues; None if it is 0 or 1.

    The arguments are those of `with_replay_share`.
    """
    share = sum((r for r, q in zip(ratios, consumes, strict=True) if not q), Fraction(0))
    return share if 0 < share < 1 else None


def _with_bounded_denominator(ratios: Sequence[Fraction]) -> list[Fraction]:
    """Return the ratios; in parts of FINEST if their common denominator is larger than that.

    Five shares of seven digits have one of 24 digits, and sums of those get longer and longer.
    """
    if lcm(*(ratio.denominator for ratio in ratios)) <= FINEST:
        return list(ratios)
    parts = [max(1, round(ratio * FINEST)) for ratio in ratios]
    parts[parts.index(max(parts))] += FINEST - sum(parts)
    return [Fraction(part, FINEST) for part in parts]


class Quotas:
    """Whole numbers per batch that keep exact ratios in the long run.

    Largest remainder with a carry: what a buffer got too little (or too much) in one batch is added
    to its claim on the next. So each batch has exactly B draws for any B, and after k batches each
    buffer has had ratio * k * B draws, to within a few.
    """

    def __init__(
        self,
        ratios: Sequence[Fraction],
        batch_size: int,
        consumes: Sequence[bool] = (),
        most: Sequence[int] = (),
    ) -> None:
        """Start with nothing carried.

        `ratios` are the share of each buffer in a batch, above 0 and of sum 1; `batch_size` is at
        least 1. `consumes` says which buffers are queues; without it the share of replay cannot be
        changed. A batch has at most `most` draws of each buffer, its ratio * B or more.
        """
        self.batch_size = batch_size
        self._most = tuple(most) or (batch_size,) * len(ratios)
        self._ratios, self._consumes = tuple(ratios), tuple(consumes) or (False,) * len(ratios)
        self._share: Fraction | None = None  # of replay, where somebody has changed it
        # Share of replay by the ratios of the start; None: it cannot be changed.
        self.own_share = replay_share(self._ratios, self._consumes)
        self._follow(ratios)

    def _follow(self, ratios: Sequence[Fraction]) -> None:
        ratios = _with_bounded_denominator(ratios)
        # In whole units of 1 / denominator of a draw, nothing is ever rounded.
        self._unit = lcm(*(ratio.denominator for ratio in ratios))
        self._claims = [int(ratio * self._unit) * self.batch_size for ratio in ratios]
        self.carry = [0] * len(ratios)

    def next(self) -> list[int]:
        """Return the draws per buffer of the next batch: not negative, of sum `batch_size`."""
        due = [claim + carry for claim, carry in zip(self._claims, self.carry, strict=True)]
        counts = [
            min(max(0, units // self._unit), most)
            for units, most in zip(due, self._most, strict=True)
        ]
        left = [units - count * self._unit for units, count in zip(due, counts, strict=True)]
        while (missing := self.batch_size - sum(counts)) != 0:
            step = 1 if missing > 0 else -1
            able = [i for i, most in enumerate(self._most) if 0 <= counts[i] + step <= most]
            neediest = max(able, key=lambda i: step * left[i])  # the first one, among equals
            counts[neediest] += step
            left[neediest] -= step * self._unit
        self.carry = left
        return counts

    def set_replay_share(self, share: Fraction) -> None:
        """Set the share of replay, between 0 and 1, from the next batch on.

        Call this only if there is an `own_share`.
        """
        if share == (self._share or self.own_share):
            return  # what is carried from batch to batch stays as well
        self._follow(with_replay_share(self._ratios, self._consumes, share))
        self._share = None if share == self.own_share else share

    def state_dict(self) -> dict[str, Any]:
        """Return the carry, the claims it belongs to, and the share if somebody has changed it."""
        share = None if self._share is None else [*self._share.as_integer_ratio()]
        claims = {"claims": [self._unit, *self._claims], "carry": list(self.carry)}
        return {"quotas": claims, "share": share}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Take over a state from `state_dict`; return whether its carry could be taken over.

        With another batch size or other ratios it cannot.

        Raises:
          StateError: if `state` is malformed.
        """
        share = items(state, "share", int, default=None)
        if share is not None and self.own_share is not None:
            fits = len(share) == 2 and 0 < share[0] < share[1]
            expect(fits, "a share of replay between 0 and 1", "share")
            self.set_replay_share(Fraction(*share))
        saved = item(state, "quotas", dict)
        with within("quotas"):
            if items(saved, "claims", int) != [self._unit, *self._claims]:
                return False
            carry = items(saved, "carry", int)
            limit = self._unit * (1 + self.batch_size)
            fits = len(carry) == len(self._claims) and all(abs(units) <= limit for units in carry)
            expect(fits and sum(carry) == 0, "less than a batch for each buffer, 0 in all", "carry")
        self.carry = carry
        return True

"""Which rows of a batch are learned from: no resets, and no burn-in.

A recurrent model starts each unroll from the state that the actor was in. In a replayed unroll that
state comes from weights of long ago; with *burn-in* (Kapturowski et al., "Recurrent Experience
Replay in Distributed Reinforcement Learning", R2D2, 2019, section 3) its first rows only bring the
state up to date: nothing is learned there, and no gradient flows back into them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ritornello.agent.algorithms.batch import Batch


class Rows(NamedTuple):
    """What counts in a batch of T steps of B unrolls."""

    valid: Tensor  # [T, B] bool, steps that are learned from
    keep_gradient: Tensor | None  # [T+1, B] bool, for `ActorCritic.hidden`; None: all True


def learnable_rows(batch: Batch, burn_in_steps: int = 0) -> Rows:
    """Return which rows count.

    V-trace looks ahead only, so what it says of the rows after the burn-in does not depend on those
    before.

    Args:
      batch: T steps of B unrolls.
      burn_in_steps: k, first rows of replayed unrolls that only warm the memory up.
    """
    valid = ~batch.reset_row
    if not burn_in_steps:
        return Rows(valid, None)
    row = torch.arange(batch.steps + 1, device=batch.is_online.device).unsqueeze(-1)
    replayed = ~batch.is_online
    burn_in = (row[:-1] < burn_in_steps) & replayed
    # To cut all that is before row `burn_in_steps`, cutting the state that enters it is enough.
    return Rows(valid & ~burn_in, ~((row == burn_in_steps) & replayed))

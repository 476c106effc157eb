"""IMPALA whose values begin at the mean of their targets: an arm of queue.yaml.

    --algorithm=research.values_begin:values_begin

A value head says 0 at first. Where returns are far from 0, all advantages have one sign for
thousands of updates, and every action is discouraged, or encouraged, whatever it was. Here the
statistics of PopArt move by a tenth in each of the first updates of a game, and the head is not
rewritten, so that its values follow the mean of the targets, which follow the values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import Loss, register_algorithm
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.models.popart import PopArt

FIRST = 100  # updates
STEP_SIZE = 0.1


class BeginningPopArt(PopArt):
    """A value head whose outputs follow its statistics for the first updates.

    The number of updates is not saved: an arm of research is not resumed within them.
    """

    moves = 0

    def _move(self, sums: Tensor, optimiser: torch.optim.Optimizer | None) -> None:
        self.moves += 1
        if self.moves > FIRST:
            super()._move(sums, optimiser)
            return
        count, first, second = torch.where(sums.isfinite().all(), sums, 0.0)
        share = STEP_SIZE * (count > 0).to(sums.dtype)
        self.mu += share * (first / count.clamp(min=1) - self.mu)
        self.nu += share * (second / count.clamp(min=1) - self.nu)


@register_algorithm("values_begin")
class ValuesBegin(Impala):
    """V-trace with a `BeginningPopArt`, in a run that starts anew."""

    def loss(self, model: Any, *args: Any, **kwargs: Any) -> Loss:
        """Return IMPALA's loss."""
        head = model.value_head
        if type(head) is PopArt and not head.mu.any():
            head.__class__ = BeginningPopArt
        return super().loss(model, *args, **kwargs)

"""The gradient of all learners together, and whose batch is to blame if it is not finite.

All learners see the same sum, so all of them come to the same decision: they all make an update, or
they all leave it out. Next to read: agent/process_group.py, which lists what else is summed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import Algorithm, Loss
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.algorithms.non_finite import (
    Culprit,
    NonFiniteUpdate,
    blame_gradient,
    blame_loss,
    find_culprit,
)
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.process_group import ProcessGroup


class Gradient:
    """The gradient of one update. The parameters hold that of the own batch until `hand_over`."""

    def __init__(self, parameters: Sequence[Tensor], loss: Loss, group: ProcessGroup) -> None:
        """Add up over all learners: one sum of one flat tensor, the loss included.

        Args:
          parameters: with the gradient of the own batch; those without one are left out.
          loss: the loss of the own batch.
          group: sums over learners.
        """
        self._own = [p.grad for p in parameters if p.grad is not None]
        self._summed = self._own
        total = loss.total.detach()
        if group.world_size > 1:
            flat = torch.cat([*(part.flatten() for part in self._own), total.reshape(1)])
            group.sum_(flat, "gradient")
            sizes = [*(part.numel() for part in self._own), 1]
            *pieces, total = torch.split(flat, sizes)
            self._summed = [
                piece.view(part.shape) for piece, part in zip(pieces, self._own, strict=True)
            ]
        self.norm = torch.nn.utils.get_total_norm(self._summed, foreach=True)  # []
        self.is_finite = torch.isfinite(self.norm + total)  # [] bool: an update can be made

    def hand_over(self) -> None:
        """Give the parameters the gradient of all learners."""
        if self._summed is not self._own:
            torch._foreach_copy_(self._own, self._summed)


def error_of(
    loss: Loss,
    batch: Batch,
    algorithm: Algorithm,
    model: ActorCritic,
    update: int,
    group: ProcessGroup,
) -> NonFiniteUpdate:
    """Return the error of an update that is not finite.

    Args:
      loss: the loss of the own batch.
      batch: the own batch.
      algorithm: what the loss is from.
      model: the network, in its state before the update, with the gradient of the own batch.
      update: number of the update.
      group: sums over learners; each finds out whether its own batch is to blame.
    """
    own, size = group.rank, group.world_size
    culprit = find_culprit(algorithm, model, batch)
    # Not by the own loss: through the sums, it is no better than that of the others.
    counts = group.sum_numbers([float(culprit is not None and rank == own) for rank in range(size)])
    bad = [str(rank) for rank, count in enumerate(counts) if count]
    if culprit is None and bad:
        whose = f"learner {bad[0]}" if len(bad) == 1 else f"learners {', '.join(bad)}"
        culprit = Culprit("learner", f"the batch of {whose} is not finite")
    return NonFiniteUpdate(update, culprit or blame_loss(loss.metrics) or blame_gradient(model))

"""In which units is learned: values by PopArt, advantages by the scale of their game.

PopArt moves its statistics towards the targets of a batch and rewrites the value head so that no
output changes (agent/models/popart.py). So the order is: targets in reward units -> `move_units` ->
values of the rewritten head (`values_to_learn`), which the losses differentiate.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.algorithms.passes import Pass
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.models.popart import Values
from ritornello.agent.reduction import ALONE, Reduction


@torch.no_grad()
def move_units(
    model: ActorCritic,
    batch: Batch,
    targets: Tensor,
    learned: Tensor,
    optimiser: torch.optim.Optimizer | None,
    across: Reduction = ALONE,
) -> Tensor:
    """Move PopArt's statistics, if the model has them; return the targets in the new units.

    Args:
      model: whose value head is rewritten.
      batch: T steps of B unrolls.
      targets: [T, B] float32, of values, in reward units.
      learned: [T, B] bool, steps that count.
      optimiser: whose moments are rescaled along with the value head.
      across: sums over learners.
    """
    if model.value_head.enabled:
        model.value_head.update(targets, batch.task_id, learned, optimiser, across)
    return model.value_head.normalise(targets, batch.task_id)


def values_to_learn(model: ActorCritic, batch: Batch, seen: Pass) -> Tensor:
    """Return values [T, B] in the units of the value loss, with a gradient. After `move_units`."""
    if model.value_head.enabled:
        # The head has just been rewritten, so what the losses differentiate is its new form.
        rewritten: Values = model.value_head(seen.hidden, batch.task_id)
        return rewritten.value_normalised[:-1]
    return seen.heads.value_normalised[:-1]


@torch.no_grad()
def scaled_advantages(
    model: ActorCritic,
    batch: Batch,
    advantages: Tensor,
    learned: Tensor,
    normalisation: str,
    across: Reduction = ALONE,
) -> Tensor:
    """Divide by sigma of the game (what makes one entropy cost fit all games), then by rms.

    Each game by its own rms: one in which something happens all the time would otherwise leave
    hardly any policy gradient to one with a point now and then.

    Args:
      model: whose value head knows the scale of each game.
      batch: T steps of B unrolls.
      advantages: [T, B] float32, in reward units.
      learned: [T, B] bool, steps that count.
      normalisation: "none" or "rms", besides sigma.
      across: sums over learners.
    """
    head = model.value_head
    if head.enabled:
        advantages = advantages / head.scale(batch.task_id)
    if normalisation == "rms":
        belongs = batch.task_id == torch.arange(
            head.task_count, device=batch.task_id.device
        ).unsqueeze(-1)  # [K, B]
        sums = torch.stack([advantages.square() * learned, learned.float()]).sum(1)  # [2, B]
        of_games = across.sum_((sums.unsqueeze(1) * belongs).sum(-1), "advantages")
        squares, counts = of_games  # each [K]
        rms = (squares / counts.clamp(min=1)).sqrt()
        advantages = advantages / (rms[batch.task_id] + 1e-8)
    return advantages


def popart_figures(model: ActorCritic) -> dict[str, Tensor]:
    """Return the statistics of each game as metrics; none if the model has no PopArt."""
    if not model.value_head.enabled:
        return {}
    statistics = {"mu": model.value_head.mu.clone(), "sigma": model.value_head.sigma}
    return {
        f"popart/{name}_{task}": value
        for name, of_task in statistics.items()
        for task, value in enumerate(of_task.unbind())
    }

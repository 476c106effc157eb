"""IMPALA with a value loss that shapes the network as much as the policy's does, times a share.

    python main.py --algorithm=research.critic_share:critic_share --gradient_metrics=True

For the question `critic_share` of queue.yaml. The cost of values makes the gradient of their
loss at the hidden units `share` times that of the policy loss (`grad/value_to_policy`), so that one
setting fits games whose returns are small and large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from ritornello.agent.algorithms.base import Loss, register_algorithm
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.algorithms.impala_config import ImpalaConfig
from ritornello.agent.models.base import ActorCritic

LOWEST, HIGHEST = 0.1, 50.0  # of the cost


@dataclass(frozen=True)
class CriticShareConfig(ImpalaConfig):
    """Settings of IMPALA, and of the share."""

    share: float = 0.3  # SB3's PPO and A2C have 0.26 to 0.65
    rate: float = 0.01  # of the way to the cost that the last batch asks for, as a power


@register_algorithm("critic_share")
class CriticShare(Impala):
    """Its state is the cost of values."""

    Config = CriticShareConfig
    sums_over_learners = False  # each would move a cost of its own
    config: CriticShareConfig

    def loss(
        self,
        model: ActorCritic,
        batch: Batch,
        optimiser: torch.optim.Optimizer | None = None,
        progress: float | torch.Tensor = 0.0,
    ) -> Loss:
        """Compute the loss at the present cost, and move the cost."""
        loss = super().loss(model, batch, optimiser, progress)
        config = self.config
        ratio = float(loss.metrics.get("grad/value_to_policy", torch.tensor(config.share)))
        if ratio > 0 and ratio < float("inf"):
            cost = config.value_cost * (config.share / ratio) ** config.rate
            self.config = replace(config, value_cost=min(HIGHEST, max(LOWEST, cost)))
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the cost."""
        return {"value_cost": self.config.value_cost}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with a cost."""
        self.config = replace(self.config, value_cost=float(state["value_cost"]))

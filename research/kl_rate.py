"""IMPALA with a learning rate that follows how far the policy moves: an arm of queue.yaml.

    --algorithm=research.kl_rate:kl_rate

Where the policy has moved by more than a target KL since replayed data were made, the rate falls,
below the schedule's; where it has moved by less, it rises again, up to the schedule's. So control
locomotion libraries PPO's rate (Rudin et al. 2022, "Learning to walk in minutes",
https://arxiv.org/abs/2109.11978, table of settings), by the KL within an update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import ImpalaConfig, Loss, register_algorithm
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.models.base import ActorCritic
from ritornello.metrics.record import declare

MEASURED = "replay/standard/kl_behaviour_target"
SMALLEST = 0.02  # factor of the rate
SMOOTHED = 0.05  # share of the newest batch in the mean KL

declare("optimiser/kl_factor", "", "Factor of the learning rate that follows the KL.")


@dataclass(frozen=True)
class KlRateConfig(ImpalaConfig):
    """Settings of IMPALA, and of the control."""

    target: float = 0.04  # nats, mean KL of the policy that acted and the one that is trained
    speed: float = 0.003  # by which the factor's logarithm changes with each update


@register_algorithm("kl_rate")
class KlRate(Impala):
    """IMPALA's loss; the rate of the optimiser's step is multiplied by a factor."""

    Config = KlRateConfig
    config: KlRateConfig
    loss_is_pure = False
    _log_factor = 0.0
    _kl = math.nan  # mean over some batches
    _hooked: torch.optim.Optimizer | None = None

    def loss(
        self,
        model: ActorCritic,
        batch: Batch,
        optimiser: torch.optim.Optimizer | None = None,
        progress: float | Tensor = 0.0,
    ) -> Loss:
        """Compute IMPALA's loss, and move the factor by what it says of the policy."""
        loss = super().loss(model, batch, optimiser, progress)
        if optimiser is not None and self._hooked is not optimiser:
            optimiser.register_step_pre_hook(self._scale)
            self._hooked = optimiser
        kl = float(loss.metrics.get(MEASURED, math.nan))
        if not math.isnan(kl):
            self._kl = kl if math.isnan(self._kl) else self._kl + SMOOTHED * (kl - self._kl)
            step = self.config.speed * (1 if self._kl < self.config.target else -1)
            self._log_factor = min(0.0, max(math.log(SMALLEST), self._log_factor + step))
        factor = torch.tensor(math.exp(self._log_factor))
        return loss._replace(metrics=loss.metrics | {"optimiser/kl_factor": factor})

    def _scale(self, optimiser: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimiser.param_groups:  # the learner sets them anew before each step
            group["lr"] = group["lr"] * math.exp(self._log_factor)

    def state_dict(self) -> dict[str, Any]:
        """Return what has been measured."""
        return {"log_factor": self._log_factor, "kl": self._kl}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with it."""
        self._log_factor, self._kl = float(state["log_factor"]), float(state["kl"])

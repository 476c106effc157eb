"""IMPALA whose critic sees more: arms of queue.yaml.

    --algorithm=research.value_arms:short_horizons --model=research.value_arms:horizons
    --algorithm=research.value_arms:histogram --model=research.value_arms:bins
    --algorithm=research.value_arms:action_values --model=research.value_arms:actions

They put linear heads of their own on the hidden units, which nothing acts by: their loss shapes the
network. Sizes: T steps, B unrolls, H hidden units, K horizons.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from ritornello.agent.algorithms import losses
from ritornello.agent.algorithms.base import Loss, register_algorithm
from ritornello.agent.algorithms.batch import REWARD_TRANSFORMS, Batch
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.algorithms.impala_config import ImpalaConfig, VTraceConfig
from ritornello.agent.algorithms.vtrace import VTrace
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.models.networks import Network, NetworkRequest
from ritornello.agent.models.torsos import ImageTorso
from ritornello.flags.parts import NETWORKS
from ritornello.metrics.record import declare

HORIZONS = (0.8, 0.9, 0.97)  # discounts
BINS, LARGEST = 51, 5.0  # of normalised values
MOST_ACTIONS = 18  # of Atari
SMALLEST = 1e-3  # of a scale, in reward units


def _with_head(outputs: int) -> Network:
    """Return the default network with a linear head that its forward pass leaves out."""

    def build(want: NetworkRequest) -> nn.Module:
        torso = ImageTorso(
            "impala_shallow", want.obs_shape, want.feature_count,
            normalise_pixels=want.normalise_pixels, layer_norm=want.layer_norm,
        )  # fmt: skip
        torso.auxiliary = nn.Linear(torso.feature_count, outputs)
        return torso

    return Network(build, sees="images", takes_raw=True, takes_layer_norm=True)


NETWORKS.add("horizons", _with_head(len(HORIZONS)), __name__)
NETWORKS.add("bins", _with_head(BINS), __name__)
NETWORKS.add("actions", _with_head(MOST_ACTIONS), __name__)
declare("loss/auxiliary", "", "Loss of the head that nothing acts by.")


def scaled_error(values: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    """Return 0.5 error^2 over the error's root mean square: as strong in each game."""
    error = (targets - values)[valid]
    scale = error.detach().square().mean().sqrt().clamp(min=SMALLEST)
    return 0.5 * error.square().mean() / scale


@dataclass(frozen=True)
class AuxiliaryConfig(ImpalaConfig):
    """Settings of IMPALA, and the cost of the own head."""

    auxiliary_cost: float = 0.25


class Auxiliary(Impala):
    """IMPALA with one more term of the loss; a subclass says which."""

    Config = AuxiliaryConfig
    config: AuxiliaryConfig
    sums_over_learners = False
    _corrected: tuple[VTrace, Tensor]
    _last_value: Tensor  # [1, B], which bootstraps

    def correct(  # type: ignore[override]
        self, config: VTraceConfig, batch: Batch, log_rhos: Tensor, values: Tensor,
        trust: Tensor | None = None,
    ) -> VTrace:  # fmt: skip
        """Remember what V-trace says."""
        corrected = losses.correct(config, batch, log_rhos, values, trust)
        self._corrected, self._last_value = (corrected, log_rhos), values[-1:]
        return corrected

    def loss(
        self,
        model: ActorCritic,
        batch: Batch,
        optimiser: torch.optim.Optimizer | None = None,
        progress: float | Tensor = 0.0,
    ) -> Loss:
        """Add the term to IMPALA's loss."""
        caught: list[Tensor] = []
        hook = model.policy_head.register_forward_pre_hook(
            lambda _, inputs: caught.append(inputs[0])
        )
        loss = super().loss(model, batch, optimiser, progress)
        hook.remove()
        made = cast("nn.Linear", model.torso_net.auxiliary)(caught[0])  # [T+1, B, outputs]
        term = self.config.auxiliary_cost * self.term(model, batch, made)
        metrics = loss.metrics | {"loss/auxiliary": term.detach()}
        return loss._replace(total=loss.total + term, metrics=metrics)

    def term(self, model: ActorCritic, batch: Batch, made: Tensor) -> Tensor:
        """Return a 0-d loss of what the own head made of all rows."""
        raise NotImplementedError


@register_algorithm("short_horizons")
class ShortHorizons(Auxiliary):
    """Values of K shorter horizons (Fedus et al. 2019, https://arxiv.org/abs/1902.06865)."""

    def term(self, model: ActorCritic, batch: Batch, made: Tensor) -> Tensor:
        """Return the errors of all horizons, each with targets of its own."""
        log_rhos = self._corrected[1]
        total = made.new_zeros(())
        for k, discount in enumerate(HORIZONS):
            values = made[..., k]
            config = replace(self.config, discount=discount)
            with torch.no_grad():
                targets = losses.correct(config, batch, log_rhos, values.detach()).targets
            total = total + scaled_error(values[:-1], targets, ~batch.reset_row)
        return total


@register_algorithm("action_values")
class ActionValues(Auxiliary):
    """Values of actions, as a critic of ACER learns them (https://arxiv.org/abs/1611.01224).

    What an action is worth says what it causes; values of states do not have to know it.
    """

    def term(self, model: ActorCritic, batch: Batch, made: Tensor) -> Tensor:
        """Return the error against r + gamma v', with V-trace's v' of the next state."""
        values = made[:-1].gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)
        reward = REWARD_TRANSFORMS[self.config.reward_transform](batch.reward)
        corrected, _ = self._corrected
        following = torch.cat([corrected.targets[1:], self._last_value])
        # Over a reset row V-trace's value is that of the row itself, as it should be.
        targets = reward + self.config.discount * ~batch.terminated * following
        return scaled_error(values, targets, ~batch.reset_row)


@register_algorithm("histogram")
class Histogram(Auxiliary):
    """Values as a histogram (HL-Gauss: Farebrother et al. 2024, https://arxiv.org/abs/2403.03950).

    Of values in PopArt's units; the gradient is as strong for small errors as for large ones.
    """

    def term(self, model: ActorCritic, batch: Batch, made: Tensor) -> Tensor:
        """Return the cross-entropy with a normal distribution around each target."""
        valid = ~batch.reset_row
        targets = model.value_head.normalise(self._corrected[0].targets, batch.task_id)[valid]
        edges = torch.linspace(-LARGEST, LARGEST, BINS + 1, device=made.device)
        deviation = 0.75 * (edges[1] - edges[0])  # as in the paper
        inside = targets.clamp(-LARGEST + 0.1, LARGEST - 0.1).unsqueeze(-1)
        below = torch.special.ndtr((edges - inside) / deviation)
        wanted = below.diff(dim=-1) / (below[..., -1:] - below[..., :1])
        return -(wanted * made[:-1][valid].log_softmax(-1)).sum(-1).mean()

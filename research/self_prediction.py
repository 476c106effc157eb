"""IMPALA whose features also say what the agent's actions lead to: arms of queue.yaml.

    --algorithm=research.self_prediction:self_prediction --model=research.self_prediction:dynamics

From some features of an unroll and the actions that were done, a small network predicts the
features and the rewards of the next steps (SPR: Schwarzer et al. 2021,
https://arxiv.org/abs/2007.05929; rewards as well: MR.Q, Fujimoto et al. 2025,
https://arxiv.org/abs/2501.16142). Nothing acts by it: its loss shapes the torso. Sizes: T steps, B
unrolls, F features, S starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ritornello.agent.algorithms.base import ImpalaConfig, Loss, register_algorithm
from ritornello.agent.algorithms.batch import REWARD_TRANSFORMS, Batch
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.models.networks import Network, NetworkRequest
from ritornello.agent.models.torsos import ImageTorso
from ritornello.flags.parts import NETWORKS
from ritornello.metrics.record import declare

MOST_ACTIONS = 18  # of Atari
STARTS_EACH = 4  # steps: predictions start at every fourth row
STEPS_AHEAD = 8

declare("loss/features_ahead", "", "1 minus the cosine of predicted and actual features.")
declare("loss/rewards_ahead", "", "Squared error of predicted rewards.")


class Dynamics(nn.Module):
    """Predicts the features after an action, and the reward that it brings."""

    def __init__(self, feature_count: int) -> None:
        """Build it for F features."""
        super().__init__()
        self.action = nn.Embedding(MOST_ACTIONS, feature_count)
        self.before = nn.Linear(feature_count, feature_count)
        self.after = nn.Linear(feature_count, feature_count)
        self.reward = nn.Linear(feature_count, 1)

    def forward(self, features: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Map features [..., F] and actions [...] to features [..., F] and rewards [...]."""
        hidden = F.relu(self.before(features) + self.action(action))
        # Layers of a torso start large, and rewards are hardly ever more than 0.
        return F.relu(features + self.after(hidden)), 0.1 * self.reward(hidden).squeeze(-1)


def _with_dynamics(want: NetworkRequest) -> nn.Module:
    torso = ImageTorso("impala_shallow", want)
    torso.dynamics = Dynamics(torso.feature_count)
    return torso


NETWORKS.add(
    "dynamics", Network(_with_dynamics, "images", takes_raw=True, takes_layer_norm=True), __name__
)


@dataclass(frozen=True)
class SelfPredictionConfig(ImpalaConfig):
    """Settings of IMPALA, and the costs of both predictions."""

    features_cost: float = 0.25
    rewards_cost: float = 0.25


@register_algorithm("self_prediction")
class SelfPrediction(Impala):
    """IMPALA with two more terms in its loss."""

    Config = SelfPredictionConfig
    config: SelfPredictionConfig
    sums_over_learners = False

    def loss(
        self,
        model: ActorCritic,
        batch: Batch,
        optimiser: torch.optim.Optimizer | None = None,
        progress: float | Tensor = 0.0,
    ) -> Loss:
        """Add the predictions' errors to IMPALA's loss."""
        caught: list[Tensor] = []
        hook = model.policy_head.register_forward_pre_hook(
            lambda _, inputs: caught.append(inputs[0])
        )
        loss = super().loss(model, batch, optimiser, progress)
        hook.remove()
        of_features, of_rewards = self.errors_ahead(model, batch, caught[0])
        config = self.config
        total = loss.total + config.features_cost * of_features + config.rewards_cost * of_rewards
        metrics = loss.metrics | {
            "loss/features_ahead": of_features.detach(),
            "loss/rewards_ahead": of_rewards.detach(),
        }
        return loss._replace(total=total, metrics=metrics)

    def errors_ahead(
        self, model: ActorCritic, batch: Batch, features: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the mean errors of features and rewards over all steps ahead, without resets.

        `features` are [T+1, B, F], with a gradient.
        """
        dynamics = cast("Dynamics", model.torso_net.dynamics)
        rewards = REWARD_TRANSFORMS[self.config.reward_transform](batch.reward)  # [T, B]
        steps = batch.steps
        starts = torch.arange(0, steps, STARTS_EACH)
        predicted, holds = features[starts], torch.ones(len(starts), features.shape[1]).bool()
        of_features, of_rewards, counts = [], [], []
        for ahead in range(STEPS_AHEAD):
            inside = starts + ahead < steps
            starts, predicted, holds = starts[inside], predicted[inside], holds[inside]
            row = starts + ahead
            holds = holds & ~batch.reset_row[row]  # [S, B]
            predicted, reward = dynamics(predicted, batch.action[row])
            cosine = F.cosine_similarity(predicted, features[row + 1].detach(), dim=-1)
            of_features.append(((1 - cosine) * holds).sum())
            of_rewards.append(((reward - rewards[row]).square() * holds).sum())
            counts.append(holds.sum())
        count = torch.stack(counts).sum().clamp(min=1)
        return torch.stack(of_features).sum() / count, torch.stack(of_rewards).sum() / count

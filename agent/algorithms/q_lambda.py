"""Q(lambda): values of actions, learned from lambda returns, without a target network.

As in PQN (parallelised Q-learning: Gallici et al. 2024, https://arxiv.org/abs/2407.04811), but with
replay. N_t is the expected return from x_t on:

    G_t = r_t + discount_t ((1 - lambda) N_{t+1} + lambda G_{t+1}),     G_T = N_T
    loss = 0.5 (G_t - Q(x_t, a_t))^2

* `sarsa`: N is the value of the action that was taken (Sarsa(lambda): Rummery and Niranjan 1994),
  of the best one where none was: at the end of an unroll and where time has cut an episode.
* `peng`: N is that of the best action (Peng and Williams 1996), as in PQN. The best of several
  noisy values is too high by their noise.

Sizes: T steps, B unrolls, A actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ritornello.agent.algorithms import losses
from ritornello.agent.algorithms.base import (
    Algorithm,
    Loss,
    LossConfig,
    on_line,
    register_algorithm,
)
from ritornello.agent.algorithms.batch import (
    REWARD_TRANSFORMS,
    Batch,
    forward,
    learnable_rows,
)
from ritornello.agent.algorithms.health import buffer_health, foresight, value_health
from ritornello.agent.models.action_values import ActionValueModel
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.models.pixels import snapshot_of
from ritornello.core.errors import ConfigError
from ritornello.flags.kinds import Fraction01, Share


@dataclass(frozen=True)
class QLambdaConfig(LossConfig):
    """Settings of the loss and of exploration."""

    trace: Literal["sarsa", "peng"] = "sarsa"
    trace_lambda: Fraction01 = 0.9  # PQN: 0.65; 0: one-step targets
    epsilon: Fraction01 = 1.0  # share of actions at random, at first
    epsilon_end: Fraction01 = 0.01
    epsilon_end_share: Share = 0.05  # share of the training after which it is reached

    def __post_init__(self) -> None:
        """Raise ConfigError if epsilon would rise."""
        if self.epsilon_end > self.epsilon:
            raise ConfigError(
                f"epsilon_end is {self.epsilon_end}, expected at most epsilon, {self.epsilon}: "
                "give both in --algorithm_kwargs."
            )


@register_algorithm("q_lambda")
class QLambda(Algorithm):
    """Q(lambda). Stateless: epsilon is the model's, and follows from the progress."""

    Config = QLambdaConfig
    config: QLambdaConfig
    sums_over_learners = True
    acts_by_values = True
    loss_is_pure = True
    _model: ActionValueModel  # the model that it trains; known after `check`

    def check(self, model: ActorCritic) -> None:
        """Raise ConfigError if it cannot train this model; let it explore as at the start."""
        super().check(model)
        assert isinstance(model, ActionValueModel)
        head = model.value_head
        if head.enabled:
            raise ConfigError(
                "use_popart is True, expected False for q_lambda: when PopArt's statistics move it "
                "keeps values of states, and not those of actions. --preset=q_lambda has it so."
            )
        if head.task_count > 1 and self.config.reward_transform == "none":
            raise ConfigError(
                "reward_clipping_method is none, expected another for several games with q_lambda: "
                "the game with the largest rewards would take the whole gradient. Use "
                "--reward_clipping_method=abs_one_sign."
            )
        self._model = model
        model.explore(self.config.epsilon)

    def snapshot(self) -> Callable[[], None]:
        """Remember epsilon; return a function that restores it."""
        return snapshot_of([self._model.epsilon])

    def loss(
        self,
        model: ActorCritic,
        batch: Batch,
        optimiser: torch.optim.Optimizer | None = None,
        progress: float | Tensor = 0.0,
    ) -> Loss:
        """Compute the loss of one batch, and move epsilon."""
        assert isinstance(model, ActionValueModel)
        config, group = self.config, self.group
        epsilon = on_line(progress, config.epsilon, config.epsilon_end, config.epsilon_end_share)
        model.explore(epsilon)
        valid, keep_gradient = learnable_rows(batch, config.burn_in_steps)  # [T, B]
        seen = forward(model, batch, keep_gradient)
        values = model.action_values(seen.hidden[:-1], batch.task_id)
        values = values.gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)  # Q(x_t, a_t)
        targets = self._returns(batch, seen.heads.value, values.detach(), valid)
        per_step = {"value": config.value_cost * losses.value_error(values, targets) * valid}
        total, metrics = losses.reduced(per_step, valid, config.loss_reduction, batch.weight, group)

        metrics |= value_health(valid, values.detach(), targets, config.value_bound)
        metrics["value/foresight"] = foresight(config, batch, valid, seen.heads.value)
        metrics["q/epsilon"] = model.epsilon.clone()
        metrics |= buffer_health(batch, self.buffers, valid.sum(0), {})
        errors = (targets - values.detach()).abs()
        return Loss(total, metrics, errors.masked_fill(~valid, math.nan))

    @torch.no_grad()
    def _returns(self, batch: Batch, best: Tensor, chosen: Tensor, valid: Tensor) -> Tensor:
        """Return G [T, B], of the values of the best actions [T+1, B] and of those taken [T, B]."""
        config, expected = self.config, best
        if config.trace == "sarsa":
            # Nothing is chosen on a reset row, which shows how an episode was cut.
            expected = torch.cat([torch.where(valid, chosen, best[:-1]), best[-1:]])
        rewards = REWARD_TRANSFORMS[config.reward_transform](batch.reward)
        discounts = config.discount * ~batch.terminated
        return lambda_returns(rewards, discounts, expected, config.trace_lambda * valid.float())


@torch.no_grad()
def lambda_returns(rewards: Tensor, discounts: Tensor, expected: Tensor, traces: Tensor) -> Tensor:
    """Return G [T, B], as at the head of this file.

    Args:
      rewards: [T, B] float32.
      discounts: [T, B] float32; 0 where the episode terminated.
      expected: [T+1, B] float32, N.
      traces: [T, B] float32, lambda; 0 on reset rows, over which nothing flows back.
    """
    flowing = torch.zeros_like(expected[0])  # lambda (G - N) of the step after
    backwards = []
    for t in range(len(rewards) - 1, -1, -1):
        returns = rewards[t] + discounts[t] * (expected[t + 1] + flowing)
        flowing = traces[t] * (returns - expected[t])
        backwards.append(returns)
    return torch.stack(backwards[::-1])

"""An algorithm of one's own: --algorithm=tests.extensions.own_algorithm:ppo."""

import math
from dataclasses import dataclass

import torch

from ritornello.agent.algorithms import losses
from ritornello.agent.algorithms.base import ActorCriticConfig, Algorithm, Loss, register_algorithm
from ritornello.agent.algorithms.batch import REWARD_TRANSFORMS, forward, learnable_rows
from ritornello.agent.algorithms.health import policy_health, value_health
from ritornello.agent.algorithms.vtrace import vtrace


@dataclass(frozen=True)
class PpoConfig(ActorCriticConfig):
    """Fields of ActorCriticConfig come from their flags, these from --algorithm_kwargs."""

    clip: float = 0.2
    dropped: float = 0.5  # share of the unrolls of a batch, at random, that are not learned from


@register_algorithm("ppo")
class Ppo(Algorithm):
    """Clipped policy ratios (Schulman et al. 2017), with V-trace's targets and advantages."""

    Config = PpoConfig
    takes_any_action = True

    def __init__(self, config, buffers=()):
        super().__init__(config, buffers)
        self.generator = torch.Generator().manual_seed(0)

    def loss(self, model, batch, optimiser=None, progress=0.0):
        config = self.config
        kept = torch.rand(batch.size, generator=self.generator) >= config.dropped
        valid, keep_gradient = learnable_rows(batch, config.burn_in_steps)
        valid = valid & kept.to(valid.device)
        seen = forward(model, batch, keep_gradient)
        log_ratios = seen.log_ratio
        with torch.no_grad():
            log_rhos = log_ratios.masked_fill(~valid, -math.inf)
            reward = REWARD_TRANSFORMS[config.reward_transform](batch.reward)
            discounts = config.discount * ~batch.terminated
            corrected = vtrace(log_rhos, discounts, reward, seen.heads.value)
            targets = losses.update_popart(model, batch, corrected.targets, valid, optimiser)
            advantages = losses.normalised_advantages(
                model, batch, corrected.advantages, valid, config.advantage_normalisation
            )
        values = losses.values_for_loss(model, batch, seen)
        ratios = log_ratios.masked_fill(~valid, 0).exp()
        clipped = ratios.clamp(1 - config.clip, 1 + config.clip)
        gain = torch.minimum(ratios * advantages, clipped * advantages)
        entropy = seen.pi.entropy()
        per_step = {
            "policy": -config.policy_cost * gain * valid,
            "value": config.value_cost * losses.value_error(values, targets) * valid,
            "entropy": -config.entropy_cost_at(progress) * entropy * valid,
        }
        total, metrics = losses.reduced(per_step, valid, config.loss_reduction, batch.weight)
        metrics |= policy_health(batch, seen, valid, log_rhos, 1 + config.clip, entropy=entropy)
        metrics |= value_health(valid, seen.heads.value[:-1], corrected.targets)
        errors = (targets - values.detach()).abs()  # for replay by priorities
        return Loss(total, metrics, errors.masked_fill(~valid, math.nan))

    def state_dict(self):
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state):
        self.generator.set_state(state["generator"])

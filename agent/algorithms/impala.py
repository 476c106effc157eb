"""IMPALA: the loss of V-trace actor-critic, with the options of its successors.

One class holds the flow of an update. Its settings are in base.py, the rows that count and the
pass of the model in batch.py, all terms in losses.py, the formula in vtrace.py. The flow is:

    torso over T+1 rows, once -> hidden units, row after row if the model has a memory -> values ->
    V-trace -> PopArt moves statistics, rewrites the value head -> value head -> normalised losses

The options are LASER's trust region (no states in which the policy has changed too much), CLEAR's
cloning of replayed behaviour, and PopArt, a property of the model. Sizes: T steps, B unrolls. Next
to read: agent/learning/learner.py, which takes the step.
"""

from __future__ import annotations

import math

import torch

from ritornello.agent.algorithms import losses
from ritornello.agent.algorithms.base import Algorithm, ImpalaConfig, Loss, register_algorithm
from ritornello.agent.algorithms.batch import Batch, forward, learnable_rows
from ritornello.agent.algorithms.health import (
    credit_health,
    policy_health,
    value_health,
    value_to_policy,
)
from ritornello.agent.distributions import NO_IMPLIED_KL
from ritornello.agent.models.base import ActorCritic
from ritornello.core.errors import ConfigError


@register_algorithm("impala")
class Impala(Algorithm):
    """The V-trace actor-critic loss. Stateless: everything learned is in the model."""

    Config = ImpalaConfig
    config: ImpalaConfig
    sums_over_learners = True
    takes_any_action = True
    loss_is_pure = True
    correct = staticmethod(losses.correct)  # a subclass may have other targets and advantages

    def check(self, model: ActorCritic) -> None:
        """Raise ConfigError if it cannot train this model."""
        super().check(model)
        if self.config.trust_region == "implied" and not model.distribution.has_implied_kl:
            raise ConfigError(NO_IMPLIED_KL)

    def loss(
        self,
        model: ActorCritic,
        batch: Batch,
        optimiser: torch.optim.Optimizer | None = None,
        progress: float | torch.Tensor = 0.0,
    ) -> Loss:
        """Compute the loss of one batch; move PopArt's statistics if the model has them.

        The arguments are those of `Algorithm.loss`.
        """
        config, group = self.config, self.group
        valid, keep_gradient = learnable_rows(batch, config.burn_in_steps)  # [T, B]
        seen = forward(model, batch, keep_gradient)

        with torch.no_grad():
            # A ratio of 0 makes V-trace cut there: nothing is learned from a reset row, and
            # nothing flows back over it.
            log_rhos = seen.log_ratio.masked_fill(~valid, -math.inf)
            trust = losses.trusted(seen, self.config)
            corrected = self.correct(config, batch, log_rhos, seen.heads.value, trust)
            learned = valid if trust is None else valid & trust
            targets = losses.update_popart(
                model, batch, corrected.targets, learned, optimiser, group
            )
            advantages = losses.normalised_advantages(
                model, batch, corrected.advantages, learned, config.advantage_normalisation, group
            )
        values = losses.values_for_loss(model, batch, seen)

        per_step = {
            "policy": config.policy_cost * losses.policy_gradient(seen.log_pi_action, advantages),
            "value": config.value_cost * losses.value_error(values, targets),
        }
        per_step = {name: term * learned for name, term in per_step.items()}
        entropy = seen.pi.entropy()
        counted = learned & batch.is_online if config.entropy_online_only else learned
        per_step["entropy"] = -config.entropy_cost_at(progress) * entropy * counted
        per_step |= losses.cloning_terms(model, batch, seen, values, valid, config)

        total, metrics = losses.reduced(per_step, valid, config.loss_reduction, batch.weight, group)
        metrics |= policy_health(
            batch, seen, valid, log_rhos, config.rho_bar,
            entropy=entropy, trust=trust, buffers=self.buffers,
        )  # fmt: skip
        metrics |= value_health(valid, seen.heads.value[:-1], corrected.targets, config.value_bound)
        metrics |= credit_health(config, batch, valid, log_rhos, seen.heads.value, trust)
        if config.gradient_metrics:
            metrics |= value_to_policy(seen.hidden, per_step, batch.weight)
        metrics |= losses.popart_metrics(model)
        errors = (targets - values.detach()).abs()
        return Loss(total, metrics, errors.masked_fill(~learned, math.nan))

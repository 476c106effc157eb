"""IMPACT: clipped policy steps measured against a target network, for data that is used repeatedly.

Luo et al., "IMPACT: Importance Weighted Asynchronous Architectures with Clipped Target Networks"
(ICLR 2020, https://arxiv.org/abs/1912.00167). Three policies take part: pi, which is trained; mu,
the worker that acted; and pi_target, a copy of pi that is renewed every `target_period` updates.
With rho = `ratio_bar` and epsilon = `surrogate_clip`,

    R_t = pi(a_t|x_t) / max(pi_target(a_t|x_t), mu(a_t|x_t) / rho)
        = min(mu(a_t|x_t) / pi_target(a_t|x_t), rho) pi(a_t|x_t) / mu(a_t|x_t)
    L   = -mean_t min(R_t A_t, clip(R_t, 1 - epsilon, 1 + epsilon) A_t)

The advantages A_t and the value targets come from V-trace with the ratios pi_target / mu: they are
about the policy that R_t measures from. They need values, and here these are the target network's
as well, so that one policy and one value function stand behind all of them, and neither moves while
a batch is used for the second time. (`value_source` = "policy" takes those of the trained network.)
The replay kind `circular` hands out each unroll K times; with its N batches, all data is new after
N * K updates, which is how long a target is used.

If the worker is the target too, R_t is PPO's ratio, and the loss is PPO's with advantages from
V-trace. If the trained policy is the target as well, R_t is 1 where mu / pi is at most rho, and the
gradient there is that of V-trace.

The flow is that of agent/algorithms/impala.py, with a second pass of the model, the target's, which
needs no gradient. Sizes: T steps, B unrolls, A actions.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ritornello.agent.algorithms import losses
from ritornello.agent.algorithms.base import Algorithm, Loss, VTraceConfig, register_algorithm
from ritornello.agent.algorithms.batch import Batch, Pass, forward, learnable_rows
from ritornello.agent.algorithms.health import (
    credit_health,
    policy_health,
    value_health,
    value_to_policy,
)
from ritornello.agent.algorithms.vtrace import VTrace
from ritornello.agent.models.base import ActorCritic
from ritornello.core.saved_state import item, whole
from ritornello.flags.kinds import Bound, Count, ValueSource


@dataclass(frozen=True)
class ImpactConfig(VTraceConfig):
    """Everything that decides the loss. Costs are per step; see `loss_reduction`."""

    surrogate_clip: Bound = 0.3  # epsilon: how far the ratio may be from 1; 0.2 to 0.4 published
    ratio_bar: Bound = 2.0  # rho: pi_worker / pi_target is clipped there, within the ratio
    target_period: Count = 1  # updates between two copies to the target network; N * K
    value_source: ValueSource = "target"  # whose values make targets and advantages


class _TargetPass(NamedTuple):
    """Outputs of the target network for a batch, none with a gradient."""

    target: Pass
    log_rhos: Tensor  # [T, B], log pi_target - log mu of the actions; -inf where nothing is learned
    corrected: VTrace


@register_algorithm("impact")
class Impact(Algorithm):
    """The clipped surrogate of IMPACT. Its state is the target network.

    The target is a whole model, with the statistics of PopArt and of the observations that belong
    to its weights. So what it says of a state in reward units changes only when it is copied anew.
    """

    Config = ImpactConfig
    config: ImpactConfig
    sums_over_learners = True
    takes_any_action = True
    target: ActorCritic  # there is one after `check`

    def check(self, model: ActorCritic) -> None:
        """Raise ConfigError if the model cannot be trained; make the target network."""
        super().check(model)
        self.target = copy.deepcopy(model).requires_grad_(False)
        # Updates with the present copy; None: it is of no use yet, because weights may still be
        # loaded into the model.
        self._age: int | None = None

    def networks(self) -> tuple[ActorCritic, ...]:
        """Return the target network, which runs on the learner's device like the model."""
        return (self.target,)

    def loss(
        self,
        model: ActorCritic,
        batch: Batch,
        optimiser: torch.optim.Optimizer | None = None,
        progress: float | torch.Tensor = 0.0,
    ) -> Loss:
        """Compute the loss of one batch.

        It moves PopArt's statistics if the model has them, and counts an update of the target's
        life, at whose end the model, as it is now, becomes the next target.
        """
        config, group = self.config, self.group
        age = self._count_update(model)
        valid, keep_gradient = learnable_rows(batch, config.burn_in_steps)  # [T, B]
        seen = forward(model, batch, keep_gradient)
        by_target = self._target_pass(batch, seen, valid)
        with torch.no_grad():
            corrected = by_target.corrected
            targets = losses.update_popart(model, batch, corrected.targets, valid, optimiser, group)
            advantages = losses.normalised_advantages(
                model, batch, corrected.advantages, valid, config.advantage_normalisation, group
            )
        values = losses.values_for_loss(model, batch, seen)

        log_ratios = losses.log_ratio_to_target(
            seen.log_pi_action, by_target.target.log_pi_action, seen.log_mu_action, config.ratio_bar
        )
        policy = losses.clipped_surrogate(log_ratios, advantages, config.surrogate_clip)
        entropy = seen.pi.entropy()
        counted = valid & batch.is_online if config.entropy_online_only else valid
        per_step = {
            "policy": config.policy_cost * policy * valid,
            "value": config.value_cost * losses.value_error(values, targets) * valid,
            "entropy": -config.entropy_cost_at(progress) * entropy * counted,
        }
        total, metrics = losses.reduced(per_step, valid, config.loss_reduction, batch.weight, group)
        metrics |= policy_health(
            batch, seen, valid, by_target.log_rhos, config.rho_bar,
            entropy=entropy, buffers=self.buffers,
        )  # fmt: skip
        metrics |= self._figures(seen, by_target.target, log_ratios, advantages, valid)
        metrics["impact/target_age_updates"] = total.new_tensor(float(age))
        metrics |= value_health(valid, seen.heads.value[:-1], corrected.targets, config.value_bound)
        metrics |= credit_health(config, batch, valid, by_target.log_rhos, seen.heads.value)
        if config.gradient_metrics:
            metrics |= value_to_policy(seen.hidden, per_step, batch.weight)
        metrics |= losses.popart_metrics(model)
        errors = (targets - values.detach()).abs()
        return Loss(total, metrics, errors.masked_fill(~valid, math.nan))

    def state_dict(self) -> dict[str, Any]:
        """Return weights and age of the target; the tensors are those in use."""
        return {"weights": dict(self.target.state_dict()), "age": self._age}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`; a state of another network raises RuntimeError."""
        self.target.load_state_dict(item(state, "weights", dict))
        self._age = whole(state, "age", default=None)

    def snapshot(self) -> Callable[[], None]:
        """Remember the target; return a function that restores it."""
        age = self._age
        # Else the weights stay as they are, and need no copy.
        weights = copy.deepcopy(self.target.state_dict()) if self._is_due else None

        def restore() -> None:
            self._age = age
            if weights is not None:
                self.target.load_state_dict(weights)

        return restore

    @property
    def _is_due(self) -> bool:
        """Whether the next update begins with a new copy."""
        return self._age is None or self._age >= self.config.target_period

    @torch.no_grad()
    def _count_update(self, model: ActorCritic) -> int:
        """Copy the model if that is due; return the number of updates made with the copy so far."""
        if self._is_due:
            self.target.load_state_dict(model.state_dict())
            self._age = 0
        age = self._age or 0
        self._age = age + 1
        return age

    @torch.no_grad()
    def _target_pass(self, batch: Batch, seen: Pass, valid: Tensor) -> _TargetPass:
        """Let the target network look at the batch, and run V-trace for its policy."""
        # Its weights need no gradient, so none is recorded; but only where gradients are on does a
        # model compute in several threads (`ActorCritic.set_threads`).
        with torch.enable_grad():
            target = forward(self.target, batch)
        # A ratio of 0 makes V-trace cut there: nothing is learned from a reset row, and nothing
        # flows back over it.
        log_rhos = target.log_ratio.masked_fill(~valid, -math.inf)
        by = target if self.config.value_source == "target" else seen
        return _TargetPass(
            target, log_rhos, losses.correct(self.config, batch, log_rhos, by.heads.value)
        )

    @torch.no_grad()
    def _figures(
        self, seen: Pass, target: Pass, log_ratios: Tensor, advantages: Tensor, valid: Tensor
    ) -> dict[str, Tensor]:
        """Return how far policy and target are apart, averaged over valid steps; see health.py."""
        clip = self.config.surrogate_clip
        ratios = log_ratios.exp()
        # Where the minimum is the clipped term, no gradient flows.
        is_clipped = ((ratios > 1 + clip) & (advantages > 0)) | (
            (ratios < 1 - clip) & (advantages < 0)
        )
        rows = {
            "impact/ratio_mean": ratios,
            "impact/ratio_clipped_fraction": is_clipped.float(),
            "impact/kl_target_policy": target.pi.kl(seen.pi),
        }
        sums = torch.stack(list(rows.values())).masked_fill(~valid, 0).sum((1, 2))
        return dict(zip(rows, (sums / valid.sum().clamp(min=1)).unbind(), strict=True))

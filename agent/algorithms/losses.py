"""The terms of a loss, per step. Distances between policies are agent/distributions.py's.

All functions are pure, take float32 and, but for `reduced`, return one number per step. Masking and
weighting is the algorithm's business (impala.py). pi is the policy being trained, mu the one that
acted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ritornello.agent.distributions import MAX_LOG_RATIO, Policy
from ritornello.agent.reduction import ALONE, Reduction


def policy_gradient(log_pi_action: Tensor, advantages: Tensor) -> Tensor:
    """Return -A_t log pi(a_t|x_t); advantages are constants."""
    return -advantages.detach() * log_pi_action


def log_ratio_to_target(
    log_pi_action: Tensor, log_target_action: Tensor, log_mu_action: Tensor, ratio_bar: float
) -> Tensor:
    """Return IMPACT's log R_t = log pi - max(log pi_target, log mu - log ratio_bar).

    Luo et al. 2020, https://arxiv.org/abs/1912.00167: pi / pi_target, but at most `ratio_bar`
    pi / mu, so that actions which the target hardly ever takes get no enormous ratio. Gradient
    flows through pi only.

    Args:
      log_pi_action: [...], log-probability of the action that was done, by the trained policy.
      log_target_action: [...], by the target policy.
      log_mu_action: [...], by the policy that acted.
      ratio_bar: rho, bound of mu / pi_target.
    """
    base = torch.maximum(log_target_action, log_mu_action - math.log(ratio_bar)).detach()
    return (log_pi_action - base).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def clipped_surrogate(log_ratios: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Return -min(R A, clip(R, 1 - clip, 1 + clip) A); advantages are constants.

    Schulman et al. 2017, "Proximal Policy Optimization", https://arxiv.org/abs/1707.06347: a step
    that would carry the ratio further away than `clip` is not rewarded.
    """
    constant = advantages.detach()
    ratios = log_ratios.exp()
    clipped = ratios.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratios * constant, clipped * constant)


def value_error(values: Tensor, targets: Tensor) -> Tensor:
    """Return half the squared error, 0.5 (v_t - V_t)^2; targets are constants.

    IMPALA's released code has this half *and* a cost of 0.5 outside: an effective 0.25.
    """
    return 0.5 * (values - targets.detach()).square()


def policy_cloning(mu: Policy, pi: Policy) -> Tensor:
    """Return CLEAR's KL(mu || pi): behaviour first, so that pi keeps all that mu did.

    Rolnick et al. 2019, https://arxiv.org/abs/1811.11682. Gradient flows through pi only.
    """
    return mu.detach().kl(pi)


def value_cloning(values: Tensor, behaviour_values: Tensor) -> Tensor:
    """Return CLEAR's (V - V_mu)^2, without a half; gradient flows through V only."""
    return (values - behaviour_values.detach()).square()


def reduced(
    per_step: Mapping[str, Tensor],
    valid: Tensor,
    reduction: str,
    weight: Tensor,
    across: Reduction = ALONE,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Add up weighted terms; return the total, with its gradient, and a metric for each of them.

    Args:
      per_step: name -> [T, B] float32, 0 where a step does not count.
      valid: [T, B] bool, the steps that `mean` divides by the number of.
      reduction: "sum" or "mean" over the steps.
      weight: [B] float32, importance weight of each unroll (`Batch.weight`).
      across: sums over learners. The total is then this learner's part of the loss of all of them,
        and the metrics are as if all had batches like this one.
    """
    sums = (torch.stack(list(per_step.values())) * weight).sum((1, 2))
    if reduction == "mean":
        sums = sums / across.sum_(valid.sum(), "count").clamp(min=1)
    total = sums.sum()
    shown = torch.cat([total.reshape(1), sums]).detach()
    if across.world_size > 1:
        shown = shown * across.world_size
    names = ["loss/total", *(f"loss/{name}" for name in per_step)]
    metrics = dict(zip(names, shown.unbind(), strict=True))
    return total, metrics

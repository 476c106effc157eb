"""The terms of a loss, per step. Distances between policies are agent/distributions.py's.

All functions are pure, take float32 and, but for `reduced`, return one number per step. Masking and
weighting is the algorithm's business (impala.py). pi is the policy being trained, mu the one that
acted.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from agent.distributions import Policy
from agent.distributions import entropy as entropy
from agent.distributions import implied_kl as implied_kl
from agent.distributions import kl_divergence as kl_divergence
from agent.reduction import ALONE, Reduction


def policy_gradient(log_pi_action: Tensor, advantages: Tensor) -> Tensor:
    """Return -A_t log pi(a_t|x_t); advantages are constants."""
    return -advantages.detach() * log_pi_action


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

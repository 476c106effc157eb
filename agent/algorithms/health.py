"""Figures that say how far data and policy are apart, and how well values fit. For metrics only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import LossConfig, VTraceConfig
from ritornello.agent.algorithms.batch import REWARD_TRANSFORMS, Batch, Pass
from ritornello.agent.distributions import MAX_LOG_RATIO


@torch.no_grad()
def policy_health(
    batch: Batch,
    seen: Pass,
    valid: Tensor,
    log_rhos: Tensor,
    rho_bar: float,
    *,
    entropy: Tensor,
    trust: Tensor | None = None,
    buffers: Sequence[str] = (),
) -> dict[str, Tensor]:
    """Return how far the data is from the policy, averaged over valid steps.

    Args:
      batch: T steps of B unrolls.
      seen: pass of the model over the batch.
      valid: [T, B] bool, steps that count.
      log_rhos: [T, B] float32, log importance ratios; -inf where nothing is learned.
      rho_bar: bound above which ratios are clipped.
      entropy: [T, B] float32, entropy of the policy.
      trust: [T, B] bool, states inside the trust region; None: there is none.
      buffers: names of the replay buffers, in the order of `Batch.source`.
    """
    ratios = log_rhos.clamp(max=MAX_LOG_RATIO).exp()
    rows = {
        "policy/kl_behaviour_target": seen.mu.kl(seen.pi),
        "policy/entropy": entropy,
        "vtrace/rho_mean": ratios,
        "vtrace/rho_clipped_fraction": (ratios > rho_bar).float(),
        "vtrace/ess": ratios.square(),
    }
    if trust is not None:
        rows["vtrace/masked_fraction"] = (~trust).float()
    sums = (torch.stack(list(rows.values())) * valid).sum(1)  # [rows, B]
    sum_of = dict(zip(rows, sums.unbind(), strict=True))
    steps = valid.sum(0)  # [B]
    means = sums.sum(1) / steps.sum().clamp(min=1)
    metrics = dict(zip(rows, means.unbind(), strict=True))
    # Effective sample size as a share of the steps: (mean rho)^2 / mean rho^2, 1 on-policy.
    mean_square = metrics["vtrace/ess"].clamp(min=1e-12)
    metrics["vtrace/ess"] = metrics["vtrace/rho_mean"].square() / mean_square
    mask = None if batch.action_mask is None else batch.action_mask[:-1]
    highest = seen.pi.highest_entropy(mask)
    if isinstance(highest, Tensor):
        highest = ((highest * valid).sum() / steps.sum().clamp(min=1)).clamp(min=1e-6)
    elif highest == 0:
        highest = math.log(2)  # one action has no entropy to speak of, and a finite share
    if highest is not None:
        metrics["policy/entropy_fraction"] = metrics["policy/entropy"] / highest
    metrics["vtrace/reset_fraction"] = batch.reset_row.float().mean()
    sum_of = {
        name.rsplit("/")[-1]: sum_of[name]
        for name in ("policy/kl_behaviour_target", "vtrace/masked_fraction")
        if name in sum_of
    }
    return metrics | buffer_health(batch, buffers, steps, sum_of)


@torch.no_grad()
def buffer_health(
    batch: Batch, buffers: Sequence[str], steps: Tensor, per_step: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return, for each buffer, the age of its draws and the means of the figures `per_step`.

    Metrics of a buffer from which the batch has no unroll are NaN.

    Args:
      batch: T steps of B unrolls.
      buffers: names of the replay buffers, in the order of `Batch.source`; without them there are
        no metrics.
      steps: [B], number of valid steps of each unroll.
      per_step: name -> [B], sums over the valid steps of each unroll.
    """
    if not buffers:
        return {}
    numbers = torch.arange(len(buffers), device=batch.source.device)
    belongs = batch.source.unsqueeze(-1) == numbers  # [B, K]
    columns = torch.stack([torch.ones_like(steps), batch.age, steps, *per_step.values()])
    draws, ages, counts, *sums = (columns.unsqueeze(-1) * belongs).sum(1).unbind()  # each [K]
    means = {"drawn_age_updates": ages / draws}
    means |= {name: total / counts for name, total in zip(per_step, sums, strict=True)}
    return {
        f"replay/{buffer}/{name}": value
        for name, of_buffers in means.items()
        for buffer, value in zip(buffers, of_buffers.unbind(), strict=True)
    }


@torch.no_grad()
def value_health(
    valid: Tensor, values: Tensor, targets: Tensor, bound: float = math.inf
) -> dict[str, Tensor]:
    """Return how well values explain the targets they are regressed on.

    All three tensors are [T, B]; `valid` are the steps that count, `values` and `targets` are in
    reward units. `bound` is the largest possible value (`LossConfig.value_bound`); inf: not known.
    """
    count = valid.sum().clamp(min=1)
    rows = torch.stack([values, targets, targets - values])
    means = (rows * valid).sum((1, 2)) / count
    # Of deviations: a difference of mean squares would cancel where values are far from 0.
    deviations = (rows - means[:, None, None]) * valid
    _, target_variance, error_variance = deviations.square().sum((1, 2)) / count
    health = {
        "value/mean": means[0],
        "value/target_mean": means[1],
        "value/explained_variance": 1 - error_variance / target_variance.clamp(min=1e-8),
    }
    if bound < math.inf:
        health["value/share_of_bound"] = (targets * valid).abs().amax() / bound
    return health


@torch.no_grad()
def credit_health(
    config: VTraceConfig,
    batch: Batch,
    valid: Tensor,
    log_rhos: Tensor,
    values: Tensor,
    trust: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return how far back a reward is credited, and how much of it the values foresaw.

    The horizon is 1 / (1 - discount * lambda * c), with the mean of V-trace's c = min(c_bar, rho),
    and at most the unroll.

    Args:
      config: has the discount, lambda and c_bar.
      batch: T steps of B unrolls.
      valid: [T, B] bool, steps that count.
      log_rhos: [T, B] float32, log importance ratios; -inf where nothing is learned.
      values: [T+1, B] float32, in reward units.
      trust: [T, B] bool, states over which corrections flow back; None: all.
    """
    c = log_rhos.exp().clamp(max=config.c_bar)
    if trust is not None:
        c = c * trust
    c_mean = (c * valid).sum() / valid.sum().clamp(min=1)
    lost = 1 - config.discount * config.lambda_ * c_mean  # below 0 where c_bar is above 1
    return {
        "vtrace/c_mean": c_mean,
        "vtrace/horizon_steps": 1 / lost.clamp(min=1 / batch.steps),
        "value/foresight": foresight(config, batch, valid, values),
    }


@torch.no_grad()
def foresight(config: LossConfig, batch: Batch, valid: Tensor, values: Tensor) -> Tensor:
    """Return how much of the rewards the values foresaw.

    This is 1 - delta / r over the steps with a reward, where delta = r + discount V' - V: 0 if
    rewards come as a surprise, 1 if V has risen before them, NaN without a reward. `valid` [T, B]
    bool are the steps that count; `values` are [T+1, B] float32, in reward units.
    """
    rewards = REWARD_TRANSFORMS[config.reward_transform](batch.reward) * valid
    deltas = rewards + config.discount * ~batch.terminated * values[1:] - values[:-1]
    return 1 - (deltas * rewards.sign()).sum() / rewards.abs().sum()


def value_to_policy(
    hidden: Tensor, per_step: Mapping[str, Tensor], weight: Tensor
) -> dict[str, Tensor]:
    """Return how strongly the values shape the network, compared with the policy.

    This is the norm of the gradient of the value loss at the hidden units, divided by that of the
    policy loss there: the two losses share all that lies below. Without a gradient of `hidden`
    there is no metric.

    Args:
      hidden: [T+1, B, H], hidden units.
      per_step: has the terms "value" and "policy" of the loss, each [T, B].
      weight: [B], importance weight of each unroll.
    """
    if not hidden.requires_grad:
        return {}
    value, policy = (
        torch.autograd.grad((per_step[name] * weight).sum(), hidden, retain_graph=True)[0].norm()
        for name in ("value", "policy")
    )
    return {"grad/value_to_policy": value / policy}

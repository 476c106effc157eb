"""From a pass of the model to a loss: targets, units, terms per step, and their sum.

`correct` runs V-trace over a batch, `trusted` drops states (LASER), `update_popart`,
`normalised_advantages` and `values_for_loss` bring targets, advantages and values into the units of
the loss, the functions behind them are the terms per step, and `reduced` adds the terms up. The
order is that of impala.py. pi is the policy being trained, mu the one that acted. Sizes: T steps, B
unrolls. Distances between policies are in agent/distributions.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import ImpalaConfig, VTraceConfig
from ritornello.agent.algorithms.batch import REWARD_TRANSFORMS, Batch, Pass
from ritornello.agent.algorithms.vtrace import VTrace, vtrace
from ritornello.agent.distributions import MAX_LOG_RATIO, Policy
from ritornello.agent.models.base import ActorCritic
from ritornello.agent.models.popart import Values
from ritornello.agent.process_group import SINGLE_PROCESS, ProcessGroup

# --- targets and advantages ----------------------------------------------------------------------


def correct(
    config: VTraceConfig,
    batch: Batch,
    log_rhos: Tensor,
    values: Tensor,
    trust: Tensor | None = None,
) -> VTrace:
    """Run V-trace in reward units; twice if the advantages have a lambda of their own.

    Noise harms the policy more, and bias the values, so that a smaller lambda may suit the
    advantages (Aitchison & Sweetser, "DNA", 2022, https://arxiv.org/abs/2206.10027).

    Args:
      config: has the discount, the bars and the lambdas.
      batch: T steps of B unrolls.
      log_rhos: [T, B] float32, log-ratio of the policy whose values are wanted and the one that
        acted; -inf where nothing is learned.
      values: [T+1, B] float32, in reward units.
      trust: [T, B] bool, states over which corrections flow back; None: all.
    """

    def with_lambda(lambda_: float) -> VTrace:
        return vtrace(
            log_rhos,
            config.discount * ~batch.terminated,
            REWARD_TRANSFORMS[config.reward_transform](batch.reward),
            values,
            rho_bar=config.rho_bar,
            c_bar=config.c_bar,
            rho_pg_bar=config.rho_pg_bar,
            lambda_=lambda_,
            trust=trust,
        )

    corrected = with_lambda(config.lambda_)
    if config.advantage_lambda is None:
        return corrected
    return corrected._replace(advantages=with_lambda(config.advantage_lambda).advantages)


def trusted(seen: Pass, config: ImpalaConfig) -> Tensor | None:
    """Return [T, B] bool, states whose policy is still near the one that acted; None: all are.

    LASER's trust region (Schmitt et al. 2019, https://arxiv.org/abs/1909.11583): states in which
    the policy has changed too much are not learned from.
    """
    if config.trust_region == "none":
        return None
    if config.trust_region == "implied":
        distance = seen.pi.implied_kl(seen.mu, config.rho_bar)
    elif config.trust_region == "kl_pi_mu":
        distance = seen.pi.kl(seen.mu)
    else:
        distance = seen.mu.kl(seen.pi)
    return distance < config.trust_threshold


# --- units -------------------------------------------------------------------------------------


@torch.no_grad()
def update_popart(
    model: ActorCritic,
    batch: Batch,
    targets: Tensor,
    learned: Tensor,
    optimiser: torch.optim.Optimizer | None,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Tensor:
    """Move PopArt's statistics, if the model has them; return the targets in the new units.

    PopArt rewrites the value head so that no output changes (agent/models/popart.py). So the order
    is: targets in reward units -> `update_popart` -> values of the rewritten head
    (`values_for_loss`), which the losses differentiate.

    Args:
      model: the network, whose value head is rewritten.
      batch: T steps of B unrolls.
      targets: [T, B] float32, value targets in reward units.
      learned: [T, B] bool, steps that count.
      optimiser: optimiser of `model`; its moments are rescaled along with the value head.
      group: sums over learners.
    """
    if model.value_head.enabled:
        model.value_head.update(targets, batch.task_id, learned, optimiser, group)
    return model.value_head.normalise(targets, batch.task_id)


def values_for_loss(model: ActorCritic, batch: Batch, seen: Pass) -> Tensor:
    """Return values [T, B] in the units of the value loss. Call it after `update_popart`.

    `seen` is the pass of the model over `batch`.
    """
    if model.value_head.enabled:
        # The head has just been rewritten, so what the losses differentiate is its new form.
        rewritten: Values = model.value_head(seen.hidden, batch.task_id)
        return rewritten.value_normalised[:-1]
    return seen.heads.value_normalised[:-1]


@torch.no_grad()
def normalised_advantages(
    model: ActorCritic,
    batch: Batch,
    advantages: Tensor,
    learned: Tensor,
    normalisation: str,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Tensor:
    """Divide advantages by sigma of their game, then by the root mean square of their game.

    Sigma, if the model has PopArt, makes one entropy cost fit all games. Without an rms of each
    game, one in which something happens all the time would leave hardly any policy gradient to one
    with a point now and then.

    Args:
      model: the network, whose value head knows the sigma of each game.
      batch: T steps of B unrolls.
      advantages: [T, B] float32, in reward units.
      learned: [T, B] bool, steps that count.
      normalisation: "rms", or "none" to divide by sigma only.
      group: sums over learners.
    """
    head = model.value_head
    if head.enabled:
        advantages = advantages / head.scale(batch.task_id)
    if normalisation == "rms":
        belongs = batch.task_id == torch.arange(
            head.task_count, device=batch.task_id.device
        ).unsqueeze(-1)  # [K, B]
        sums = torch.stack([advantages.square() * learned, learned.float()]).sum(1)  # [2, B]
        of_games = group.sum_((sums.unsqueeze(1) * belongs).sum(-1), "advantages")
        squares, counts = of_games  # each [K]
        rms = (squares / counts.clamp(min=1)).sqrt()
        advantages = advantages / (rms[batch.task_id] + 1e-8)
    return advantages


def popart_metrics(model: ActorCritic) -> dict[str, Tensor]:
    """Return the statistics of each game as metrics; none if the model has no PopArt."""
    if not model.value_head.enabled:
        return {}
    statistics = {"mu": model.value_head.mu.clone(), "sigma": model.value_head.sigma}
    return {
        f"popart/{name}_{task}": value
        for name, of_task in statistics.items()
        for task, value in enumerate(of_task.unbind())
    }


# --- terms per step ----------------------------------------------------------------------------


def policy_gradient(log_pi_action: Tensor, advantages: Tensor) -> Tensor:
    """Return -A_t log pi(a_t|x_t); advantages are constants."""
    return -advantages.detach() * log_pi_action


def log_ratio_to_target(
    log_pi_action: Tensor, log_target_action: Tensor, log_mu_action: Tensor, ratio_bar: float
) -> Tensor:
    """Return IMPACT's log R_t = log pi - max(log pi_target, log mu - log ratio_bar).

    Luo et al. 2020, https://arxiv.org/abs/1912.00167: R_t is pi / pi_target, but at most
    `ratio_bar` pi / mu, so that actions which the target hardly ever takes get no enormous ratio.
    Gradient flows through pi only.

    Args:
      log_pi_action: [...], log-probability of the action that was done, by the trained policy.
      log_target_action: [...], the same by the target policy.
      log_mu_action: [...], the same by the policy that acted.
      ratio_bar: rho, upper bound of mu / pi_target.
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


def cloning_terms(
    model: ActorCritic,
    batch: Batch,
    seen: Pass,
    values: Tensor,
    valid: Tensor,
    config: ImpalaConfig,
) -> dict[str, Tensor]:
    """Return CLEAR's terms per step of replayed data, or none if their costs are 0.

    The terms keep policy and values near those with which replayed data was made (Rolnick et al.
    2019, https://arxiv.org/abs/1811.11682). They are not restricted to trusted states: the states
    that LASER drops are just those that cloning is for.

    Args:
      model: the network, whose value head knows the units of values.
      batch: T steps of B unrolls.
      seen: pass of the model over the batch.
      values: [T, B] float32, in the units of the value loss, with a gradient.
      valid: [T, B] bool, steps that count.
      config: has the costs.
    """
    terms: dict[str, Tensor] = {}
    mask = valid & ~batch.is_online
    if config.policy_cloning_cost:
        cloning = policy_cloning(seen.mu, seen.pi)
        terms["policy_cloning"] = config.policy_cloning_cost * cloning * mask
    if config.value_cloning_cost:
        # Stored in reward units, because the statistics have moved since; compared in today's.
        behaviour_values = model.value_head.normalise(batch.behaviour_value, batch.task_id)
        cloning = value_cloning(values, behaviour_values)
        terms["value_cloning"] = config.value_cloning_cost * cloning * mask
    return terms


# --- the sum -----------------------------------------------------------------------------------


def reduced(
    per_step: Mapping[str, Tensor],
    valid: Tensor,
    reduction: str,
    weight: Tensor,
    group: ProcessGroup = SINGLE_PROCESS,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Add up weighted terms; return the total, with its gradient, and a metric for each of them.

    Args:
      per_step: name -> [T, B] float32, 0 where a step does not count.
      valid: [T, B] bool, steps that count; "mean" divides by their number.
      reduction: "sum" or "mean" over the steps.
      weight: [B] float32, importance weight of each unroll (`Batch.weight`).
      group: sums over learners. The total is then this learner's part of the loss of all of them,
        and the metrics are as if all had batches like this one.
    """
    sums = (torch.stack(list(per_step.values())) * weight).sum((1, 2))
    if reduction == "mean":
        sums = sums / group.sum_(valid.sum(), "count").clamp(min=1)
    total = sums.sum()
    shown = torch.cat([total.reshape(1), sums]).detach()
    if group.world_size > 1:
        shown = shown * group.world_size
    names = ["loss/total", *(f"loss/{name}" for name in per_step)]
    metrics = dict(zip(names, shown.unbind(), strict=True))
    return total, metrics

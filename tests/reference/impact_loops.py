"""The whole IMPACT loss of one batch in plain Python, for given tables of policies and values."""

import math

from tests.reference.vtrace_loops import vtrace_loops


def ppo_loss_loops(ratio, advantage, clip):
    """Schulman et al. 2017, equation 7, of one step; to be minimised."""
    lower, upper = 1 - clip, 1 + clip
    clipped = lower if ratio < lower else upper if ratio > upper else ratio
    return -min(ratio * advantage, clipped * advantage)


def impact_loss_loops(config, pi, target, mu, values, target_values, batch):
    """Return the weighted terms, summed over the steps they apply to.

    pi[t][b], target[t][b], mu[t][b] are lists of A probabilities; values[t][b] and
    target_values[t][b] (T+1 rows each) are those of the trained and of the target network; batch
    has lists action, reward (already transformed), terminated, reset_row [t][b] and is_online [b].
    """
    steps, size = len(batch["action"]), len(batch["is_online"])
    terms = dict.fromkeys(("policy", "value", "entropy"), 0.0)
    by = target_values if config.value_source == "target" else values
    of_advantages = config.advantage_lambda
    lambdas = (config.lambda_, config.lambda_ if of_advantages is None else of_advantages)
    for b in range(size):
        ratios, discounts = [], []
        for t in range(steps):
            a = batch["action"][t][b]
            reset = batch["reset_row"][t][b]
            ended = batch["terminated"][t][b] or reset
            ratios.append(0.0 if reset else target[t][b][a] / mu[t][b][a])
            discounts.append(0.0 if ended else config.discount)
        targets, advantages = (
            vtrace_loops(
                [by[t][b] for t in range(steps + 1)],
                [batch["reward"][t][b] for t in range(steps)],
                discounts,
                ratios,
                config.rho_bar,
                config.c_bar,
                config.rho_pg_bar,
                lambda_,
            )[part]
            for part, lambda_ in enumerate(lambdas)
        )
        for t in range(steps):
            if batch["reset_row"][t][b]:
                continue
            a = batch["action"][t][b]
            # As the paper writes it: the worker's weight, clipped, times PPO's ratio.
            weight = min(mu[t][b][a] / target[t][b][a], config.ratio_bar)
            ratio = weight * pi[t][b][a] / mu[t][b][a]
            terms["policy"] += config.policy_cost * ppo_loss_loops(
                ratio, advantages[t], config.surrogate_clip
            )
            terms["value"] += config.value_cost * 0.5 * (targets[t] - values[t][b]) ** 2
            if batch["is_online"][b] or not config.entropy_online_only:
                entropy = -sum(p * math.log(p) for p in pi[t][b])
                terms["entropy"] -= config.entropy_cost * entropy
    return terms

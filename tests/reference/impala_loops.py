"""The whole IMPALA loss of one batch in plain Python, for a given policy and value table."""

import math

from tests.reference.laser_loops import behaviour_relevance, kl
from tests.reference.vtrace_loops import vtrace_loops


def impala_loss_loops(config, pi, mu, values, batch):
    """Return the weighted terms, summed over the steps they apply to.

    pi[t][b], mu[t][b] are lists of A probabilities; values[t][b] (T+1 rows) are V now; batch has
    lists action, reward (already transformed), terminated, reset_row, behaviour_value [t][b] and
    is_online [b].
    """
    steps, size = len(batch["action"]), len(batch["is_online"])
    names = ("policy", "value", "entropy", "policy_cloning", "value_cloning")
    terms = dict.fromkeys(names, 0.0)
    of_advantages = config.advantage_lambda
    lambdas = (config.lambda_, config.lambda_ if of_advantages is None else of_advantages)
    for b in range(size):
        ratios, discounts, trusted = [], [], []
        for t in range(steps):
            a = batch["action"][t][b]
            reset = batch["reset_row"][t][b]
            ended = batch["terminated"][t][b] or reset
            ratios.append(0.0 if reset else pi[t][b][a] / mu[t][b][a])
            discounts.append(0.0 if ended else config.discount)
            if config.trust_region == "implied":
                distance = behaviour_relevance(pi[t][b], mu[t][b], config.rho_bar)
                trusted.append(distance < config.trust_threshold)
            else:
                trusted.append(True)
        targets, advantages = (
            vtrace_loops(
                [values[t][b] for t in range(steps + 1)],
                [batch["reward"][t][b] for t in range(steps)],
                discounts,
                ratios,
                config.rho_bar,
                config.c_bar,
                config.rho_pg_bar,
                lambda_,
                trusted,
            )[part]
            for part, lambda_ in enumerate(lambdas)
        )
        for t in range(steps):
            if batch["reset_row"][t][b]:
                continue
            replayed = not batch["is_online"][b]
            if replayed:
                clone = config.policy_cloning_cost * kl(mu[t][b], pi[t][b])
                terms["policy_cloning"] += clone
                gap = values[t][b] - batch["behaviour_value"][t][b]
                terms["value_cloning"] += config.value_cloning_cost * gap**2
            if not trusted[t]:
                continue
            log_pi = math.log(pi[t][b][batch["action"][t][b]])
            terms["policy"] += config.policy_cost * -advantages[t] * log_pi
            terms["value"] += config.value_cost * 0.5 * (targets[t] - values[t][b]) ** 2
            if not (config.entropy_online_only and replayed):
                entropy = -sum(p * math.log(p) for p in pi[t][b])
                terms["entropy"] -= config.entropy_cost * entropy
    return terms

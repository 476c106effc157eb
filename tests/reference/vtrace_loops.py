"""V-trace in plain Python. Slow on purpose: read it beside Espeholt et al. 2018, section 4.1."""


def vtrace_loops(
    values,
    rewards,
    discounts,
    ratios,
    rho_bar=1.0,
    c_bar=1.0,
    rho_pg_bar=1.0,
    lambda_=1.0,
    trust=None,
):
    """V-trace as the paper writes it: a sum over t of products over i.

    values has T+1 entries, all others T. `trust` cuts what flows back from a state on.
    """
    steps = len(rewards)
    trusted = [True] * steps if trust is None else trust
    corrections = []
    for s in range(steps):
        correction = 0.0
        for t in range(s, steps):
            weight = 1.0
            for i in range(s, t):  # an empty product is 1
                weight *= discounts[i] * lambda_ * min(c_bar, ratios[i]) * trusted[i + 1]
            delta = min(rho_bar, ratios[t]) * (
                rewards[t] + discounts[t] * values[t + 1] - values[t]
            )
            correction += weight * delta
        corrections.append(correction)
    corrections.append(0.0)
    trusted = [*trusted, True]
    targets = [values[t] + corrections[t] for t in range(steps)]
    advantages = []
    for t in range(steps):
        next_target = values[t + 1] + trusted[t + 1] * corrections[t + 1]
        q = rewards[t] + discounts[t] * next_target
        advantages.append(min(rho_pg_bar, ratios[t]) * (q - values[t]))
    return targets, advantages


def n_step_returns(values, rewards, discounts):
    """Sum of discounted rewards to the end of the unroll, plus the discounted bootstrap."""
    returns = []
    for s in range(len(rewards)):
        total, weight = 0.0, 1.0
        for t in range(s, len(rewards)):
            total += weight * rewards[t]
            weight *= discounts[t]
        returns.append(total + weight * values[-1])
    return returns

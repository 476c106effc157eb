"""The loss of Q(lambda) of one batch in plain Python, for a given table of values of actions."""

import math


def lambda_return(config, rewards, discounts, best, chosen, reset, start):
    """G of step `start`, forwards: returns of n steps, weighted by powers of lambda.

    rewards, discounts, chosen and reset have T entries, best has T+1.
    """
    steps, n_step = len(rewards), 0.0
    total, left, discount = 0.0, 1.0, 1.0
    for t in range(start, steps):
        n_step += discount * rewards[t]
        discount *= discounts[t]
        is_last = t + 1 == steps or reset[t + 1]
        taken = best[t + 1] if is_last or config.trace == "peng" else chosen[t + 1]
        weight = left if is_last else left * (1 - config.trace_lambda)
        total += weight * (n_step + discount * taken)
        left -= weight
        if is_last:
            return total
    raise AssertionError


def q_lambda_loss_loops(config, values, batch):
    """Return the sum of the loss, and |G - Q| [T][B], NaN where nothing is learned.

    values[t][b][a] has T+1 rows.
    """
    steps, size = batch.steps, batch.size
    actions = range(len(values[0][0]))
    total, errors = 0.0, [[math.nan] * size for _ in range(steps)]
    for b in range(size):
        best = [
            max(
                values[t][b][a]
                for a in actions
                if batch.action_mask is None or batch.action_mask[t, b, a].item()
            )
            for t in range(steps + 1)
        ]
        chosen = [values[t][b][batch.action[t, b].item()] for t in range(steps)]
        reset = batch.reset_row[:, b].tolist()
        discounts = [config.discount * (not ended) for ended in batch.terminated[:, b].tolist()]
        rewards = batch.reward[:, b].tolist()
        if config.reward_transform == "abs_one_sign":
            rewards = [(reward > 0) - (reward < 0) for reward in rewards]
        first = 0 if batch.is_online[b] else config.burn_in_steps
        for t in range(first, steps):
            if reset[t]:
                continue
            target = lambda_return(config, rewards, discounts, best, chosen, reset, t)
            errors[t][b] = abs(target - chosen[t])
            loss = config.value_cost * 0.5 * (target - chosen[t]) ** 2
            total += batch.weight[b].item() * loss
    return total, errors

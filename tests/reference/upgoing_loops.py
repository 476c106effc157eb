"""Upgoing advantages in plain Python, as Vinyals et al. 2019 write the return."""


def upgoing_loops(values, rewards, discounts, ratios, rho_pg_bar=1.0):
    """G_t - V_t of each step, times its clipped ratio. values has T+1 entries, all others T.

    A ratio of 0 marks a reset row: nothing is followed into it.
    """
    steps = len(rewards)

    def follows(t):
        """Whether step t was done and went at least as well as its value."""
        return ratios[t] > 0 and rewards[t] + discounts[t] * values[t + 1] >= values[t]

    def upgoing_return(t):
        if t + 1 < steps and follows(t + 1):
            return rewards[t] + discounts[t] * upgoing_return(t + 1)
        return rewards[t] + discounts[t] * values[t + 1]

    return [min(rho_pg_bar, ratios[t]) * (upgoing_return(t) - values[t]) for t in range(steps)]

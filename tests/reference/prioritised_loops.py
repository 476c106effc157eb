"""Prioritised replay as Schaul et al. (2016) write it, in plain loops: slow on purpose."""


def position_hit(masses, target):
    """Walk along the masses until the target is used up."""
    for position, mass in enumerate(masses):
        if target < mass:
            return position
        target -= mass
    return max(position for position, mass in enumerate(masses) if mass > 0)


def importance_weights(masses, drawn, beta):
    """Return w_i = (1 / (N P(i)))^beta / max w of the drawn positions."""
    weights = []
    for position in drawn:
        probability = masses[position] / sum(masses)
        weights.append((1 / len(masses) * 1 / probability) ** beta)
    return [weight / max(weights) for weight in weights]


def unroll_priority(errors, learned, alpha, eta, epsilon):
    """Return (eta max |delta| + (1 - eta) mean |delta| + epsilon)^alpha over learned steps."""
    counted = [error for error, counts in zip(errors, learned, strict=True) if counts]
    if not counted:
        return epsilon**alpha
    mean = sum(counted) / len(counted)
    return (eta * max(counted) + (1 - eta) * mean + epsilon) ** alpha

"""LASER's behaviour relevance from its definition, in plain Python; Schmitt et al. 2019."""

import math


def implied_policy(pi, mu, rho_bar):
    """The policy whose value V-trace learns: min(rho_bar mu, pi), normalised."""
    clipped = [min(rho_bar * m, p) for p, m in zip(pi, mu, strict=True)]
    return [c / sum(clipped) for c in clipped]


def kl(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def behaviour_relevance(pi, mu, rho_bar=1.0):
    return kl(pi, implied_policy(pi, mu, rho_bar))

"""The slow twins of agent/distributions.py: one number at a time, as textbooks write it.

An action part is ("choice", logits) or ("numbers", means, log_stds); a policy is a list of parts,
and an action a list with an int or a list of floats for each.
"""

import math


def softmax(logits):
    largest = max(logits)
    weights = [math.exp(logit - largest) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def log_prob(policy, action):
    total = 0.0
    for part, done in zip(policy, action, strict=True):
        if part[0] == "choice":
            total += math.log(softmax(part[1])[done])
            continue
        for number, mean, log_std in zip(done, part[1], part[2], strict=True):
            std = math.exp(log_std)
            # The logarithm of exp(-(x - m)^2 / 2 s^2) / (s sqrt(2 pi)), which may be 0 in floats.
            total += -((number - mean) ** 2) / (2 * std**2)
            total -= math.log(std * math.sqrt(2 * math.pi))
    return total


def entropy(policy):
    total = 0.0
    for part in policy:
        if part[0] == "choice":
            total -= sum(p * math.log(p) for p in softmax(part[1]) if p)
            continue
        for log_std in part[2]:
            total += 0.5 * math.log(2 * math.pi * math.e * math.exp(log_std) ** 2)
    return total


def kl(policy, other):
    total = 0.0
    for part, others in zip(policy, other, strict=True):
        if part[0] == "choice":
            pairs = zip(softmax(part[1]), softmax(others[1]), strict=True)
            total += sum(p * math.log(p / q) for p, q in pairs)
            continue
        for m, s, other_m, other_s in zip(part[1], part[2], others[1], others[2], strict=True):
            v, other_v = math.exp(s) ** 2, math.exp(other_s) ** 2
            total += 0.5 * (v / other_v + (m - other_m) ** 2 / other_v - 1 + math.log(other_v / v))
    return total

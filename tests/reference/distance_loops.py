"""The distances of replay in plain loops, one candidate at a time. Slow on purpose."""

import math
from collections.abc import Sequence

Rows = Sequence[Sequence[float]]  # [R, F]


def ln_norm_loops(new, old, p):
    total = 0.0
    for new_row, old_row in zip(new, old, strict=True):
        for a, b in zip(new_row, old_row, strict=True):
            total += abs(a - b) ** p
    return total ** (1 / p)


def cos_dist_loops(new, old):
    dot = new_square = old_square = 0.0
    for new_row, old_row in zip(new, old, strict=True):
        for a, b in zip(new_row, old_row, strict=True):
            dot += a * b
            new_square += a * a
            old_square += b * b
    if new_square == 0 or old_square == 0:
        return 0.0 if new_square == old_square else 1.0
    return 1 - dot / math.sqrt(new_square) / math.sqrt(old_square)


def softmax_loops(row):
    largest = max(row)
    powers = [math.exp(x - largest) for x in row]
    return [power / sum(powers) for power in powers]


def kl_loops(first, second):
    total = 0.0
    for first_row, second_row in zip(first, second, strict=True):
        probabilities = zip(softmax_loops(first_row), softmax_loops(second_row), strict=True)
        for p, q in probabilities:
            total += p * math.log(p / q)
    return total

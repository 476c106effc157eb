import numpy as np
import torch

from tests.tolerances import rounding


def test_sums_in_another_order_are_within_it_and_real_differences_are_not():
    draw = np.random.default_rng(0)
    for terms in (3, 100, 3000):
        numbers = draw.normal(0, 50, terms).astype(np.float32)
        exact = float(numbers.astype(np.float64).sum())
        allowed = rounding(torch.float32, terms, float(np.abs(numbers).max()))
        for _ in range(20):
            running = np.float32(0)
            for number in draw.permutation(numbers):
                running += number
            assert abs(float(running) - exact) <= allowed
    # A number more or less in a sum of 100 is seen.
    assert rounding(torch.float32, 100, 50.0) < 0.01
    assert rounding(torch.float64, 100, 50.0) < 1e-10

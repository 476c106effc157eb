"""How far two ways to compute the same number may be apart, by the type and the size of the sum."""

import torch

SPARE = 4  # products, roots and the like round as well


def rounding(dtype, terms=1, size=1.0):
    """Return the absolute error to allow in a sum.

    Each of n additions rounds what has come together so far, by at most half an epsilon of it; in
    another order it is other errors. What cancels out takes the errors of its parts along, so the
    largest number that is summed counts, and not the sum.

    Args:
      dtype: in which it is summed, such as torch.float32.
      terms: how many numbers.
      size: the largest of them. With 1, the result is relative to it.
    """
    return SPARE * torch.finfo(dtype).eps * max(1, terms) * size

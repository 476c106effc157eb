"""What the learner makes of raw rewards, and the rescaling of values.

Unrolls store raw rewards, so these are applied when a batch is learned from, and returns in the
metrics are never affected.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def _oac_paper(reward: Tensor) -> Tensor:
    squashed = reward.tanh()
    return 0.3 * squashed.clamp(max=0) + 5 * squashed.clamp(min=0)


def _soft_asymmetric(reward: Tensor) -> Tensor:
    squashed = (reward / 5).tanh()
    return 5 * torch.where(squashed < 0, 0.3 * squashed, squashed)


# name -> elementwise function of float32 rewards.
REWARD_TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda reward: reward,
    "abs_one_sign": torch.sign,  # the Atari tradition; what most wrappers do
    "abs_one_clamp": lambda reward: reward.clamp(-1, 1),  # Mnih et al. 2015
    # The two forms of IMPALA's "optimistic asymmetric clipping" are different functions: its
    # released code divides by 5 inside the tanh, its appendix D does not.
    "soft_asymmetric": _soft_asymmetric,
    "oac_paper": _oac_paper,
}

RESCALE_EPSILON = 1e-3  # of R2D2; keeps the inverse Lipschitz


def rescale(values: Tensor, epsilon: float = RESCALE_EPSILON) -> Tensor:
    """Return h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x.

    Pohlen et al. 2018, section 3.2, https://arxiv.org/abs/1805.11593.
    """
    return values.sign() * ((values.abs() + 1).sqrt() - 1) + epsilon * values


def unrescale(values: Tensor, epsilon: float = RESCALE_EPSILON) -> Tensor:
    """Return the inverse of `rescale`; proposition A.2 of the same paper.

    In float32, cancellation leaves absolute errors of up to about 1e-4 near 0.
    """
    root = (1 + 4 * epsilon * (values.abs() + 1 + epsilon)).sqrt()
    return values.sign() * (((root - 1) / (2 * epsilon)).square() - 1)

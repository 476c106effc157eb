"""What the learner makes of raw rewards.

Unrolls store raw rewards, so these are applied when a batch is learned from, and returns in the
metrics are never affected.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def _soft_asymmetric(reward: Tensor) -> Tensor:
    squashed = (reward / 5).tanh()
    return 5 * torch.where(squashed < 0, 0.3 * squashed, squashed)


# name -> elementwise function of float32 rewards.
REWARD_TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda reward: reward,
    "abs_one_sign": torch.sign,  # the Atari tradition; what most wrappers do
    "abs_one_clamp": lambda reward: reward.clamp(-1, 1),  # Mnih et al. 2015
    # IMPALA's "optimistic asymmetric clipping" as in its released code, which divides by 5 inside
    # the tanh; its appendix D does not.
    "soft_asymmetric": _soft_asymmetric,
}
# name -> the largest absolute reward that it returns.
LARGEST_REWARD = {
    "none": math.inf,
    "abs_one_sign": 1.0,
    "abs_one_clamp": 1.0,
    "soft_asymmetric": 5.0,
}

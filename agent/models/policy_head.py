"""The layer that computes the parameters of the distribution of actions.

Logits of choices, and means of numbers, are linear in the hidden units. The standard
deviation of a number is the same in all states, as is usual for tasks of control (Schulman et al.,
"PPO", 2017, https://arxiv.org/abs/1707.06347, section 6.1): a parameter of its own, whose logarithm
starts at 0.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ritornello.core.spec import CHOICE, NUMBERS, ActionSpec


def policy_head(hidden_count: int, actions: ActionSpec) -> nn.Linear:
    """Return the layer [..., H] -> [..., P], with weights that are yet to be initialised."""
    if any(part.kind == NUMBERS for part in actions.parts):
        return NumbersHead(hidden_count, actions)
    return nn.Linear(hidden_count, actions.param_count)


class NumbersHead(nn.Linear):
    """Logits and means from hidden units, and logarithms of standard deviations beside them."""

    def __init__(self, hidden_count: int, actions: ActionSpec) -> None:
        """Build the layer for H hidden units and actions of which some parts are numbers."""
        super().__init__(hidden_count, sum(part.count for part in actions.parts))
        numbers = sum(part.count for part in actions.parts if part.kind == NUMBERS)
        self.log_std = nn.Parameter(torch.zeros(numbers))
        # What the layer says comes first and all deviations last; each belongs behind its means.
        order: list[int] = []
        seen, deviations = 0, self.out_features
        for part in actions.parts:
            order += range(seen, seen + part.count)
            seen += part.count
            if part.kind != CHOICE:
                order += range(deviations, deviations + part.count)
                deviations += part.count
        self._is_in_order = order == sorted(order)
        self.order: Tensor
        self.register_buffer("order", torch.tensor(order), persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return parameters [..., P] of hidden units [..., H]."""
        said = super().forward(hidden)
        both = torch.cat([said, self.log_std.expand(*said.shape[:-1], -1)], -1)
        return both if self._is_in_order else both.index_select(-1, self.order)

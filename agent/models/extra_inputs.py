"""`ExtraInputs`: inputs of a core besides the features of the observation, as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ritornello.core.spec import CHOICE, ActionPart

if TYPE_CHECKING:
    from ritornello.agent.models.base import Inputs


@dataclass(frozen=True)
class ExtraInputs:
    """Inputs of the core besides the observation, and their encoding."""

    actions: tuple[ActionPart, ...] = ()  # parts of the last action, if it is an input
    reward: bool = False  # whether the last reward is
    task_count: int = 0  # K if the number of the game is, else 0
    clamp_reward: bool = True  # to [-1, 1]

    @property
    def count(self) -> int:
        """Numbers per row and column."""
        return sum(part.count for part in self.actions) + self.reward + self.task_count

    def encode(self, inputs: Inputs) -> Tensor:
        """Return [..., count] float32: action, reward, one-hot task, in this order.

        In an action, choices are one-hot and numbers as they were drawn. After a reset there is no
        last action and no last reward: both are zeros. Unless told otherwise, the reward is clamped
        to [-1, 1] whatever is learned from: raw rewards of thousands would drown all other inputs.
        """
        first = inputs.first.unsqueeze(-1)
        parts = []
        if self.actions:
            parts.append(_action(inputs, self.actions).masked_fill(first, 0))
        if self.reward:
            reward = inputs.last_reward.unsqueeze(-1)
            reward = reward.clamp(-1, 1) if self.clamp_reward else reward
            parts.append(reward.masked_fill(first, 0))
        if self.task_count:
            task = torch.zeros((), dtype=torch.int64, device=first.device)
            task = task if inputs.task_id is None else inputs.task_id
            parts.append(_one_hot(task.expand(inputs.first.shape), self.task_count))
        return torch.cat(parts, -1) if parts else first.new_zeros((*inputs.first.shape, 0)).float()


def _action(inputs: Inputs, parts: Sequence[ActionPart]) -> Tensor:
    """Return the last action as [..., n] float32: choices one-hot, numbers as they are."""
    if inputs.last_action.ndim == inputs.first.ndim:  # a single choice
        return _one_hot(inputs.last_action, parts[0].count)
    numbers = inputs.last_action.split_with_sizes([part.width for part in parts], -1)
    return torch.cat(
        [
            _one_hot(own.squeeze(-1), part.count) if part.kind == CHOICE else own
            for part, own in zip(parts, numbers, strict=True)
        ],
        -1,
    )


def _one_hot(index: Tensor, count: int) -> Tensor:
    """Return [..., count] float32. Unlike torch's own it never waits for a GPU."""
    return (index.unsqueeze(-1) == torch.arange(count, device=index.device)).float()

"""The batch of one update: B unrolls side by side, as torch tensors.

`agent/learning/feed.py` makes batches from replay draws, and `agent/algorithms/impala.py` reads
them. core/unroll.py defines the names and the meaning of rows. Sizes: T steps, B unrolls, P
parameters of a policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ritornello.agent.models.base import Inputs
from ritornello.core.errors import ShapeError

# Fields of shape [B, ...], without rows.
OF_COLUMNS = (*("state", "task_id", "version", "age", "item", "source", "is_online", "weight"),)


@dataclass(frozen=True)
class Batch:
    """Time-major experience of B unrolls, with stacked observations.

    Shapes are checked here, once, because PyTorch would silently broadcast a wrong one.
    """

    obs: Tensor  # [T+1, B, *obs_shape] uint8 pixels or float32; row T bootstraps
    first: Tensor  # [T+1, B] bool, x_t is the first observation after a reset
    action: Tensor  # [T, B, *action_shape] int64 or float32
    reward: Tensor  # [T, B] float32, raw
    last_action: Tensor  # [T+1, B, *action_shape], the action before x_t; ignore it where `first`
    last_reward: Tensor  # [T+1, B] float32, the raw reward before x_t; ignore it where `first`
    terminated: Tensor  # [T, B] bool; ended by the task or a lost life, not by time
    behaviour_params: Tensor  # [T, B, P] float32, parameters of mu(.|x_t)
    behaviour_value: Tensor  # [T, B] float32, V_mu(x_t), unnormalised
    state: Tensor  # [B, state_count] float32, memory before x_0; 0 columns if there is none
    task_id: Tensor  # [B] int64, index of the game
    version: Tensor  # [B] int64, updates in the weights that chose the actions
    age: Tensor  # [B] int64, updates since the unroll entered the replay
    item: Tensor  # [B] int64, id of the unroll in the replay
    source: Tensor  # [B] int64, index of the buffer it was drawn from
    is_online: Tensor  # [B] bool, new: from a queue, or its first turn of several
    weight: Tensor  # [B] float32, importance weight of the loss; 1 unless drawn by priority

    def __post_init__(self) -> None:
        """Raise ShapeError, naming the field, unless all fields agree on T and B."""
        if self.action.ndim not in (2, 3):
            raise ShapeError(
                f"action has shape {tuple(self.action.shape)}, expected [T, B], or [T, B, W] where "
                "an action is more than one choice."
            )
        steps, size, *width = self.action.shape
        rows_by_name: dict[str, tuple[int, ...]] = {}
        for name in ("obs", "first", "last_reward"):
            rows_by_name[name] = (steps + 1, size)
        rows_by_name["last_action"] = (steps + 1, size, *width)
        for name in ("reward", "terminated", "behaviour_params", "behaviour_value"):
            rows_by_name[name] = (steps, size)
        for name in OF_COLUMNS:
            rows_by_name[name] = (size,)
        trailing = {"obs", "behaviour_params", "state"}  # fields with axes after [time, B] or [B]
        for name, expected in rows_by_name.items():
            shape = tuple(getattr(self, name).shape)
            if shape[: len(expected)] != expected or (
                name not in trailing and len(shape) != len(expected)
            ):
                raise ShapeError(
                    f"{name} of the batch has shape {shape}, expected {expected} "
                    f"for T={steps} steps (rows T+1 for obs, first and what came before them) "
                    f"and B={size} unrolls."
                )

    @property
    def steps(self) -> int:
        """T, steps per unroll."""
        return self.action.shape[0]

    @property
    def size(self) -> int:
        """B, unrolls in the batch."""
        return self.action.shape[1]

    @property
    def reset_row(self) -> Tensor:
        """[T, B] bool: the action of this step was ignored because the environment was reset."""
        return self.first[1:]

    def of_columns(self, columns: Sequence[int]) -> Batch:
        """Return a batch of some of the unrolls, a copy."""
        index = torch.tensor(list(columns), device=self.action.device)
        parts = {
            name: tensor.index_select(0 if name in OF_COLUMNS else 1, index)
            for name, tensor in vars(self).items()
        }
        return Batch(**parts)

    def inputs(self) -> Inputs:
        """Return all that a model may look at, `[T+1, B, ...]`; nothing is copied."""
        return Inputs(self.obs, self.first, self.last_action, self.last_reward, self.task_id)

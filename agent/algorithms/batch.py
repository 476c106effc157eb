"""The batch of one update: B unrolls side by side, the rows that count, and one pass of the model.

`agent/learning/feed.py` makes batches from replay draws, and `agent/algorithms/impala.py` reads
them. core/unroll.py defines the names and the meaning of rows. Sizes: T steps, B unrolls, P
parameters of a policy, H hidden units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ritornello.agent.distributions import Policy
from ritornello.agent.models.base import ActorCritic, Heads, Inputs
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
    action_mask: Tensor | None = None  # [T+1, B, P] bool, what is allowed on x_t; None: everything

    def __post_init__(self) -> None:
        """Raise ShapeError, naming the field, unless all fields agree on T and B."""
        if self.action.ndim not in (2, 3):
            raise ShapeError(
                f"action has shape {tuple(self.action.shape)}, expected [T, B], or [T, B, W] where "
                "an action is more than one choice."
            )
        steps, size, *width = self.action.shape
        leading: dict[str, tuple[int, ...]] = {
            **dict.fromkeys(("obs", "first", "last_reward", "action_mask"), (steps + 1, size)),
            "last_action": (steps + 1, size, *width),
            **dict.fromkeys(("reward", "terminated", "behaviour_value"), (steps, size)),
            "behaviour_params": (steps, size),
            **dict.fromkeys(OF_COLUMNS, (size,)),
        }
        for name, tensor in self.tensors().items():
            expected = leading.get(name, tuple(tensor.shape))
            has_more = name in ("obs", "behaviour_params", "state", "action_mask")
            shape = tuple(tensor.shape)
            if shape[: len(expected)] != expected or (shape != expected and not has_more):
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

    def tensors(self) -> dict[str, Tensor]:
        """Return the fields by name; the mask only if there is one."""
        return {name: tensor for name, tensor in vars(self).items() if tensor is not None}

    def of_columns(self, columns: Sequence[int]) -> Batch:
        """Return a batch of the unrolls with these indices, a copy."""
        index = torch.tensor(list(columns), device=self.action.device)
        parts = {
            name: tensor.index_select(0 if name in OF_COLUMNS else 1, index)
            for name, tensor in self.tensors().items()
        }
        return Batch(**parts)

    def unpacked(self) -> Batch:
        """Return itself; `PackedBatch` (agent/learning/feed.py) returns its fields."""
        return self

    def inputs(self) -> Inputs:
        """Return all that a model may look at, `[T+1, B, ...]`; nothing is copied."""
        return Inputs(
            self.obs, self.first, self.last_action, self.last_reward, self.task_id, self.action_mask
        )


# --- the rows that count -----------------------------------------------------------------------


class Rows(NamedTuple):
    """Masks of a batch of T steps of B unrolls: steps to learn from, and gradients to keep."""

    valid: Tensor  # [T, B] bool, steps that are learned from
    keep_gradient: Tensor | None  # [T+1, B] bool, for `ActorCritic.hidden`; None: all True


def learnable_rows(batch: Batch, burn_in_steps: int = 0) -> Rows:
    """Return which rows count: no resets, and no burn-in.

    A recurrent model starts each unroll from the state that the actor was in. In a replayed unroll
    that state comes from weights of long ago. With *burn-in* (Kapturowski et al., R2D2, 2019,
    section 3), the first `burn_in_steps` rows of a replayed unroll only bring the state up to date:
    nothing is learned there, and no gradient flows back into them.

    V-trace looks ahead only, so its results for the rows after the burn-in do not depend on those
    before.
    """
    valid = ~batch.reset_row
    if not burn_in_steps:
        return Rows(valid, None)
    row = torch.arange(batch.steps + 1, device=batch.is_online.device).unsqueeze(-1)
    replayed = ~batch.is_online
    burn_in = (row[:-1] < burn_in_steps) & replayed
    # To cut all that is before row `burn_in_steps`, cutting the state that enters it is enough.
    return Rows(valid & ~burn_in, ~((row == burn_in_steps) & replayed))


# --- one pass of the model ---------------------------------------------------------------------


class Pass(NamedTuple):
    """Outputs of the model for T steps of B unrolls, with a gradient; H hidden units."""

    hidden: Tensor  # [T+1, B, H]
    heads: Heads  # [T+1, B]; the last row bootstraps
    pi: Policy  # [T, B], the policy that is trained
    mu: Policy  # [T, B], the policy that acted; without a gradient
    log_pi_action: Tensor  # [T, B], log pi of the action that was done
    log_mu_action: Tensor  # [T, B], log mu of it
    log_ratio: Tensor  # [T, B], log pi - log mu of it; bounded where actions are numbers


def forward(model: ActorCritic, batch: Batch, keep_gradient: Tensor | None = None) -> Pass:
    """Run the model once over all rows; `keep_gradient` is passed on to `ActorCritic.hidden`."""
    features = model.torso(batch.obs, batch.task_id)  # [T+1, B, F], its one pass
    hidden, _ = model.hidden(features, batch.inputs(), batch.state, keep_gradient)
    heads = model.heads(hidden, batch.task_id, batch.action_mask)
    pi = model.distribution.policy(heads.params[:-1])
    mu = model.distribution.policy(batch.behaviour_params)
    log_pi_action, log_mu_action = pi.log_prob(batch.action), mu.log_prob(batch.action)
    log_ratio = model.distribution.bounded(log_pi_action - log_mu_action)
    return Pass(hidden, heads, pi, mu, log_pi_action, log_mu_action, log_ratio)


# --- rewards -----------------------------------------------------------------------------------


def _soft_asymmetric(reward: Tensor) -> Tensor:
    squashed = (reward / 5).tanh()
    return 5 * torch.where(squashed < 0, 0.3 * squashed, squashed)


# name -> elementwise function of float32 rewards. Unrolls store raw rewards: these are applied when
# a batch is learned from, so returns in the metrics are never affected.
REWARD_TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda reward: reward,
    "abs_one_sign": torch.sign,  # the Atari tradition; what most wrappers do
    "abs_one_clamp": lambda reward: reward.clamp(-1, 1),  # Mnih et al. 2015
    # IMPALA's "optimistic asymmetric clipping" as in its released code, which divides by 5 inside
    # the tanh; its appendix D does not.
    "soft_asymmetric": _soft_asymmetric,
    "log": lambda reward: reward.sign() * reward.abs().log1p(),  # Hester et al. 2018 (DQfD)
}
# name -> the largest absolute reward that it returns.
LARGEST_REWARD = {
    "none": math.inf,
    "abs_one_sign": 1.0,
    "abs_one_clamp": 1.0,
    "soft_asymmetric": 5.0,
    "log": math.inf,
}

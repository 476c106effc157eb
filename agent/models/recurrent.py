"""`RecurrentCore` adds to the observation: last action, last reward, game, and a memory.

It stands between torso and heads (agent/models/base.py). It appends the extra inputs
to the features, as IMPALA does (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561, section 5
and figure 3), and runs an LSTM over them. Sizes: T rows, B columns, L layers of H units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ritornello.agent.models.base import Core, Inputs
from ritornello.agent.models.initialisation import FORGET_BIAS, draw_gates, fill_gate_bias
from ritornello.core.spec import CHOICE, ActionPart


@dataclass(frozen=True)
class ExtraInputs:
    """Inputs of the core besides the observation, and their encoding."""

    actions: tuple[ActionPart, ...] = ()  # of the last action, if it is one of them
    reward: bool = False  # whether the last reward is
    task_count: int = 0  # K if the number of the game is, else 0
    clamp_reward: bool = True  # to [-1, 1]

    @property
    def count(self) -> int:
        """Numbers per row and column."""
        return sum(part.count for part in self.actions) + self.reward + self.task_count

    def encode(self, inputs: Inputs) -> Tensor:
        """Return [..., count] float32: action, reward, one-hot task, in this order.

        Of an action, choices are one-hot and numbers as they were drawn.

        After a reset there is no last action and no last reward: both are zeros there. The reward
        is clamped to [-1, 1] whatever is learned from, unless told otherwise: raw rewards of
        thousands would drown all other inputs.
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


def changed_rows(first: Tensor, keep_gradient: Tensor | None) -> list[bool]:
    """Return for each of T rows whether `entering_state` has anything to do before it.

    Args:
      first: [T, B] bool, True where the memory is cleared.
      keep_gradient: [T, B] bool, or None for all True.
    """
    if torch.compiler.is_exporting():
        return [True] * len(first)  # numbers are not known yet
    changed = first.any(1)
    if keep_gradient is not None:
        changed = changed | ~keep_gradient.all(1)
    rows: list[bool] = changed.tolist()  # on a GPU the one wait, instead of work for every row
    return rows


def entering_state(state: Tensor, first: Tensor, keep_gradient: Tensor | None) -> Tensor:
    """Return the state with which a row starts.

    Args:
      state: [..., B, n] float32, after the row before.
      first: [B] bool, columns that start from zeros.
      keep_gradient: [B] bool, columns through whose state a gradient flows; None: all.
    """
    state = state.masked_fill(first.unsqueeze(-1), 0)
    if keep_gradient is not None:
        state = torch.where(keep_gradient.unsqueeze(-1), state, state.detach())
    return state


class RecurrentCore(Core):
    """Extra inputs, then an LSTM if there is one.

    The flat state of a column is h of all layers, then c of all layers.
    """

    def __init__(
        self, feature_count: int, extras: ExtraInputs, lstm_size: int = 0, lstm_layers: int = 1
    ) -> None:
        """Build the core.

        Args:
          feature_count: F, number of features of the torso.
          extras: what is appended to the features.
          lstm_size: H; 0 for no LSTM: the heads then see features and extras.
          lstm_layers: L, number of layers.
        """
        input_count = feature_count + extras.count
        super().__init__(lstm_size or input_count, 2 * lstm_layers * lstm_size)
        self.extras = extras
        self.lstm = nn.LSTM(input_count, lstm_size, lstm_layers) if lstm_size else None

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights of the LSTM."""
        if self.lstm is None:
            return
        for name, parameter in self.lstm.named_parameters():
            if name.startswith("weight"):
                draw_gates(parameter, generator)
            else:  # torch adds two biases, of the input and of the state; one says to keep
                forget = FORGET_BIAS if name.startswith("bias_ih") else 0.0
                fill_gate_bias(parameter, forget=forget)

    def forward(
        self, features: Tensor, inputs: Inputs, state: Tensor, keep_gradient: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Do what `ActorCritic.hidden` says.

        The fused LSTM runs over all rows between two rows at which some column starts anew: two or
        three runs for most batches, instead of T steps of Python.
        """
        if self.extras.count:
            features = torch.cat([features, self.extras.encode(inputs)], -1)
        if self.lstm is None:
            return features, state
        rows, columns = inputs.first.shape
        changed = changed_rows(inputs.first, keep_gradient)
        starts = [0, *(row for row in range(1, rows) if changed[row])]
        layered = state.reshape(columns, 2, self.lstm.num_layers, self.hidden_count)
        layered = layered.permute(1, 2, 0, 3)  # [2, L, B, H]
        hidden = []
        for start, end in pairwise([*starts, rows]):
            if changed[start]:
                kept = None if keep_gradient is None else keep_gradient[start]
                layered = entering_state(layered, inputs.first[start], kept)
            h, c = layered
            run, after = self.lstm(features[start:end], (h.contiguous(), c.contiguous()))
            hidden.append(run)
            layered = torch.stack(after)
        return torch.cat(hidden), layered.permute(2, 0, 1, 3).reshape(columns, -1)

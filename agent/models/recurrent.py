"""`RecurrentCore` adds to the observation: last action, last reward, game, and a memory.

It stands between torso and heads (agent/models/base.py). It appends the extra inputs
to the features, as IMPALA does (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561, section 5
and figure 3), and runs an LSTM over them. Sizes: T rows, B columns, L layers of H units.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from ritornello.agent.models.base import Core, Inputs
from ritornello.agent.models.extra_inputs import ExtraInputs
from ritornello.agent.models.initialisation import FORGET_BIAS, draw_gates, fill_gate_bias


def changed_rows(first: Tensor, keep_gradient: Tensor | None) -> list[bool]:
    """Return for each of T rows whether `entering_state` has to change anything.

    `first` and `keep_gradient` are [T, B] bool, as for `ActorCritic.hidden`.
    """
    # Numbers are not known yet in an export. Nor may a GPU be asked for them while the step of an
    # actor, which has one row, is recorded.
    if torch.compiler.is_exporting() or len(first) == 1:
        return [True] * len(first)
    changed = first.any(1)
    if keep_gradient is not None:
        changed = changed | ~keep_gradient.all(1)
    rows: list[bool] = changed.tolist()  # on a GPU the one wait, instead of work for every row
    return rows


def entering_state(state: Tensor, first: Tensor, keep_gradient: Tensor | None) -> Tensor:
    """Return the state with which a row starts, [..., B, n] float32.

    `state` is the one after the row before. Columns with `first`, [B] bool, start from zeros. No
    gradient flows into columns where `keep_gradient`, [B] bool, is False; None keeps all.
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
        """Build the core for F features and extra inputs.

        `lstm_size` is H; with 0 there is no LSTM, and the heads see features and extra inputs.
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
        """Compute `ActorCritic.hidden`.

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

"""Initial weights: orthogonal matrices and zero biases."""

from __future__ import annotations

import torch
from torch import Tensor, nn

GATES = 4  # of an LSTM, in torch's order: input, forget, cell, output
FORGET_GATE = 1
FORGET_BIAS = 1.0  # at first keep what is remembered (Jozefowicz et al. 2015)


def draw_layer(layer: nn.Conv2d | nn.Linear, gain: float, generator: torch.Generator) -> None:
    """Draw orthogonal weights, scaled by `gain`, and set the biases to zero."""
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


@torch.no_grad()
def draw_gates(weights: Tensor, generator: torch.Generator) -> None:
    """Draw the weights `[4 H, ...]` of an LSTM's gates, each gate orthogonal by itself.

    The gain is 1, because sigmoid and tanh do not halve their output as ReLU does.
    """
    for gate in weights.chunk(GATES):
        nn.init.orthogonal_(gate, generator=generator)


@torch.no_grad()
def fill_gate_bias(bias: Tensor, *, forget: float) -> None:
    """Set the biases `[4 H]` of an LSTM's gates to zero, that of the forget gate to `forget`."""
    bias.zero_()
    bias.chunk(GATES)[FORGET_GATE].fill_(forget)

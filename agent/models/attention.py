"""The Attention-Augmented Agent: it asks where to look before it acts.

Mott et al., "Towards Interpretable Reinforcement Learning Using Attention Augmented Agents" (2019),
https://arxiv.org/abs/1906.02500:

    frame --convolutions--> --ConvLSTM--> map of keys and values, [h, w] cells
    policy LSTM's state --query network--> queries, one per head
    softmax over all cells of key . query --> attention map;  sum of map * values --> answer
    answers, queries, extra inputs --answer network--> policy LSTM --> hidden units

So all that reaches the policy has passed through the maps, which can be looked at. Queries come
from the state before this step: the agent says top-down what it looks for. Keys and values have a
fixed spatial basis appended, so that a query may ask for a place (where) besides a look (what).

Maps have their channels last throughout: convolutions are faster so on a CPU, and cells are then
what they are in attention, a sequence of keys and values.

Smaller than the paper by default: its ConvLSTM of 128 channels takes 107 million multiplications
for an 84x84 frame, thirteen times the whole shallow network of IMPALA; 32 channels, with that
network's 16 and 32 in the convolutions, take 9 million. `--feature_out_layer_size=128` gives the
widths of the paper. Sizes: T rows, B columns, C channels of the ConvLSTM, P = h w cells.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ritornello.agent.models.base import Core, Inputs
from ritornello.agent.models.initialisation import (
    FORGET_BIAS,
    draw_gates,
    draw_layer,
    fill_gate_bias,
)
from ritornello.agent.models.networks import Network, NetworkRequest
from ritornello.agent.models.recurrent import changed_rows, entering_state
from ritornello.agent.models.torsos import PixelConv2d, map_shape
from ritornello.core.errors import ConfigError
from ritornello.flags.parts import NETWORKS

HEADS = 4
KEY_CHANNELS = 8  # of the ConvLSTM; the others are values
BASIS_WAVES = 8  # along each axis
BASIS_COUNT = BASIS_WAVES**2
DEFAULT_CHANNELS = 32  # C; the paper has 128
MIN_CONV_CHANNELS = (16, 32)  # the paper has 32 and 64, which is C / 4 and C / 2
# What an LSTM puts out stays below 1, and at first hardly differs from one moment to the next,
# where a layer of ReLUs does. Adam moves a weight as far for either, so that heads which read it as
# it is learn far more slowly than the rest.
HIDDEN_GAIN = 4.0
PREFERENCE_DEVIATION = 0.25  # of first queries: logits then deviate by about 1 over the cells


class AttentionTorso(nn.Module):
    """The convolutions alone; features are their flattened map, `[N, F]`, F = channels * h * w.

    They are padded so that a frame of 210x160 gives the paper's 27x20 cells; 84x84 gives 11x11.
    Elite and attentive replay compare features, so here they compare what is seen where, before any
    memory.
    """

    def __init__(self, request: NetworkRequest) -> None:
        """Build the convolutions; the request's `feature_count` is C of the ConvLSTM above.

        Raises:
          ConfigError: if the convolutions do not fit into the frame.
        """
        super().__init__()
        obs_shape, channels = request.obs_shape, request.feature_count or DEFAULT_CHANNELS
        first = max(channels // 4, MIN_CONV_CHANNELS[0])
        second = max(channels // 2, MIN_CONV_CHANNELS[1])
        self.convs = nn.Sequential(
            PixelConv2d(obs_shape, first, 8, 4, 1, normalise=request.normalise_pixels),
            nn.ReLU(inplace=True),
            nn.Conv2d(first, second, 4, 2, 2),
            nn.ReLU(inplace=True),
        )
        self.map_shape = map_shape("attention", self.convs, obs_shape)
        self.feature_count = self.map_shape.numel()

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, C, H, W]` to features `[N, F]`."""
        return self.convs(obs).flatten(1)


class ConvLstm(nn.Module):
    """An LSTM whose state is a map, and whose products are 3x3 convolutions.

    Shi et al. 2015, https://arxiv.org/abs/1506.04214, without peepholes: these are weights per
    cell, which would tie the model to one frame size, and nobody has missed them in plain LSTMs.
    """

    def __init__(self, in_channels: int, channels: int) -> None:
        """Build the layer."""
        super().__init__()
        self.from_input = nn.Conv2d(in_channels, 4 * channels, 3, padding=1)
        self.from_state = nn.Conv2d(channels, 4 * channels, 3, padding=1, bias=False)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights."""
        draw_gates(self.from_input.weight, generator)
        draw_gates(self.from_state.weight, generator)
        assert self.from_input.bias is not None
        fill_gate_bias(self.from_input.bias, forget=FORGET_BIAS)

    def look(self, maps: Tensor) -> Tensor:
        """Return the contribution of maps [N, in_channels, h, w] to the gates: [N, h, w, 4 C].

        It does not depend on the state, so all rows are computed at once.
        """
        maps = maps.contiguous(memory_format=torch.channels_last)
        made: Tensor = self.from_input(maps).movedim(1, -1)
        return made

    def forward(self, from_input: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step; return output and cell after it.

        `from_input` is [B, h, w, 4 C], from `look`; `h` and `c`, output and cell before the step,
        are [B, h, w, C].
        """
        gates = from_input + self.from_state(h.movedim(-1, 1)).movedim(1, -1)
        into, forget, cell, out = gates.chunk(4, -1)
        c = forget.sigmoid() * c + into.sigmoid() * cell.tanh()
        return out.sigmoid() * c.tanh(), c


def spatial_basis(height: int, width: int) -> Tensor:
    """Return [BASIS_COUNT, h w] float32: products of cosines along both axes.

    cos(pi u (i + 1/2) / h) cos(pi v (j + 1/2) / w) for u, v = 0 .. 7. Taken at the centres of the
    cells, as in a cosine transform, where they are orthogonal; u = 0 and v = 0 are among them, so
    that a query may ask for a row or a column alone.
    """

    def waves(count: int) -> Tensor:
        centres = (torch.arange(count) + 0.5) / count
        return torch.cos(math.pi * torch.arange(BASIS_WAVES)[:, None] * centres)

    rows, columns = waves(height), waves(width)
    return (rows[:, None, :, None] * columns[None, :, None, :]).reshape(BASIS_COUNT, -1)


def attend(cells: Tensor, queries: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Look up each query in the map.

    Args:
      cells: [B, P, C], keys in the first KEY_CHANNELS channels, values in the others.
      queries: [B, heads, KEY_CHANNELS + S], the first for keys, the others for the basis.
      basis: [S, P], appended to the keys and to the values of every map.

    Returns:
      (answers [B, heads, C - KEY_CHANNELS + S], maps [B, heads, P], which sum to 1 over P).
    """
    keys, values = cells.split([KEY_CHANNELS, cells.shape[-1] - KEY_CHANNELS], -1)
    what, where = queries.split([KEY_CHANNELS, len(basis)], -1)
    maps = (what @ keys.transpose(1, 2) + where @ basis).softmax(-1)
    return torch.cat([maps @ values, maps @ basis.T], -1), maps


class AttentionCore(Core):
    """ConvLSTM, attention and policy LSTM, from the map of an `AttentionTorso` to hidden units.

    The flat state of a column is h and c of the ConvLSTM, then h and c of the policy LSTM; a reset
    empties all of them.
    """

    basis: Tensor

    def __init__(self, map_shape: torch.Size, request: NetworkRequest) -> None:
        """Build the core for maps (channels, h, w) of the torso.

        Of the request, `feature_count` is C, more than KEY_CHANNELS; `lstm_size` is H of the policy
        LSTM, with which the networks beside it grow; `extras` are inputs of the answer network
        besides answers and queries.
        """
        extras, lstm_size = request.extras, request.lstm_size
        channels = request.feature_count or DEFAULT_CHANNELS
        in_channels, height, width = map_shape
        memory = channels * height * width
        super().__init__(lstm_size, 2 * memory + 2 * lstm_size)
        self.extras = extras
        self.map_shape = map_shape
        self.vision_shape = (height, width, channels)
        self._sizes = (memory, memory, lstm_size, lstm_size)
        self.vision = ConvLstm(in_channels, channels)
        query_count = HEADS * (KEY_CHANNELS + BASIS_COUNT)
        self.query = nn.Sequential(
            nn.Linear(lstm_size, lstm_size // 2),
            nn.ReLU(),
            nn.Linear(lstm_size // 2, query_count),
            nn.ReLU(),
            nn.Linear(query_count, query_count),
        )
        answer_count = HEADS * (channels - KEY_CHANNELS + BASIS_COUNT)
        self.answer = nn.Sequential(
            nn.Linear(answer_count + query_count + extras.count, 2 * lstm_size),
            nn.ReLU(),
            nn.Linear(2 * lstm_size, lstm_size),
        )
        self.policy = nn.LSTMCell(lstm_size, lstm_size)
        self.register_buffer("basis", spatial_basis(height, width), persistent=False)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights.

        The last bias of the query network is not zero: after a reset there is no state to tell the
        heads apart, and so each begins with a soft preference of its own.
        """
        self.vision.initialise(generator)
        for network in (self.query, self.answer):
            for layer in network:
                if isinstance(layer, nn.Linear):
                    gain = 1.0 if layer is network[-1] else math.sqrt(2)
                    draw_layer(layer, gain, generator)
        last = self.query[-1]
        assert isinstance(last, nn.Linear)
        nn.init.normal_(last.bias, std=PREFERENCE_DEVIATION, generator=generator)
        draw_gates(self.policy.weight_ih, generator)
        draw_gates(self.policy.weight_hh, generator)
        fill_gate_bias(self.policy.bias_ih, forget=FORGET_BIAS)
        fill_gate_bias(self.policy.bias_hh, forget=0.0)

    def forward(
        self, features: Tensor, inputs: Inputs, state: Tensor, keep_gradient: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute `ActorCritic.hidden`."""
        hidden, state, _ = self._run(features, inputs, state, keep_gradient)
        return hidden, state

    def attention_maps(self, features: Tensor, inputs: Inputs, state: Tensor) -> Tensor:
        """Return where the next action looks: [B, HEADS, h, w] float32 for features [1, B, F]."""
        maps = self._run(features, inputs, state, None)[2]
        return maps.unflatten(-1, self.map_shape[1:])

    def _run(
        self, features: Tensor, inputs: Inputs, state: Tensor, keep_gradient: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return hidden units [T, B, H], the state and the maps [B, HEADS, P] of the last row."""
        rows, columns = inputs.first.shape
        seen = self.vision.look(features.reshape(-1, *self.map_shape))
        # Not indexed by row: the gradient of each index is an array of all rows, mostly zeros.
        seen_rows = seen.unflatten(0, (rows, columns)).unbind()
        extras = self.extras.encode(inputs)
        changed = changed_rows(inputs.first, keep_gradient)
        parts = state.split(self._sizes, -1)
        hidden = []
        for row in range(rows):
            if changed[row]:
                kept = None if keep_gradient is None else keep_gradient[row]
                parts = tuple(entering_state(part, inputs.first[row], kept) for part in parts)
            h, c, policy_h, policy_c = parts
            queries = self.query(policy_h).unflatten(-1, (HEADS, -1))
            h, c = self.vision(
                seen_rows[row],
                h.unflatten(-1, self.vision_shape),
                c.unflatten(-1, self.vision_shape),
            )
            answers, maps = attend(h.flatten(1, 2), queries, self.basis)
            said = torch.cat([answers.flatten(1), queries.flatten(1), extras[row]], -1)
            policy_h, policy_c = self.policy(self.answer(said), (policy_h, policy_c))
            hidden.append(HIDDEN_GAIN * policy_h)
            parts = (h.flatten(1), c.flatten(1), policy_h, policy_c)
        return torch.stack(hidden), torch.cat(parts, -1), maps


def _attention(request: NetworkRequest) -> tuple[AttentionTorso, AttentionCore]:
    if 0 < request.feature_count <= KEY_CHANNELS:
        raise ConfigError(
            f"feature_count is {request.feature_count}, expected 0 or more than {KEY_CHANNELS} for "
            f"model 'attention': {KEY_CHANNELS} channels of its map are keys, the others values."
        )
    torso = AttentionTorso(request)
    return torso, AttentionCore(torso.map_shape, request)


NETWORKS.add("attention", Network(_attention, "images", has_memory=True, takes_raw=True), __name__)

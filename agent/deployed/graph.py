"""`ActingGraph`: one decision of a trained model as a pure function of named tensors.

    obs, memory, noise -> parameters, value, memory, two choices of actions

It calls the parts of the model itself. Inputs that an agent does not use are left out. A graph
draws no random numbers; its caller gives them, so that the caller's seed decides all draws.
Sizes: B environments, P parameters of the distribution of actions.
"""

from __future__ import annotations

import copy
import re
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ritornello.agent.models.base import ActorCritic, Inputs
from ritornello.agent.models.extra_inputs import ExtraInputs
from ritornello.agent.models.parts import PartsTorso
from ritornello.agent.models.pixels import OBSERVED_BATCHES, PixelStatistics
from ritornello.core.spec import CHOICE, NUMBERS, EnvSpec

# Inputs besides observations, whose names begin with obs.
STATE, FIRST, LAST_ACTION, LAST_REWARD = "state", "first", "last_action", "last_reward"
TASK, MASK, EXPONENTIAL, NORMAL = "task_id", "action_mask", "exponential_noise", "normal_noise"
NOISE = {CHOICE: EXPONENTIAL, NUMBERS: NORMAL}
NEXT_STATE = "next_state"


class Port(NamedTuple):
    """One input or output of a graph, [B, *shape]."""

    shape: tuple[int, ...]
    dtype: str
    meaning: str  # for people


class ActingGraph(nn.Module):
    """One decision in B environments; `inputs` and `outputs` are its ports."""

    def __init__(self, model: ActorCritic, spec: EnvSpec) -> None:
        """Copy `model`, fp32, to the CPU, for games of `spec`; the copy does not change."""
        super().__init__()
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        for module in self.model.modules():
            if isinstance(module, PixelStatistics):
                module.batches.fill_(OBSERVED_BATCHES)  # no image will move them
        self.spec = spec
        self.inputs = _inputs(self.model, spec)
        actions, size = spec.actions, self.model.state_count
        ports = {
            "params": Port((actions.param_count,), "float32", "logits; means and log deviations"),
            "value": Port((), "float32", "the discounted return that the agent expects"),
            NEXT_STATE: Port((size,), "float32", "state of the next step"),
            "greedy_action": Port(actions.shape, actions.dtype, "the most probable action"),
            "sampled_action": Port(actions.shape, actions.dtype, "a draw, by the noise"),
        }
        self.outputs = {name: ports[name] for name in ports if name != NEXT_STATE or size}
        with torch.no_grad():  # what follows from constants alone is kept, and is one itself then
            self(self.example(2))

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Decide: return a tensor [B, *shape] per output, from one per input."""
        model = self.model
        obs = [inputs[name] for name in self.inputs if name.startswith("obs")]
        nothing = torch.zeros(obs[0].shape[0])
        seen = Inputs(
            obs[0],
            inputs.get(FIRST, nothing.bool()),
            inputs.get(LAST_ACTION, nothing.long()),
            inputs.get(LAST_REWARD, nothing),
            inputs.get(TASK),
        )
        if isinstance(model.torso_net, PartsTorso):
            features = model.torso_net.of_parts(obs)
        else:
            features = model.torso_net(model.seen(obs[0], seen.task_id))
        state = inputs.get(STATE, nothing[:, None][:, :0])
        hidden, state = model.hidden(features[None], seen.as_row(), state)
        heads = model.heads(hidden[0], seen.task_id, self._mask(inputs.get(MASK)))
        made = [heads.params, heads.value, *([state] if model.state_count else [])]
        made += [model.distribution.mode(heads.params), self._sampled(heads.params, inputs)]
        return dict(zip(self.outputs, made, strict=True))

    def _mask(self, allowed: Tensor | None) -> Tensor | None:
        """Return [B, P] bool: what is allowed of the choices, and all that is of real numbers."""
        if allowed is None:
            return None
        choices = iter(allowed.split_with_sizes(_counts(self.spec, CHOICE), -1))
        ones = torch.ones_like(allowed[:, :1])
        parts = self.spec.actions.parts
        return torch.cat(
            [next(choices) if p.kind == CHOICE else ones.repeat(1, p.param_count) for p in parts],
            -1,
        )

    def _sampled(self, params: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """Return what `Distribution.sample` draws, from noise that is handed in."""
        actions = self.spec.actions
        noise = {
            kind: iter(inputs[name].split_with_sizes(_counts(self.spec, kind), -1))
            for kind, name in NOISE.items()
            if name in inputs
        }
        columns = []
        own_params = params.split_with_sizes([part.param_count for part in actions.parts], -1)
        for part, own in zip(actions.parts, own_params, strict=True):
            drawn = next(noise[part.kind])
            if part.kind == CHOICE:
                columns.append((own - drawn.log()).argmax(-1, keepdim=True))
            else:
                mean, log_std = own.chunk(2, -1)
                columns.append(mean + log_std.exp() * drawn)
        if actions.is_single_choice:
            return columns[0].squeeze(-1)
        return torch.cat([column.to(getattr(torch, actions.dtype)) for column in columns], -1)

    def example(self, count: int) -> dict[str, Tensor]:
        """Return random inputs of B = `count` environments."""
        draw = torch.Generator().manual_seed(count)
        fewest = min(part.count for part in self.spec.actions.parts)
        most, made = {TASK: self.spec.task_count, LAST_ACTION: fewest}, dict[str, Tensor]()
        for name, port in self.inputs.items():
            share = torch.rand((count, *port.shape), generator=draw)
            by_dtype = {
                "uint8": (256 * share).byte(),
                "bool": share < 0.7,
                "int64": (most.get(name, 1) * share).long(),
                "float32": -share.log() if name == EXPONENTIAL else 4 * share - 2,
            }
            made[name] = by_dtype[port.dtype]
        return made


def _counts(spec: EnvSpec, kind: str) -> list[int]:
    return [part.count for part in spec.actions.parts if part.kind == kind]


def _inputs(model: ActorCritic, spec: EnvSpec) -> dict[str, Port]:
    """Return the inputs of a model by name; observations come first."""
    extras, actions = getattr(model.core, "extras", ExtraInputs()), spec.actions
    ports: dict[str, Port] = {}
    newest = f"the newest {spec.frames_stacked} of" if spec.frames_stacked > 1 else "all of"
    for number, part in enumerate(spec.observation_parts):
        name = "obs_" + re.sub(r"\W+", "_", part.name).strip("_")
        name = f"{name}_{number}" if name in ports else name
        shape = (spec.frames_stacked * part.shape[0], *part.shape[1:])
        ports[name] = Port(shape, part.dtype, f"{newest} {part.name}")
    if not ports:
        ports["obs"] = Port(spec.obs_shape, spec.frame_dtype, f"{newest} what is shown")
    if model.state_count:
        ports[STATE] = Port((model.state_count,), "float32", "the last next_state; at first zeros")
    if model.state_count or extras.actions or extras.reward:
        ports[FIRST] = Port((), "bool", "whether a game starts, and nothing is remembered")
    if extras.actions:
        ports[LAST_ACTION] = Port(actions.shape, actions.dtype, "the action of the step before")
    if extras.reward:
        ports[LAST_REWARD] = Port((), "float32", "the raw reward of the step before")
    if spec.task_count > 1:
        ports[TASK] = Port((), "int64", "number of the game")
    choices = sum(_counts(spec, CHOICE))
    if spec.has_action_mask and choices:
        ports[MASK] = Port((choices,), "bool", "what is allowed, of each choice in turn")
    for kind, name in NOISE.items():
        width = sum(_counts(spec, kind))
        if width:
            text = f"draws of the standard {name.split('_')[0]} distribution, for sampled_action"
            ports[name] = Port((width,), "float32", text)
    return ports

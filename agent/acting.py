"""Acting: a light copy of the model whose weights arrive as one block of bytes.

The learner keeps fp32 weights. Whoever acts (workers, the scorer of elite replay, test mode) holds
a copy with the torso in bf16 where the processor computes it natively: half the bytes to copy and
half the time to act. The behaviour logits that V-trace needs are the ones this copy really used,
so the importance weights stay exact.

All weights of the copy are views of one flat byte block, so that "load the newest weights" is one
memory copy from the WeightBoard and needs no parsing.

A rollout does not care where actions come from (`ActionSource`): from an `Actor` of its own process
(`LocalActor`), or from the inference server (`RemoteActor` in agent/inference_server.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import nn

from agent.models.base import TORSO_PREFIX, ActorCritic
from core.unroll import ALIGNMENT_BYTES
from transport.weights import NO_VERSION, WeightBoard


class FlatWeights:
    """The layout of a model's weights in one block of bytes.

    Built alike in every process from the same model, so no layout ever travels.
    """

    def __init__(self, model: nn.Module, torso_dtype: torch.dtype) -> None:
        """Lay out the state of `model`: the torso's parameters as `torso_dtype`, the rest as is."""
        parameters = dict(model.named_parameters())
        self._entries: list[tuple[str, torch.Size, torch.dtype, int, int]] = []
        offset = 0
        for name, tensor in model.state_dict().items():
            in_torso = name.startswith(TORSO_PREFIX) and name in parameters
            dtype = torso_dtype if in_torso else tensor.dtype
            nbytes = tensor.numel() * dtype.itemsize
            self._entries.append((name, tensor.shape, dtype, offset, nbytes))
            offset += -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.nbytes = offset

    def views(self, block: np.ndarray) -> dict[str, torch.Tensor]:
        """Return name -> tensor views into a writable uint8 block `[nbytes]`."""
        flat = torch.from_numpy(block)
        return {
            name: flat[offset : offset + nbytes].view(dtype).view(shape)
            for name, shape, dtype, offset, nbytes in self._entries
        }

    def pack(self, model: nn.Module, block: np.ndarray) -> None:
        """Write (and cast) the model's weights into `block`."""
        state = model.state_dict()
        for name, view in self.views(block).items():
            view.copy_(state[name])

    def bind(self, model: nn.Module, block: np.ndarray) -> None:
        """Make the tensors of `model` views of `block`: writing the block changes the model."""
        views = self.views(block)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(False)
            parameter.data = views[name]
        for name, buffer in model.named_buffers():
            if name in views:
                buffer.data = views[name]


class ActingModel:
    """A model that acts with the newest weights of a WeightBoard, on any device. One thread."""

    def __init__(
        self,
        model: ActorCritic,
        weights: FlatWeights,
        board: WeightBoard,
        *,
        device: torch.device | str = "cpu",
        torso_dtype: torch.dtype = torch.float32,
    ) -> None:
        """Own `model`; its weights are arbitrary until the first `refresh`.

        Args:
          model: of the layout of `weights`, on the CPU.
          weights: the layout of the board.
          board: where the newest weights are.
          device: where the model computes. On the CPU its weights are those of the board.
          torso_dtype: of the torso's parameters on another device.
        """
        self.model = model
        self.version = NO_VERSION  # learner updates in the weights
        self._weights = weights
        self._board = board
        self._block = np.zeros(weights.nbytes, np.uint8)
        self._is_bound = torch.device(device).type == "cpu"
        if self._is_bound:
            weights.bind(model, self._block)
        else:
            model.to(device)
            for parameter in model.torso_net.parameters():  # buffers stay as they are
                parameter.data = parameter.data.to(torso_dtype)

    def refresh(self) -> None:
        """Take the newest weights, if there are newer ones."""
        version = self._board.read_if_newer(self.version, self._block)
        if version is None:
            return
        self.version = version
        if not self._is_bound:
            self.model.load_state_dict(self._weights.views(self._block))


@dataclass(frozen=True)
class Action:
    """What an actor decided for its E environments, and what must be recorded of it."""

    action: np.ndarray  # [E] int64
    params: np.ndarray  # [E, A] float32, logits
    value: np.ndarray  # [E] float32, unnormalised
    features: np.ndarray | None  # [E, F] float16


class Actor:
    """Turns stacked observations into actions. Not thread-safe: it owns a random stream."""

    def __init__(
        self,
        model: ActorCritic,
        seed: int,
        *,
        with_features: bool,
        greedy: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        """Wrap an acting model; `seed` starts this actor's own stream of random numbers.

        Args:
          model: on `device`.
          seed: equal seeds give equal draws on the same device.
          with_features: whether actions carry features.
          greedy: take the most probable action instead of a draw.
          device: where the model computes; observations and answers are on the CPU in any case.
        """
        self._model = model
        self._device = torch.device(device)
        self._generator = torch.Generator(self._device).manual_seed(seed)
        self._with_features = with_features
        self._greedy = greedy

    @torch.inference_mode()
    def act(self, stacks: np.ndarray, task_id: torch.Tensor | None = None) -> Action:
        """Choose an action for each stack.

        Args:
          stacks: [E, S, *frame_shape] uint8 or float32, pinned memory if the device is a GPU.
          task_id: [E] int64, or None for task 0.
        """
        envs, depth, channels = stacks.shape[:3]
        obs = torch.from_numpy(stacks).view(envs, depth * channels, *stacks.shape[3:])
        obs = obs.to(self._device, non_blocking=True)
        features = self._model.torso(obs)
        heads = self._model.heads(features, task_id)
        if self._greedy:
            action = heads.params.argmax(-1)
        else:
            # Exponential race: argmax(p / Exp(1)) is a draw from p; one pass, no cumulative sums.
            noise = torch.empty_like(heads.params).exponential_(generator=self._generator)
            action = (heads.params - noise.log()).argmax(-1)
        return Action(
            action=action.cpu().numpy(),
            params=heads.params.cpu().numpy(),
            value=heads.value.cpu().numpy(),
            features=features.to(torch.float16).cpu().numpy() if self._with_features else None,
        )

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the state of the random stream (a copy)."""
        return {"generator": self._generator.get_state().clone()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Put the random stream back."""
        self._generator.set_state(state["generator"])


class ActionSource(Protocol):
    """Chooses the actions of one group of environments: asked first, and answered when needed.

    Between the two the caller may do something else, such as stepping another group.
    """

    @property
    def version(self) -> int:
        """Learner updates in the weights of the last answer."""

    def ask(self, stacks: np.ndarray) -> None:
        """Say what the environments show, `[E, S, *frame_shape]`; unchanged until the answer."""

    def answer(self) -> Action:
        """Return the actions for what was asked last; valid until the next `ask`."""


class LocalActor:
    """An ActionSource of this process: it acts when the answer is wanted."""

    def __init__(self, actor: Actor, acting: ActingModel) -> None:
        """Wrap `actor`, which acts with the model of `acting`; who refreshes it is the caller."""
        self._actor = actor
        self._acting = acting
        self._stacks = np.empty(0)

    @property
    def version(self) -> int:
        """Learner updates in the weights as they are now."""
        return self._acting.version

    def ask(self, stacks: np.ndarray) -> None:
        """Remember the observations (no copy)."""
        self._stacks = stacks

    def answer(self) -> Action:
        """Act on them."""
        return self._actor.act(self._stacks)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the state of the random stream (a copy)."""
        return self._actor.state_dict()

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Put the random stream back."""
        self._actor.load_state_dict(state)

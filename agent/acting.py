"""Acting: a light copy of the model whose weights arrive as one block of bytes.

The learner keeps fp32 weights. Whoever acts (workers, the scorer of elite replay, test mode) holds
a copy with the torso in bf16 where the processor computes it natively: half the bytes to copy and
half the time to act. The behaviour logits that V-trace needs are the ones this copy really used,
so the importance weights stay exact.

All weights of the copy are views of one flat byte block, so that "load the newest weights" is one
memory copy from the WeightBoard and needs no parsing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from agent.models.base import TORSO_PREFIX, ActorCritic
from core.unroll import ALIGNMENT_BYTES


class FlatWeights:
    """The layout of a model's weights in one block of bytes.

    Built alike in every process from the same model, so no layout ever travels.
    """

    def __init__(self, model: nn.Module, torso_dtype: torch.dtype) -> None:
        """Lay out the state of `model`: floating torso tensors as `torso_dtype`, the rest as is."""
        self._entries: list[tuple[str, torch.Size, torch.dtype, int, int]] = []
        offset = 0
        for name, tensor in model.state_dict().items():
            in_torso = name.startswith(TORSO_PREFIX) and tensor.is_floating_point()
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
        self, model: ActorCritic, seed: int, *, with_features: bool, greedy: bool = False
    ) -> None:
        """Wrap an acting model; `seed` starts this actor's own stream of random numbers."""
        self._model = model
        self._generator = torch.Generator().manual_seed(seed)
        self._with_features = with_features
        self._greedy = greedy

    @torch.inference_mode()
    def act(self, stacks: np.ndarray, task_id: torch.Tensor | None = None) -> Action:
        """Choose an action for each stack.

        Args:
          stacks: [E, S, *frame_shape] uint8 or float32.
          task_id: [E] int64, or None for task 0.
        """
        envs, depth, channels = stacks.shape[:3]
        obs = torch.from_numpy(stacks).view(envs, depth * channels, *stacks.shape[3:])
        features = self._model.torso(obs)
        heads = self._model.heads(features, task_id)
        if self._greedy:
            action = heads.params.argmax(-1)
        else:
            # Exponential race: argmax(p / Exp(1)) is a draw from p; one pass, no cumulative sums.
            noise = torch.empty_like(heads.params).exponential_(generator=self._generator)
            action = (heads.params - noise.log()).argmax(-1)
        return Action(
            action=action.numpy(),
            params=heads.params.numpy(),
            value=heads.value.numpy(),
            features=features.to(torch.float16).numpy() if self._with_features else None,
        )

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the state of the random stream (a copy)."""
        return {"generator": self._generator.get_state().clone()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Put the random stream back."""
        self._generator.set_state(state["generator"])

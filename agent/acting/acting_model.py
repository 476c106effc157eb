"""A light copy of the model that acts, whose weights arrive as one block of bytes.

The learner keeps fp32 weights. Workers, the inference server, the scorer of elite replay and
evaluations use a copy. Its torso is in bf16 if the processor computes bf16 natively, which halves
the bytes to copy and the time to act.

All weights of the copy are views of one flat byte block, so that "load the newest weights" is one
memory copy from the WeightBoard and needs no parsing. Next to read: agent/acting/actor.py, which
decides with it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from ritornello.agent.machine import PLAIN, WeightFormat
from ritornello.agent.models.base import TORSO_PREFIX, ActorCritic
from ritornello.core.layout import aligned
from ritornello.transport.weights import NO_VERSION, WeightBoard


class FlatWeights:
    """The layout of a model's weights in one block of bytes.

    Built alike in every process from the same model, so no layout ever travels.
    """

    def __init__(self, model: nn.Module, torso_format: WeightFormat = PLAIN) -> None:
        """Lay out the state of `model`; the torso's parameters get `torso_format`.

        Kernels that `model` keeps in NHWC order stay in it whatever the format says.
        """
        parameters = dict(model.named_parameters())
        self._entries: list[tuple[str, torch.Size, tuple[int, ...], torch.dtype, int, int]] = []
        offset = 0
        for name, tensor in model.state_dict().items():
            in_torso = name.startswith(TORSO_PREFIX) and name in parameters
            dtype = torso_format.dtype if in_torso else tensor.dtype
            nbytes = tensor.numel() * dtype.itemsize
            is_nhwc = torso_format.channels_last and in_torso and tensor.dim() == 4
            order = torch.channels_last if is_nhwc else torch.preserve_format
            # Of a tensor without gaps.
            strides = torch.empty_like(tensor, device="meta", memory_format=order).stride()
            self._entries.append((name, tensor.shape, strides, dtype, offset, nbytes))
            offset += aligned(nbytes)
        self.nbytes = offset
        # Of weights on a GPU: all together there, the same by name, and all on the host.
        self._staging: tuple[torch.Tensor, dict[str, torch.Tensor], torch.Tensor] | None = None

    def views(self, block: np.ndarray) -> dict[str, torch.Tensor]:
        """Return name -> tensor views into a writable uint8 block `[nbytes]`."""
        return self.views_of(torch.from_numpy(block))

    def views_of(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return name -> tensor views into such a block as a tensor on any device."""
        return {
            name: flat[offset : offset + nbytes].view(dtype).as_strided(shape, strides)
            for name, shape, strides, dtype, offset, nbytes in self._entries
        }

    def pack(self, model: nn.Module, block: np.ndarray) -> None:
        """Write (and cast) the model's weights into `block`."""
        state = model.state_dict()
        device = next(iter(state.values())).device
        if device.type == "cpu":
            for name, view in self.views(block).items():
                view.copy_(state[name])
            return
        # Each copy from a GPU waits for it, so all weights are put together there.
        if self._staging is None:
            flat = torch.zeros(self.nbytes, dtype=torch.uint8, device=device)
            on_host = torch.empty_like(flat, device="cpu", pin_memory=True)
            self._staging = flat, self.views_of(flat), on_host
        flat, views, on_host = self._staging
        torch._foreach_copy_(list(views.values()), [state[name] for name in views])
        torch.from_numpy(block).copy_(on_host.copy_(flat))

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
          model: a model with the layout of `weights`, on the CPU.
          weights: layout of the board.
          board: where the newest weights are.
          device: where the model computes. On the CPU, its weights lie in a block with this layout.
          torso_dtype: dtype of the torso's parameters on another device.
        """
        self.model = model
        self.version = NO_VERSION  # learner updates in the weights
        self._weights = weights
        self._board = board
        device = torch.device(device)
        block = torch.zeros(weights.nbytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._block: np.ndarray = block.numpy()
        self._is_bound = device.type == "cpu"
        if self._is_bound:
            weights.bind(model, self._block)
            return
        model.to(device)
        for parameter in model.torso_net.parameters():  # buffers stay as they are
            parameter.data = parameter.data.to(torso_dtype)
        self._there = block.to(device)  # all weights in one transfer, and each of them
        self._new = weights.views_of(self._there)

    def refresh(self) -> None:
        """Take the newest weights, if there are newer ones."""
        version = self._board.read_if_newer(self.version, self._block)
        if version is None:
            return
        self.version = version
        if not self._is_bound:
            self._there.copy_(torch.from_numpy(self._block), non_blocking=True)
            own = self.model.state_dict()  # written in place: a recording reads them there
            torch._foreach_copy_([own[name] for name in self._new], list(self._new.values()))
            torch.cuda.current_stream().synchronize()  # before the block is written again

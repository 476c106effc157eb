"""The torso on several threads, each with a share of the rows.

On a CPU, n threads that each compute a share from the first layer to the last are faster than one
computation whose every operator is spread over n threads: they never wait for each other in
between. The gradient is the same sum, added up in a fixed order, so results are deterministic.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn


class ParallelTorso:
    """Runs a module over row shares in threads, forwards and backwards. Used by one thread."""

    def __init__(self, module: nn.Module, threads: int) -> None:
        """Start the threads.

        Args:
          module: [N, ...] -> [N, F], treating each row by itself.
          threads: at least 2.
        """
        self._module = module
        self._shares = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="learner")

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the module's features `[N, F]` of `rows` `[N, ...]`, with gradient."""
        features: Tensor = _Shares.apply(self, rows, *self._module.parameters())
        return features

    def forward_shares(self, rows: Tensor) -> list[Tensor]:
        """Return the features of each share, each with a graph of its own."""
        device = rows.device.type
        autocast = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

        def forward(share: Tensor) -> Tensor:
            # Gradient mode and autocast belong to a thread, so each has to be told.
            enabled, dtype = autocast
            with torch.enable_grad(), torch.autocast(device, dtype, enabled=enabled):
                return self._module(share)

        return list(self._pool.map(forward, rows.tensor_split(self._shares)))

    def backward_shares(self, features: list[Tensor], gradient: Tensor) -> list[Tensor]:
        """Return the gradient of each parameter, summed over the shares in order."""
        parameters = list(self._module.parameters())

        def backward(share: Tensor, share_gradient: Tensor) -> tuple[Tensor, ...]:
            return torch.autograd.grad(share, parameters, share_gradient)

        parts = self._pool.map(backward, features, gradient.tensor_split(self._shares))
        total, *others = [list(part) for part in parts]
        for other in others:
            torch._foreach_add_(total, other)
        return total

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


class _Shares(torch.autograd.Function):
    """Hides the threads from autograd: one operator from parameters to features."""

    @staticmethod
    def forward(ctx: Any, torso: ParallelTorso, rows: Tensor, *parameters: Tensor) -> Tensor:
        ctx.torso = torso
        ctx.features = torso.forward_shares(rows)
        return torch.cat([share.detach() for share in ctx.features])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        features, ctx.features = ctx.features, None  # frees the activations early
        return (None, None, *ctx.torso.backward_shares(features, gradients[0]))

"""Torso and core on several threads, each with a share of the rows or columns.

On a CPU, n threads that each compute a share from the first layer to the last are faster than one
computation whose every operator is spread over n threads: they never wait for each other in
between. The gradient is the same sum, added up in a fixed order, so results are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

# A share of the tensor, and which part of the whole it is -> what the module makes of it.
Compute = Callable[[Tensor, slice], Tensor]


class Parallel:
    """Runs a module over shares of a tensor in threads, forwards and backwards. Used by one thread.

    The same threads may serve another `Parallel` of the same caller, which waits for them anyway.
    """

    def __init__(
        self, module: nn.Module, pool: ThreadPoolExecutor, shares: int, *, dim: int
    ) -> None:
        """Cut tensors along `dim` into `shares`, at least 2; `pool` has at least as many threads.

        The parameters of `module` get a gradient. It treats each index of `dim` by itself.
        """
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._pool = pool
        self._shares = shares
        self.dim = dim

    def __call__(self, tensor: Tensor, compute: Compute) -> Tensor:
        """Apply `compute` to each share of `tensor`; return the joined results, with gradient."""
        joined: Tensor = _Shares.apply(self, compute, tensor, *self._parameters)
        return joined

    def forward_shares(self, compute: Compute, tensor: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return (share, its result) for each share, every pair with a graph of its own."""
        device = tensor.device.type
        autocast = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        # No share is empty: an LSTM cannot run over no columns.
        count = max(1, min(self._shares, tensor.shape[self.dim]))
        pieces = tensor.detach().tensor_split(count, self.dim)
        needs_gradient = tensor.requires_grad
        ends = accumulate(piece.shape[self.dim] for piece in pieces)

        def forward(piece: Tensor, end: int) -> tuple[Tensor, Tensor]:
            # Gradient mode and autocast belong to a thread, so each has to be told.
            enabled, dtype = autocast
            share = piece.requires_grad_() if needs_gradient else piece
            where = slice(end - piece.shape[self.dim], end)
            with torch.enable_grad(), torch.autocast(device, dtype, enabled=enabled):
                return share, compute(share, where)

        return list(self._pool.map(forward, pieces, ends))

    def backward_shares(
        self, shares: list[tuple[Tensor, Tensor]], gradient: Tensor
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        """Return the gradients of the tensor, if it requires one, and of each parameter.

        Gradients of parameters are summed over the shares in order. The gradient is None for a
        tensor or a parameter that the module does not use in any share.
        """

        def backward(share: tuple[Tensor, Tensor], part: Tensor) -> tuple[Tensor | None, ...]:
            leaf, made = share
            wanted = [leaf] if leaf.requires_grad else []
            return torch.autograd.grad(made, [*wanted, *self._parameters], part, allow_unused=True)

        pieces = gradient.tensor_split(len(shares), self.dim)
        parts = [list(part) for part in self._pool.map(backward, shares, pieces)]
        of_tensor = None
        if shares[0][0].requires_grad:
            of_shares = [part.pop(0) for part in parts]
            if any(each is not None for each in of_shares):
                of_tensor = torch.cat(
                    [
                        torch.zeros_like(leaf) if each is None else each
                        for (leaf, _), each in zip(shares, of_shares, strict=True)
                    ],
                    self.dim,
                )
        total, *others = parts
        for other in others:
            pairs = list(zip(total, other, strict=True))
            used = [(a, b) for a, b in pairs if a is not None and b is not None]
            if used:
                torch._foreach_add_([a for a, _ in used], [b for _, b in used])
            # What no share before has used begins with this one.
            total = [b if a is None else a for a, b in pairs]
        return of_tensor, total


class _Shares(torch.autograd.Function):
    """Hides the threads from autograd: one operator from tensor and parameters to the result."""

    @staticmethod
    def forward(
        ctx: Any, parallel: Parallel, compute: Compute, tensor: Tensor, *parameters: Tensor
    ) -> Tensor:
        ctx.parallel = parallel
        ctx.shares = parallel.forward_shares(compute, tensor)
        return torch.cat([made.detach() for _, made in ctx.shares], parallel.dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        shares, ctx.shares = ctx.shares, None  # frees the activations early
        of_tensor, of_parameters = ctx.parallel.backward_shares(shares, gradients[0])
        return (None, None, of_tensor, *of_parameters)

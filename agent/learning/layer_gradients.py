"""`LayerGradients` measures the effect of an update on each layer of the network.

agent/learning/learner.py measures it whenever a function from `every` says that it is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from ritornello.agent.models.base import ActorCritic


def every(seconds: float) -> Callable[[], bool]:
    """Return a function that is True on its first call and then at most once every `seconds`."""
    next_at = time.monotonic()

    def is_due() -> bool:
        nonlocal next_at
        now = time.monotonic()
        if now < next_at:
            return False
        next_at = now + seconds
        return True

    return is_due


class LayerGradients:
    """The effect of one update on each layer.

    Make it before the gradient is clipped, and call `metrics` after the optimiser's step. A layer
    is a module with parameters of its own, biases included, so the squares of the layers' norms add
    up to the square of `grad/norm_before_clip`. The object holds a copy of all weights meanwhile.
    """

    def __init__(self, model: ActorCritic) -> None:
        """Measure the present gradients of `model`; layers without a gradient are ignored."""
        self._weights: dict[str, list[Tensor]] = {}  # the parameters themselves
        gradients: dict[str, list[Tensor]] = {}
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                layer = name.rpartition(".")[0]
                self._weights.setdefault(layer, []).append(parameter.detach())
                gradients.setdefault(layer, []).append(parameter.grad)
        self._before = {layer: _flat(parts) for layer, parts in self._weights.items()}
        self._metrics: dict[str, Tensor] = {}
        for layer, parts in gradients.items():
            gradient = _flat(parts)
            self._metrics |= {
                f"gradient/{layer}/norm": gradient.norm(),
                f"gradient/{layer}/mean_abs": gradient.abs().mean(),
                f"gradient/{layer}/zero_fraction": (gradient == 0).float().mean(),
            }

    def metrics(self) -> dict[str, Tensor]:
        """Return name -> 0-d tensor; `update_ratio` is |new weights - old| / |old weights|."""
        ratios = {}
        for layer, before in self._before.items():
            moved = (_flat(self._weights[layer]) - before).norm()
            # A layer that is all zeros has no size to compare with: NaN, which counts for nothing.
            ratios[f"gradient/{layer}/update_ratio"] = moved / before.norm().where(
                before.any(), before.new_tensor(torch.nan)
            )
        return self._metrics | ratios


def _flat(parts: list[Tensor]) -> Tensor:
    """Return all numbers as one new [n] tensor."""
    return torch.cat([part.flatten() for part in parts])

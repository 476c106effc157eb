"""Optimisers and the learning-rate schedule.

The rate is a pure function of the run's progress, so there is no scheduler state that a resumed
run could lose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ritornello.core.saved_state import expect, item, within
from ritornello.flags.kinds import Optimiser, Schedule

POWER = 2.0  # of the polynomial schedule


@dataclass(frozen=True)
class OptimiserConfig:
    """Settings of optimiser and learning rate. The defaults and bounds are those of the flags."""

    name: Optimiser = "adam"
    lr: float = 2.5e-4
    lr_end: float = 1e-5
    schedule: Schedule = "linear"
    epsilon: float = 1e-5  # inside the root for rmsprop_tf, outside for rmsprop and adam
    alpha: float = 0.99  # decay of the second moment of both rmsprops
    beta1: float = 0.9  # of adam
    beta2: float = 0.999  # of adam


class RMSpropTF(torch.optim.Optimizer):
    """RMSprop as TensorFlow 1 has it, which is what published Atari settings were found with.

        v <- alpha v + (1 - alpha) g^2
        p <- p - lr g / sqrt(v + eps)

    `torch.optim.RMSprop` has sqrt(v) + eps, and starts v at 0 instead of 1. With eps = 0.01 its
    steps are up to ten times larger for small gradients.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float, *, alpha: float = 0.99, eps: float = 0.01
    ) -> None:
        """Create the optimiser; state is allocated at a parameter's first step."""
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step for all parameters that have a gradient."""
        if closure is not None:
            raise ValueError("RMSpropTF takes no closure: compute gradients before step().")
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            grads = [p.grad for p in params]
            # The _foreach_ functions loop over the tensors in C++ (in one kernel on a GPU).
            square_avgs = [self._square_avg_of(p) for p in params]
            torch._foreach_mul_(square_avgs, group["alpha"])
            torch._foreach_addcmul_(square_avgs, grads, grads, 1 - group["alpha"])
            roots = torch._foreach_add(square_avgs, group["eps"])
            torch._foreach_sqrt_(roots)
            torch._foreach_addcdiv_(params, grads, roots, -group["lr"])

    def _square_avg_of(self, parameter: Tensor) -> Tensor:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["square_avg"] = torch.ones_like(parameter)  # TensorFlow's start
        return state["square_avg"]


def make_optimiser(config: OptimiserConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimiser of all parameters of `model`."""
    params = list(model.parameters())
    if config.name == "adam":
        device = params[0].device
        is_on_gpu = device.type == "cuda"  # a step that is recorded reads its rate from a tensor
        return torch.optim.Adam(
            params,
            lr=torch.tensor(config.lr, device=device) if is_on_gpu else config.lr,
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            fused=True,
            capturable=is_on_gpu,
        )
    if config.name == "rmsprop":
        return torch.optim.RMSprop(
            params, lr=config.lr, alpha=config.alpha, eps=config.epsilon, foreach=True
        )
    return RMSpropTF(params, config.lr, alpha=config.alpha, eps=config.epsilon)


def rate_is_tensor(optimiser: torch.optim.Optimizer) -> bool:
    """Return whether a step can be recorded: it reads all that changes from tensors."""
    return isinstance(optimiser.param_groups[0]["lr"], Tensor)


def set_rate(optimiser: torch.optim.Optimizer, lr: float | Tensor) -> None:
    """Set the learning rate if `lr` and the optimiser's are both tensors or both numbers."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            if isinstance(lr, Tensor):
                group["lr"].copy_(lr)
        elif not isinstance(lr, Tensor):
            group["lr"] = lr


def state_of(optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the `state_dict` of an optimiser, its rate as a number."""
    state = optimiser.state_dict()
    groups = [group | {"lr": float(group["lr"])} for group in state["param_groups"]]
    return state | {"param_groups": groups}


def learning_rate(config: OptimiserConfig, progress: float) -> float:
    """Return the learning rate at `progress`, the share of the run that is done.

    lr_end + (lr - lr_end) (1 - progress)^power, with power 1 for `linear` and 0 for `constant`;
    progress is clamped to [0, 1].
    """
    progress = min(max(progress, 0.0), 1.0)
    power = {"constant": 0.0, "linear": 1.0, "polynomial": POWER}[config.schedule]
    return config.lr_end + (config.lr - config.lr_end) * (1 - progress) ** power


# What each optimiser keeps of a parameter that has had a gradient: tensors of its shape, and single
# numbers.
KEPT: dict[type[torch.optim.Optimizer], tuple[tuple[str, ...], tuple[str, ...]]] = {
    torch.optim.Adam: (("exp_avg", "exp_avg_sq"), ("step",)),
    torch.optim.RMSprop: (("square_avg",), ("step",)),
    RMSpropTF: (("square_avg",), ()),
}


def load_moments(optimiser: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Load the optimiser's moments from a `state_dict`; they become its own.

    Its settings, such as epsilon, stay as they are.

    Raises:
      StateError: if the moments are of another optimiser or of other parameters.
    """
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    moments, counts = KEPT.get(type(optimiser), ((), ()))
    state: dict[int, dict[str, Any]] = {}
    for number, kept in item(saved, "state", dict).items():
        with within("state", number):
            for name in (*moments, *counts):
                shape = parameters[number].shape if name in moments else ()
                got = item(kept, name, Tensor).shape
                expect(got == shape, f"{tuple(shape)}, got {tuple(got)}", name)
            state[number] = dict(kept)
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})

"""Optimisers and the learning-rate schedule.

The rate is a pure function of the run's progress, so there is no scheduler state that a resumed
run could lose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from core.errors import ConfigError

OPTIMISERS = ("rmsprop_tf", "rmsprop", "adam")
SCHEDULES = ("constant", "linear", "polynomial")
# Weights are float32. Beyond these a gradient that is finite and clipped to anything below 1e8 can
# make infinite ones: rate times gradient overflows, and an epsilon that rounds to 0 divides 0 by 0.
LARGEST_RATE = 1e30
SMALLEST_EPSILON = 1e-30


@dataclass(frozen=True)
class OptimiserConfig:
    """Which optimiser, and how its learning rate falls. Defaults: IMPALA's, table G.1."""

    name: str = "rmsprop_tf"  # one of OPTIMISERS
    lr: float = 6e-4
    lr_end: float = 0.0
    schedule: str = "linear"  # one of SCHEDULES
    power: float = 2.0  # of the polynomial schedule; 1 is linear
    warmup_fraction: float = 0.0  # share of the run in which the rate rises from 0
    epsilon: float = 0.01  # inside the root for rmsprop_tf, outside for rmsprop and adam
    alpha: float = 0.99  # decay of the second moment of both rmsprops
    momentum: float = 0.0  # of both rmsprops
    initial_second_moment: float = 1.0  # of rmsprop_tf; TensorFlow starts at 1, torch at 0
    beta1: float = 0.9  # of adam
    beta2: float = 0.999  # of adam

    def __post_init__(self) -> None:
        """Raise ConfigError on values out of range."""
        if self.name not in OPTIMISERS:
            raise ConfigError(
                f"optimiser is {self.name!r}, expected one of {', '.join(OPTIMISERS)}."
            )
        if self.schedule not in SCHEDULES:
            raise ConfigError(
                f"schedule is {self.schedule!r}, expected one of {', '.join(SCHEDULES)}."
            )
        for name in ("lr", "epsilon", "power"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected above 0.")
        for name in ("lr", "lr_end"):
            if not getattr(self, name) <= LARGEST_RATE:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}, expected at most {LARGEST_RATE:g}: weights "
                    "are float32. Usual rates are 1e-5 to 1e-2."
                )
        if self.epsilon < SMALLEST_EPSILON:
            raise ConfigError(
                f"epsilon of {self.name} is {self.epsilon}, expected at least "
                f"{SMALLEST_EPSILON:g}: in float32 a smaller one is nearly 0, and divides by it."
            )
        for name in ("alpha", "momentum", "warmup_fraction", "beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected in [0, 1).")
        for name in ("lr_end", "initial_second_moment"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected 0 or more.")


class RMSpropTF(torch.optim.Optimizer):
    """RMSprop as TensorFlow 1 has it, which is what published Atari settings were found with.

        v <- alpha v + (1 - alpha) g^2
        m <- momentum m + lr g / sqrt(v + eps)
        p <- p - m

    `torch.optim.RMSprop` has sqrt(v) + eps, starts v at 0 instead of 1, and multiplies by lr after
    the momentum. With eps = 0.01 its steps are up to ten times larger for small gradients.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        *,
        alpha: float = 0.99,
        eps: float = 0.01,
        momentum: float = 0.0,
        initial_second_moment: float = 1.0,
    ) -> None:
        """Create the optimiser; state is allocated at a parameter's first step."""
        defaults = {"lr": lr, "alpha": alpha, "eps": eps, "momentum": momentum}
        super().__init__(params, {**defaults, "initial_second_moment": initial_second_moment})

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
            states = [self._state_of(p, group) for p in params]
            # The _foreach_ functions loop over the tensors in C++ (in one kernel on a GPU).
            square_avgs = [state["square_avg"] for state in states]
            torch._foreach_mul_(square_avgs, group["alpha"])
            torch._foreach_addcmul_(square_avgs, grads, grads, 1 - group["alpha"])
            roots = torch._foreach_add(square_avgs, group["eps"])
            torch._foreach_sqrt_(roots)
            if group["momentum"]:
                buffers = [state["momentum_buffer"] for state in states]
                torch._foreach_mul_(buffers, group["momentum"])
                torch._foreach_addcdiv_(buffers, grads, roots, group["lr"])
                torch._foreach_sub_(params, buffers)
            else:
                torch._foreach_addcdiv_(params, grads, roots, -group["lr"])

    def _state_of(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["square_avg"] = torch.full_like(parameter, group["initial_second_moment"])
            if group["momentum"]:
                state["momentum_buffer"] = torch.zeros_like(parameter)
        return state


def make_optimiser(config: OptimiserConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimiser of all parameters of `model`."""
    params = list(model.parameters())
    if config.name == "adam":
        return torch.optim.Adam(
            params,
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            fused=True,
        )
    if config.name == "rmsprop":
        return torch.optim.RMSprop(
            params,
            lr=config.lr,
            alpha=config.alpha,
            eps=config.epsilon,
            momentum=config.momentum,
            foreach=True,
        )
    return RMSpropTF(
        params,
        config.lr,
        alpha=config.alpha,
        eps=config.epsilon,
        momentum=config.momentum,
        initial_second_moment=config.initial_second_moment,
    )


def learning_rate(config: OptimiserConfig, progress: float) -> float:
    """Return the learning rate at `progress`, the share of the run that is done.

    lr_end + (lr - lr_end) (1 - progress)^power, with power 1 for `linear` and 0 for `constant`;
    progress is clamped to [0, 1]. During warm-up the result is scaled up linearly from 0.
    """
    progress = min(max(progress, 0.0), 1.0)
    power = {"constant": 0.0, "linear": 1.0, "polynomial": config.power}[config.schedule]
    rate = config.lr_end + (config.lr - config.lr_end) * (1 - progress) ** power
    if progress < config.warmup_fraction:
        rate *= progress / config.warmup_fraction
    return rate

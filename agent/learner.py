"""Turns batches into weights.

Batches come from the cache (agent/feed.py makes them); weights go to the workers through whoever
owns this learner. Single thread, no files, no clocks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from agent.algorithms.impala import Loss
from agent.batch import Batch
from agent.models.base import ActorCritic
from core.errors import PlatformError

OBSERVED_UPDATES = 200  # over which the torso learns what pixels look like; fixed from then on


class NonFiniteUpdate(PlatformError):
    """A loss or a gradient became NaN or infinite; the optimiser has not stepped on it."""


class Algorithm(Protocol):
    """What a learner needs of an algorithm; `Impala` is one."""

    def check(self, model: ActorCritic) -> None:
        """Raise ConfigError if the algorithm cannot train this model."""

    def loss(
        self, model: ActorCritic, batch: Batch, optimiser: torch.optim.Optimizer | None = None
    ) -> Loss:
        """Compute the loss of one batch."""


class Learner:
    """Owns model and optimiser, and takes one optimiser step per batch.

    Not thread-safe: `step` and `state_dict` belong to one thread.
    """

    def __init__(
        self,
        model: ActorCritic,
        algorithm: Algorithm,
        optimiser: torch.optim.Optimizer,
        schedule: Callable[[float], float],
        *,
        max_grad_norm: float = 40.0,
        precision: str = "fp32",
        channels_last: bool = False,
        compile: bool = False,
        threads: int = 1,
    ) -> None:
        """Prepare for training; `model` stays on its device.

        Args:
          model: with all parameters already on the device of the batches.
          algorithm: gives the loss.
          optimiser: over the parameters of `model`.
          schedule: progress in [0, 1] -> learning rate.
          max_grad_norm: global L2 norm that gradients are clipped to; 0 does not clip.
          precision: "fp32" or "bf16", what the torso computes in. Everything else is fp32.
          channels_last: keep images and convolution weights in NHWC order (for tensor cores).
          threads: on a CPU, how many compute shares of the torso's rows at once.
          compile: run the torso through torch.compile; the first step then takes a minute.
        """
        algorithm.check(model)
        self.model = model
        self.algorithm = algorithm
        self.optimiser = optimiser
        self.version = 0  # updates done
        self._schedule = schedule
        self._max_grad_norm = max_grad_norm or float("inf")
        self._parameters = list(model.parameters())
        model.set_precision(precision)
        model.set_threads(threads)
        if channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if compile:
            model.torso_net.compile(dynamic=False)

    def step(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """Learn from one batch: loss, gradient, clip, optimiser step.

        Args:
          batch: on the model's device.
          progress: share of the run that is done, for the schedule.

        Returns:
          Metrics: name -> 0-d tensor, detached, on the model's device (reading one waits for it).

        Raises:
          NonFiniteUpdate: if the loss or a gradient is not finite.
        """
        lr = self._schedule(progress)
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        if self.version < OBSERVED_UPDATES:
            self.model.observe(batch.obs)
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.algorithm.loss(self.model, batch, self.optimiser)
        loss.total.backward()
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
        # The only wait for the device in a step: a bad gradient must not reach the weights.
        if not torch.isfinite(norm + loss.total.detach()):
            raise NonFiniteUpdate(self._blame(loss))
        torch.nn.utils.clip_grads_with_norm_(
            self._parameters, self._max_grad_norm, norm, foreach=True
        )
        self.optimiser.step()

        lag = (self.version - batch.version) * batch.is_online
        self.version += 1
        return loss.metrics | {
            "grad/norm_before_clip": norm,
            "grad/clipped_fraction": (norm > self._max_grad_norm).float(),
            "optimiser/lr": norm.new_tensor(lr),
            "lag/mean_updates": lag.sum() / batch.is_online.sum().clamp(min=1),
            "lag/max_updates": lag.max(),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return model, optimiser and version: a copy, of tensors and plain types only."""
        return copy.deepcopy(
            {
                "model": dict(self.model.state_dict()),
                "optimiser": self.optimiser.state_dict(),
                "version": self.version,
            }
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`; `state` is copied, not kept."""
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(copy.deepcopy(state["optimiser"]))
        self.version = state["version"]

    def _blame(self, loss: Loss) -> str:
        """Say which terms of the loss, or failing that which gradients, are not finite."""
        culprits = [
            f"{name} is {float(value)}"
            for name, value in loss.metrics.items()
            if name.startswith("loss/") and name != "loss/total" and not value.isfinite()
        ] or [
            f"the gradient of {name} is not finite"
            for name, parameter in self.model.named_parameters()
            if parameter.grad is not None and not parameter.grad.isfinite().all()
        ]
        reason = "; ".join(culprits) or "the norm of the gradient overflowed"
        return (
            f"update {self.version} cannot be made: {reason}; expected finite numbers. Resume from "
            "the last checkpoint with a lower --lr, or check the rewards and their transform."
        )

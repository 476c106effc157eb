"""The actor-critic model, cut in two: a torso up to the features, and heads on top.

The cut is where it is because (a) elite and attentive replay compare features, and (b) PopArt
rewrites the value head between computing targets and computing losses, which must not cost a
second pass through the torso. Torsos are in torsos.py, the value head is in popart.py, and
factory.py builds the whole from a config.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from agent.models.parallel import ParallelTorso
from agent.models.pixels import PixelStatistics
from agent.models.popart import PopArt
from core.errors import ConfigError, ShapeError

PRECISIONS = ("fp32", "bf16")
TORSO_PREFIX = "torso_net."  # of the torso's tensors in the state dict


class Heads(NamedTuple):
    """What the model says about states; leading dims are those of the features."""

    params: Tensor  # [..., A] float32, logits of pi(.|x)
    value: Tensor  # [...] float32, V(x) in reward units
    value_normalised: Tensor  # [...] float32, V(x) in the units of the value loss


class ActorCritic(nn.Module):
    """Policy and value over a shared torso.

    The torso may compute in bfloat16, by autocast (`set_precision`, for learning) or because its
    weights are bfloat16 (acting copies); features, heads and everything after are float32.
    """

    def __init__(
        self,
        torso_net: nn.Module,
        obs_shape: tuple[int, ...],
        feature_count: int,
        action_count: int,
        value_head: PopArt,
    ) -> None:
        """Put the parts together.

        Args:
          torso_net: [N, *obs_shape] -> [N, F]; accepts uint8 pixels or float32 vectors.
          obs_shape: shape of one stacked observation.
          feature_count: F.
          action_count: A.
          value_head: F -> values.
        """
        super().__init__()
        self.torso_net = torso_net
        self.obs_shape = tuple(obs_shape)
        self.feature_count = feature_count
        self.action_count = action_count
        self.policy_head = nn.Linear(feature_count, action_count)
        self.value_head = value_head
        self.precision = "fp32"
        self._parallel_torso: ParallelTorso | None = None

    def set_threads(self, threads: int) -> None:
        """Compute the torso on this many threads where a gradient is wanted (CPU only)."""
        self._parallel_torso = ParallelTorso(self.torso_net, threads) if threads > 1 else None

    def set_precision(self, precision: str) -> None:
        """Choose what the torso computes in: "fp32" or "bf16" (autocast; weights stay fp32)."""
        if precision not in PRECISIONS:
            raise ConfigError(f"precision is {precision!r}, expected one of {PRECISIONS}.")
        self.precision = precision

    def observe(self, obs: Tensor) -> None:
        """Let the torso learn what pixels look like, if it normalises them.

        Args:
          obs: as for `torso`.
        """
        for module in self.torso_net.modules():
            if isinstance(module, PixelStatistics):
                module.observe(obs.reshape(-1, *self.obs_shape))

    def torso(self, obs: Tensor) -> Tensor:
        """Encode observations.

        Args:
          obs: [..., *obs_shape] uint8 or float32; any leading dims, e.g. [E] or [T+1, B].

        Returns:
          features [..., F] float32.
        """
        leading = obs.shape[: obs.ndim - len(self.obs_shape)]
        if obs.shape[len(leading) :] != self.obs_shape:
            raise ShapeError(
                f"obs has shape {tuple(obs.shape)}, expected [..., {self.obs_shape}]: "
                "the model was built for another environment."
            )
        rows = obs.reshape(-1, *self.obs_shape)
        with torch.autocast(obs.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            if self._parallel_torso is not None and torch.is_grad_enabled():
                features = self._parallel_torso(rows)
            else:
                features = self.torso_net(rows)
        return features.float().reshape(*leading, self.feature_count)

    def heads(self, features: Tensor, task_id: Tensor | None = None) -> Heads:
        """Read policy and value off features.

        Args:
          features: [..., F] float32.
          task_id: int64, broadcast against the leading dims; None means task 0.
        """
        values = self.value_head(features, task_id)
        return Heads(self.policy_head(features), values.value, values.value_normalised)

    def forward(self, obs: Tensor, task_id: Tensor | None = None) -> Heads:
        """Return `heads(torso(obs))`: one step of acting."""
        return self.heads(self.torso(obs), task_id)

"""IMPALA whose workers act with an average of the latest weights: an arm of queue.yaml.

    --algorithm=research.averaged_actor:averaged_actor

After each update the averaged weights move by a share of the way to the new ones (Polyak and
Juditsky 1992); the workers are given these. The learner trains as ever, and V-trace corrects for
the difference. The average begins anew in each session.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ritornello.agent.acting.acting_model import FlatWeights
from ritornello.agent.algorithms.base import ImpalaConfig, Loss, register_algorithm
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.models.base import ActorCritic


class _Average:
    """The average of a model's weights; its buffers are the newest."""

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        self._weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def follow(self, kept: float) -> None:
        """Move to the newest weights, of which an update makes up 1 - `kept`."""
        if (model := self._model()) is not None:
            torch._foreach_lerp_(list(self._weights.values()), list(model.parameters()), 1 - kept)

    def state_dict(self) -> dict[str, Tensor]:
        """Return what the workers are given."""
        model = self._model()
        return {} if model is None else {**model.state_dict(), **self._weights}


_averages: weakref.WeakKeyDictionary[nn.Module, _Average] = weakref.WeakKeyDictionary()
_pack: Any = FlatWeights.pack


def _pack_average(self: FlatWeights, model: nn.Module, block: np.ndarray) -> None:
    _pack(self, _averages.get(model, model), block)


FlatWeights.pack = _pack_average  # type: ignore[method-assign]


@dataclass(frozen=True)
class AveragedActorConfig(ImpalaConfig):
    """Settings of IMPALA, and of the average."""

    kept: float = 0.99  # share of the average that an update keeps


@register_algorithm("averaged_actor")
class AveragedActor(Impala):
    """IMPALA's loss; what acts is an average of the weights."""

    Config = AveragedActorConfig
    config: AveragedActorConfig

    def loss(
        self,
        model: ActorCritic,
        batch: Batch,
        optimiser: torch.optim.Optimizer | None = None,
        progress: float | Tensor = 0.0,
    ) -> Loss:
        """Compute IMPALA's loss; see that each step of the optimiser moves the average."""
        if optimiser is not None and model not in _averages:
            average = _averages[model] = _Average(model)
            optimiser.register_step_post_hook(lambda *_: average.follow(self.config.kept))
        return super().loss(model, batch, optimiser, progress)

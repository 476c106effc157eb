"""IMPALA whose critic is a histogram: arms of queue.yaml.

    --algorithm=research.histogram_critic:histogram --model=research.histogram_critic:bins
    --use_popart=False --value_loss_weight=0

The value of a state is the mean of a distribution over bins, which learns by cross-entropy with a
normal distribution around V-trace's target (HL-Gauss: Farebrother et al. 2024,
https://arxiv.org/abs/2403.03950). The bins are equally wide in symlog(v) = sign(v) log(1 + |v|)
(DreamerV3: Hafner et al. 2023, https://arxiv.org/abs/2301.04104), so that one set fits all games
with clipped rewards. Sizes: T steps, B unrolls, F features, N bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from ritornello.agent.algorithms import losses
from ritornello.agent.algorithms.base import (
    ImpalaConfig,
    Loss,
    VTraceConfig,
    register_algorithm,
)
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.algorithms.vtrace import VTrace
from ritornello.agent.models.base import ActorCritic, Core, Inputs
from ritornello.agent.models.initialisation import draw_layer
from ritornello.agent.models.networks import Network, NetworkRequest
from ritornello.agent.models.torsos import ImageTorso
from ritornello.flags.parts import NETWORKS
from ritornello.metrics.record import declare

BINS, LARGEST = 101, 4.0  # of symlog(v): values of -54 to 54
WIDTH = 2 * LARGEST / BINS
DEVIATION = 0.75 * WIDTH  # as in the paper
SHOWN = 0.1  # of the value among the hidden units, so that it is of their size

declare("loss/histogram", "", "Cross-entropy of the histogram of values.")


def symlog(values: Tensor) -> Tensor:
    """Return sign(v) log(1 + |v|)."""
    return values.sign() * values.abs().log1p()


class HistogramCore(Core):
    """Adds the mean of the histogram to the features: [.., F] becomes [.., F + 1]."""

    made: Tensor  # [T+1, B, N], the logits of the last call

    def __init__(self, feature_count: int) -> None:
        """Build the histogram's layer for F features."""
        super().__init__(feature_count + 1)
        self.logits = nn.Linear(feature_count, BINS)
        centres = torch.linspace(-LARGEST + WIDTH / 2, LARGEST - WIDTH / 2, BINS)
        self.register_buffer("values", centres.sign() * centres.abs().expm1())

    def initialise(self, generator: torch.Generator) -> None:
        """Start almost uniform: with a value of 0."""
        draw_layer(self.logits, 0.01, generator)

    def forward(
        self, features: Tensor, inputs: Inputs, state: Tensor, keep_gradient: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute `ActorCritic.hidden`; nothing learns through the value there."""
        self.made = self.logits(features)
        value = self.made.detach().softmax(-1) @ cast("Tensor", self.values)
        return torch.cat([features, SHOWN * value.unsqueeze(-1)], -1), state


def _with_bins(want: NetworkRequest) -> tuple[nn.Module, Core]:
    torso = ImageTorso("impala_shallow", want)
    return torso, HistogramCore(torso.feature_count)


NETWORKS.add(
    "bins",
    Network(_with_bins, "images", has_memory=True, takes_raw=True, takes_layer_norm=True),
    __name__,
)


@dataclass(frozen=True)
class HistogramConfig(ImpalaConfig):
    """Settings of IMPALA, and the cost of the cross-entropy."""

    histogram_cost: float = 0.25


@register_algorithm("histogram")
class Histogram(Impala):
    """IMPALA with a cross-entropy for the value error."""

    Config = HistogramConfig
    config: HistogramConfig
    sums_over_learners = False
    _targets: Tensor  # [T, B]

    def check(self, model: ActorCritic) -> None:
        """Let the value head show the hidden unit that is the value."""
        super().check(model)
        assert not model.value_head.enabled, "give --use_popart=False"
        assert self.config.value_cost == 0, "give --value_loss_weight=0"
        with torch.no_grad():
            model.value_head.linear.weight.zero_()[:, -1] = 1 / SHOWN
            model.policy_head.weight[:, -1] = 0  # it begins without an opinion of the value

    def correct(  # type: ignore[override]
        self, config: VTraceConfig, batch: Batch, log_rhos: Tensor, values: Tensor,
        trust: Tensor | None = None,
    ) -> VTrace:  # fmt: skip
        """Remember what V-trace says."""
        corrected = losses.correct(config, batch, log_rhos, values, trust)
        self._targets = corrected.targets
        return corrected

    def loss(
        self,
        model: ActorCritic,
        batch: Batch,
        optimiser: torch.optim.Optimizer | None = None,
        progress: float | Tensor = 0.0,
    ) -> Loss:
        """Compute IMPALA's loss, and add the cross-entropy."""
        loss = super().loss(model, batch, optimiser, progress)
        logits = cast("HistogramCore", model.core).made[:-1]
        term = cross_entropy(logits, self._targets, ~batch.reset_row)
        metrics = loss.metrics | {"loss/histogram": term.detach()}
        return loss._replace(total=loss.total + self.config.histogram_cost * term, metrics=metrics)


def cross_entropy(logits: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    """Return the mean cross-entropy of logits [T, B, N] with normal distributions around targets.

    `targets` are [T, B], in reward units; `valid` [T, B] bool are the steps that count.
    """
    edges = torch.linspace(-LARGEST, LARGEST, BINS + 1, device=logits.device)
    inside = symlog(targets[valid]).clamp(-LARGEST + WIDTH, LARGEST - WIDTH).unsqueeze(-1)
    below = torch.special.ndtr((edges - inside) / DEVIATION)
    wanted = below.diff(dim=-1) / (below[..., -1:] - below[..., :1])
    return -(wanted * logits[valid].log_softmax(-1)).sum(-1).mean()

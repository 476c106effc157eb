"""IMPALA whose hidden matrices move by Muon: an arm of queue.yaml.

    --algorithm=research.muon:impala_muon --algorithm_kwargs='{"step_size": 0.2}'

Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/: the momentum of a matrix, looked
ahead (Nesterov), is replaced by a matrix whose singular values are all about 1, by 5 steps of
Newton and Schulz. A kernel is a matrix of its output channels. An entry moves by `step_size` rates,
as it does by Adam with 0.2 to 0.4 (Liu et al. 2025, https://arxiv.org/abs/2502.16982), so that
rates of Adam fit. Heads, biases and normalisations are moved by Adam.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ritornello.agent.algorithms.base import Loss, register_algorithm
from ritornello.agent.algorithms.batch import Batch
from ritornello.agent.algorithms.impala import Impala
from ritornello.agent.algorithms.impala_config import ImpalaConfig
from ritornello.agent.models.base import ActorCritic

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


@dataclass(frozen=True)
class MuonConfig(ImpalaConfig):
    """Settings of IMPALA and of the step."""

    step_size: float = 0.2  # root mean square of an entry's step, in learning rates


@register_algorithm("impala_muon")
class MuonImpala(Impala):
    """IMPALA that moves hidden matrices in the optimiser's place. A resume has no momentum."""

    Config = MuonConfig
    config: MuonConfig
    loss_is_pure = False
    _hidden: dict[Tensor, Tensor]  # matrix -> momentum
    _is_hooked = False

    def check(self, model: ActorCritic) -> None:
        """Find the matrices between observation and heads."""
        super().check(model)
        heads = ("policy_head", "value_head")
        self._hidden = {
            parameter: torch.zeros_like(parameter)
            for name, parameter in model.named_parameters()
            if parameter.ndim > 1 and not name.startswith(heads)
        }

    def loss(
        self,
        model: ActorCritic,
        batch: Batch,
        optimiser: torch.optim.Optimizer | None = None,
        progress: float | Tensor = 0.0,
    ) -> Loss:
        """Compute the loss; from the first one on, hidden matrices are moved here."""
        if optimiser is not None and not self._is_hooked:
            optimiser.register_step_pre_hook(self._move)
            self._is_hooked = True
        return super().loss(model, batch, optimiser, progress)

    @torch.no_grad()
    def _move(self, optimiser: torch.optim.Optimizer, *_: Any) -> None:
        rate = float(optimiser.param_groups[0]["lr"])
        for parameter, momentum in self._hidden.items():
            gradient, parameter.grad = parameter.grad, None  # Adam leaves it out
            assert gradient is not None
            momentum.lerp_(gradient, 1 - MOMENTUM)
            step = orthogonal(gradient.lerp(momentum, MOMENTUM).flatten(1))
            size = self.config.step_size * max(step.shape) ** 0.5
            parameter.sub_(step.view_as(parameter), alpha=rate * size)


def orthogonal(matrix: Tensor) -> Tensor:
    """Return about the nearest matrix whose singular values are 1, of the same shape.

    Each step of Newton and Schulz multiplies by a polynomial of X X^T, so that the long side of X
    is met but twice.
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x = x / (x.norm() + 1e-7)
    gram = x @ x.T
    product = one = torch.eye(len(gram))
    a, b, c = NEWTON_SCHULZ
    for _ in range(5):
        factor = a * one + torch.addmm(gram, gram, gram, beta=b, alpha=c)
        product = factor @ product
        gram = factor @ gram @ factor
    x = product @ x
    return x.T if is_tall else x

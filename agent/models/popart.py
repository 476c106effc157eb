"""The value head, with or without PopArt.

PopArt (van Hasselt et al. 2016, https://arxiv.org/abs/1602.07714; multi-task with V-trace: Hessel
et al. 2019, https://arxiv.org/abs/1809.04474) lets a value head learn in normalised units, whatever
the size of a game's rewards: statistics of the targets are tracked (the *art*: adaptively rescaling
targets), and whenever they move the head is rewritten so that no output changes (the *pop*:
preserving outputs precisely). Sizes: T steps, B unrolls, K tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ritornello.agent.models.pixels import snapshot_of
from ritornello.agent.process_group import SINGLE_PROCESS, ProcessGroup

SIGMA_MIN, SIGMA_MAX = 1e-4, 1e6  # Hessel et al. 2019, appendix

# Where optimisers keep running moments of the gradient, and the power of the gradient they hold.
_MOMENT_POWERS = {"square_avg": 2, "exp_avg_sq": 2, "exp_avg": 1}


class Values(NamedTuple):
    """One state's value in both units; each `[...]` float32."""

    value: Tensor  # V(x) in reward units
    value_normalised: Tensor  # (V(x) - mu) / sigma, what the head itself predicts


class PopArt(nn.Module):
    """A linear value head per task, in units that follow the targets.

    With `enabled=False` it is a plain value head: mu stays 0 and sigma 1.
    Not thread-safe; `update` writes the head's weights in place.
    """

    mu: Tensor
    nu: Tensor

    def __init__(
        self,
        feature_count: int,
        task_count: int = 1,
        *,
        enabled: bool = True,
        step_size: float,
    ) -> None:
        """Build the head for H hidden units.

        Args:
          feature_count: H.
          task_count: K, number of games, each of which has statistics and a value of its own.
          enabled: False keeps mu at 0 and sigma at 1.
          step_size: beta, the share of the statistics that an update replaces.
        """
        super().__init__()
        self.enabled = enabled
        self.task_count = task_count
        self.step_size = step_size
        self.linear = nn.Linear(feature_count, task_count)
        # float64, because sigma comes from the difference of two nearly equal numbers.
        self.register_buffer("mu", torch.zeros(task_count, dtype=torch.float64))
        self.register_buffer("nu", torch.ones(task_count, dtype=torch.float64))

    @property
    def sigma(self) -> Tensor:
        """[K] float64, the standard deviation of the targets, bounded."""
        # Rounding can make the variance slightly negative; the lower bound also covers that.
        variance = (self.nu - self.mu.square()).clamp(min=SIGMA_MIN**2)
        return variance.sqrt().clamp(max=SIGMA_MAX)

    def forward(self, features: Tensor, task_id: Tensor | None = None) -> Values:
        """Compute values from hidden units `features`, [..., H] float32.

        `task_id` is [...] int64, or the trailing part of it ([B] for features [T, B, H]); None
        means task 0.
        """
        predictions = self.linear(features)  # [..., K]
        if self.task_count == 1 or task_id is None:
            normalised = predictions[..., 0]
        else:
            index = task_id.expand(predictions.shape[:-1])
            normalised = predictions.gather(-1, index.unsqueeze(-1)).squeeze(-1)
        return Values(self.unnormalise(normalised, task_id), normalised)

    def normalise(self, values: Tensor, task_id: Tensor | None = None) -> Tensor:
        """Return `values` [..., B] in the units of the task of each column."""
        if not self.enabled:
            return values
        return (values - self._of_task(self.mu, task_id)) / self._of_task(self.sigma, task_id)

    def unnormalise(self, normalised: Tensor, task_id: Tensor | None = None) -> Tensor:
        """Return normalised values [..., B] in reward units."""
        if not self.enabled:
            return normalised
        return normalised * self._of_task(self.sigma, task_id) + self._of_task(self.mu, task_id)

    def scale(self, task_id: Tensor | None = None) -> Tensor:
        """Return sigma of each column's task: [B] float32, or [1] if all are of one task."""
        return self._of_task(self.sigma, task_id)

    @torch.no_grad()
    def update(
        self,
        targets: Tensor,
        task_id: Tensor | None = None,
        mask: Tensor | None = None,
        optimiser: torch.optim.Optimizer | None = None,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        """Move the statistics towards the targets, and rewrite the head so that values stay.

        Args:
          targets: [T, B] float32, value targets of V-trace, in reward units.
          task_id: [B] int64; None means task 0.
          mask: [T, B] bool or float, steps that count; None counts all.
          optimiser: optimiser of the head. Its running moments of the head's gradient are rescaled,
            because the gradient scales with the normalised error, that is with 1 / sigma.
          group: sums over learners.
        """
        if self.enabled:
            sums = group.sum_(self._sums(targets, task_id, mask), "popart")
            self._move(sums, optimiser)

    def _sums(self, targets: Tensor, task_id: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return count, sum and sum of squares of the targets that count, of each task: [3, K]."""
        targets = targets.double()
        counted = torch.ones_like(targets) if mask is None else mask.to(targets.dtype)
        sums = torch.stack([counted, counted * targets, counted * targets.square()]).sum(1)
        tasks = torch.arange(self.task_count, device=targets.device)
        task_of_column = torch.zeros_like(targets[0]) if task_id is None else task_id
        belongs = task_of_column.unsqueeze(-1) == tasks  # [B, K]
        return sums @ belongs.to(sums.dtype)

    def _move(self, sums: Tensor, optimiser: torch.optim.Optimizer | None) -> None:
        """Take one step of size beta towards the targets; none at all if a sum is not finite.

            mu <- (1 - beta) mu + beta mean(v)
            nu <- (1 - beta) nu + beta mean(v^2)
            w  <- w sigma_old / sigma_new
            b  <- (sigma_old b + mu_old - mu_new) / sigma_new

        One step per task and batch, from the mean over that task's steps in the batch: the paper
        leaves the batch case open, and this way beta does not depend on the batch size. A task
        without a step in the batch keeps its statistics and weights bit by bit.
        """
        # Not a question to the host: a GPU would have to finish all that was asked of it first.
        sums = torch.where(sums.isfinite().all(), sums, 0.0)
        count, first, second = sums  # each [K]
        old_mu, old_sigma = self.mu.clone(), self.sigma
        beta = self.step_size * (count > 0).to(sums.dtype)
        divisor = count.clamp(min=1)
        self.mu += beta * (first / divisor - self.mu)
        self.nu += beta * (second / divisor - self.nu)

        new_sigma = self.sigma
        ratio = old_sigma / new_sigma
        weight, bias = self.linear.weight, self.linear.bias
        weight.copy_(weight * ratio.unsqueeze(-1))
        bias.copy_(bias * ratio + (old_mu - self.mu) / new_sigma)
        for parameter, factor in ((weight, ratio.unsqueeze(-1)), (bias, ratio)):
            for moment, power in _moments(optimiser, parameter):
                moment.mul_(factor.pow(power).to(moment.dtype))

    def snapshot(self, optimiser: torch.optim.Optimizer | None = None) -> Callable[[], None]:
        """Remember all that `update` writes to; return a function that restores it, bit by bit."""
        if not self.enabled:
            return lambda: None
        moved = [self.mu, self.nu, self.linear.weight, self.linear.bias]
        for parameter in moved[2:]:
            moved += [moment for moment, _ in _moments(optimiser, parameter)]
        return snapshot_of(moved)

    def _of_task(self, statistic: Tensor, task_id: Tensor | None) -> Tensor:
        if self.task_count == 1 or task_id is None:
            return statistic[:1].float()  # broadcasts
        return statistic.float()[task_id]


def _moments(
    optimiser: torch.optim.Optimizer | None, parameter: Tensor
) -> list[tuple[Tensor, int]]:
    """Return the running moments of a parameter's gradient, and the power of it that they hold."""
    state = {} if optimiser is None else optimiser.state.get(parameter, {})
    return [
        (state[name], power)
        for name, power in _MOMENT_POWERS.items()
        if isinstance(state.get(name), Tensor)
    ]

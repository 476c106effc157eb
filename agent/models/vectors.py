"""`VectorStatistics` normalises vector observations, so that all numbers are of one size.

Positions, velocities and forces of a robot differ in size by orders of magnitude, and what is small
is seen late or never. With their running mean taken away, and divided by their running deviation,
all are of the size that the theory of initialisation assumes of inputs. Results published on MuJoCo
do so (Engstrom et al., "Implementation matters in deep policy gradients", 2020,
https://arxiv.org/abs/2005.12729, section 3).

The statistics are buffers of the model: they travel with its weights to the actors, are saved in
its checkpoints and shipped with it, and are those of all learners together.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ritornello.agent.models.base import TorsoWithStatistics
from ritornello.agent.models.pixels import PixelStatistics, snapshot_of
from ritornello.agent.models.precision import compute_dtype
from ritornello.agent.process_group import SINGLE_PROCESS, ProcessGroup

LARGEST = 10.0  # deviations from the mean; what is further away is shown as if it were there
LEAST_VARIANCE = 1e-8  # so that a number that never changes is shown as 0


class VectorStatistics(nn.Module):
    """Mean and variance of each number of vectors, over all vectors shown to `observe`.

    Not thread-safe; `observe` writes in place.
    """

    count: Tensor  # [] float64, vectors
    mean: Tensor  # [D] float64
    square: Tensor  # [D] float64, sum of the squared distances from the mean
    is_settled = False  # later vectors change it less and less, but always a little

    def __init__(self, width: int) -> None:
        """Start with no vector seen; until there is one, vectors are shown as they are."""
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("square", torch.zeros(width, dtype=torch.float64))

    @torch.no_grad()
    def observe(self, vectors: Tensor, group: ProcessGroup = SINGLE_PROCESS) -> None:
        """Add vectors `[N, D]` to the statistics; those of all learners together are one set.

        The formula for joining two sets is that of Chan, Golub & LeVeque (1979), which loses no
        digits where the mean is far from 0.
        """
        values = vectors.double()
        about = values.new_tensor(float(len(values)))
        sums = group.sum_(torch.cat([about.reshape(1), values.sum(0)]), "vectors")
        number = sums[0]
        if not number:
            return
        mean = sums[1:] / number
        square = group.sum_((values - mean).square().sum(0), "vector_squares")
        total = self.count + number
        distance = mean - self.mean
        self.square += square + distance.square() * (self.count * number / total)
        self.mean += distance * (number / total)
        self.count.copy_(total)

    def normalised(self, vectors: Tensor) -> Tensor:
        """Return vectors `[N, D]`, float32, in deviations from the mean, if any were seen."""
        variance = self.square / self.count.clamp(min=1)
        scale = (variance + LEAST_VARIANCE).rsqrt()
        is_known = self.count > 0
        mean = torch.where(is_known, self.mean, 0.0)
        scale = torch.where(is_known, scale, 1.0)
        shown = (vectors.float() - mean.float()) * scale.float()
        return torch.where(is_known, shown.clamp(-LARGEST, LARGEST), shown)

    def snapshot(self) -> Callable[[], None]:
        """Remember all that `observe` writes to; return a function that restores it."""
        return snapshot_of(self.buffers())


class NormalisedVectors(TorsoWithStatistics):
    """A torso whose input vectors are given in deviations from their mean."""

    def __init__(self, torso: nn.Module, width: int) -> None:
        """Put `torso` behind the statistics of vectors of `width` numbers."""
        super().__init__()
        self.statistics = VectorStatistics(width)
        self.torso = torso

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, D]` float32 to features `[N, F]`."""
        dtype = compute_dtype(next(self.torso.parameters()))
        features: Tensor = self.torso(self.statistics.normalised(obs).to(dtype))
        return features

    def unsettled(self) -> dict[int, PixelStatistics | VectorStatistics]:
        """Return the statistics, which are never settled."""
        return {0: self.statistics}

    def observe(self, obs: Tensor, group: ProcessGroup = SINGLE_PROCESS) -> None:
        """Take vectors `[N, D]` into the statistics."""
        self.statistics.observe(obs, group)

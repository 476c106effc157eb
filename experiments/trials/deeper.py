"""The default's network with residual blocks on its last map, where they are cheap.

    --model=experiments.trials.deeper:shallow_blocks

`resnet_light` has its first block on maps of 20x20, and spends its time there. Here both blocks
are on the 9x9 maps behind the second convolution of `impala_shallow`. That is twice the
multiplications of `impala_shallow`, and about a quarter of those of `resnet_light`, which has as
many layers of convolutions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.models.networks import Network, NetworkRequest
from agent.models.torsos import PixelConv2d, ResidualBlock
from flags.parts import NETWORKS


class ShallowBlocks(nn.Module):
    """`[N, C, H, W]` uint8 -> features `[N, F]`."""

    def __init__(self, want: NetworkRequest) -> None:
        """Build the torso for the observations that `want` names."""
        super().__init__()
        self.feature_count = want.feature_count or 256
        self.convs = nn.Sequential(
            PixelConv2d(want.obs_shape, 16, 8, 4, normalise=want.normalise_pixels),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, 4, 2),
            ResidualBlock(32),
            ResidualBlock(32),
            nn.ReLU(),
        )
        with torch.no_grad():
            flat_count = self.convs(torch.zeros(1, *want.obs_shape)).numel()
        self.linear = nn.Linear(flat_count, self.feature_count)

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, C, H, W]` to features `[N, F]`."""
        return F.relu(self.linear(self.convs(obs).flatten(1)))


NETWORKS.add(
    "shallow_blocks",
    Network(ShallowBlocks, sees="images", takes_raw=True, channels_last=True),
    __name__,
)

"""Residual blocks that do nothing at first: --model=experiments.trials.identity:identity_blocks.

`resnet_small` whose blocks begin as the identity, because the last convolution of each begins at
zero (Zhang et al. 2019, "Fixup Initialization", section 3; Goyal et al. 2017, section 5.1, do the
same with the gain of a block's last normalisation). So the network begins as `impala_shallow`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ritornello.agent.models.networks import Network, NetworkRequest
from ritornello.agent.models.torsos import ImageTorso, ResidualBlock
from ritornello.flags.parts import NETWORKS


class ZeroConv2d(nn.Module):
    """A 3x3 convolution from zero weights; not an nn.Conv2d, whose weights would be drawn anew."""

    def __init__(self, channels: int) -> None:
        """Build the layer for `channels` in and out."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, channels, 3, 3))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve `[N, C, H, W]` to the same shape."""
        return F.conv2d(x, self.weight, self.bias, padding=1)


def _build(want: NetworkRequest) -> ImageTorso:
    torso = ImageTorso(
        "resnet_small",
        want.obs_shape,
        want.feature_count,
        normalise_pixels=want.normalise_pixels,
        layer_norm=want.layer_norm,
    )
    for block in torso.convs:
        if isinstance(block, ResidualBlock):
            block.conv2 = ZeroConv2d(block.conv2.out_channels)  # type: ignore[assignment]
    return torso


NETWORKS.add(
    "identity_blocks",
    Network(_build, sees="images", takes_raw=True, takes_layer_norm=True, channels_last=True),
    __name__,
)

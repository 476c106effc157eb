"""`resnet_small` with half as many channels within its blocks: an arm of queue.yaml.

    --model=research.narrow_blocks:narrow_blocks

The first convolution of a block maps 32 channels to 16, the second maps them back. The network is
as deep, and each of its features depends on as many pixels, for half of the multiplications of the
blocks: 4.5 million for a frame stack of Atari (`resnet_small` 6, `impala_shallow` 3).
"""

from __future__ import annotations

from functools import partial

from torch import nn

from ritornello.agent.models.networks import Network
from ritornello.agent.models.torsos import IMAGE_TORSOS, FirstConv, ImageTorso, ResidualBlock
from ritornello.flags.parts import NETWORKS


class NarrowBlock(ResidualBlock):
    """A residual block with `channels / 2` channels between its two convolutions."""

    def __init__(self, channels: int) -> None:
        """Build the block for `channels` in and out."""
        super().__init__(channels)
        self.conv1 = nn.Conv2d(channels, channels // 2, 3, padding=1)
        self.conv2 = nn.Conv2d(channels // 2, channels, 3, padding=1)


def _convs(first: FirstConv) -> list[nn.Module]:
    return [
        first(16, 8, 4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, 2),
        NarrowBlock(32),
        NarrowBlock(32),
        nn.ReLU(),
    ]


IMAGE_TORSOS["narrow_blocks"] = (_convs, 256)
_network = Network(
    partial(ImageTorso, "narrow_blocks"), "images", takes_raw=True, takes_layer_norm=True,
    channels_last=True,
)  # fmt: skip
NETWORKS.add("narrow_blocks", _network, __name__)

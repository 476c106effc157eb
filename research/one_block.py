"""The network between `impala_shallow` and `resnet_small`: an arm of queue.yaml.

    --model=research.one_block:one_block

For a frame stack of Atari the two blocks of `resnet_small` take half of its 6 million
multiplications; this network has one of them.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from ritornello.agent.models.networks import Network
from ritornello.agent.models.torsos import IMAGE_TORSOS, FirstConv, ImageTorso, ResidualBlock
from ritornello.flags.parts import NETWORKS


def _convs(first: FirstConv) -> list[nn.Module]:
    return [first(16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), ResidualBlock(32), nn.ReLU()]


IMAGE_TORSOS["one_block"] = (_convs, 256)
_network = Network(
    partial(ImageTorso, "one_block"), "images", takes_raw=True, takes_layer_norm=True,
    channels_last=True,
)  # fmt: skip
NETWORKS.add("one_block", _network, __name__)

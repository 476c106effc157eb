"""`resnet_small` with a max pooling before its blocks: an arm of queue.yaml.

    --model=research.pooled_blocks:pooled_blocks

The convolutions of IMPALA's deep network are pooled before its blocks (Espeholt et al. 2018,
figure 3 right). For a frame stack of Atari the blocks then see maps of 5x5, not 9x9, and take 0.9
of 3.4 million multiplications, not 3 of 6; `impala_shallow` has 3 million in all.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from ritornello.agent.models.networks import Network
from ritornello.agent.models.torsos import IMAGE_TORSOS, FirstConv, ImageTorso, ResidualBlock
from ritornello.flags.parts import NETWORKS


def _convs(first: FirstConv) -> list[nn.Module]:
    return [
        first(16, 8, 4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, 2),
        nn.MaxPool2d(3, stride=2, padding=1),
        ResidualBlock(32),
        ResidualBlock(32),
        nn.ReLU(),
    ]


IMAGE_TORSOS["pooled_blocks"] = (_convs, 256)
_network = Network(
    partial(ImageTorso, "pooled_blocks"), "images", takes_raw=True, takes_layer_norm=True,
    channels_last=True,
)  # fmt: skip
NETWORKS.add("pooled_blocks", _network, __name__)

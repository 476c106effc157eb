"""`impala_shallow` with two dense residual blocks behind its features: an arm of queue.yaml.

    --model=research.dense_blocks:dense_blocks

A block adds two linear layers to its input, which is normalised first (SimBa, Lee et al. 2025,
https://arxiv.org/abs/2410.09754, figure 4, here without widening). The two have 0.26 million
multiplications, a tenth of those of the network.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ritornello.agent.models.networks import Network, NetworkRequest
from ritornello.agent.models.torsos import ImageTorso
from ritornello.flags.parts import NETWORKS


class DenseBlock(nn.Module):
    """Normalisation, two linear layers with a ReLU between, added to the input."""

    def __init__(self, width: int) -> None:
        """Build the block for `width` features in and out."""
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear1 = nn.Linear(width, width)
        self.linear2 = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[N, F]` to the same shape."""
        return x + self.linear2(F.relu(self.linear1(self.norm(x))))


class DenseBlocksTorso(ImageTorso):
    """The torso `impala_shallow`, then two blocks and a ReLU."""

    def __init__(self, request: NetworkRequest) -> None:
        """Build the torso."""
        super().__init__("impala_shallow", request)
        self.blocks = nn.Sequential(*(DenseBlock(self.feature_count) for _ in range(2)))

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, C, H, W]` to features `[N, F]`."""
        return F.relu(self.blocks(super().forward(obs)))


NETWORKS.add(
    "dense_blocks",
    Network(DenseBlocksTorso, "images", takes_raw=True, takes_layer_norm=True),
    __name__,
)

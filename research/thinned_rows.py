"""Networks whose torso learns from a share of the rows of a batch: arms of queue.yaml.

    --model=research.thinned_rows:small_quarter      --model=research.thinned_rows:quarter

Consecutive rows of an unroll look alike, and all of them are needed for V-trace's targets, but not
for the gradient of the torso. A random share of the rows gets a backward pass, its gradient divided
by the share, so that the expected gradient stays what it was. Core and heads learn from all rows.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ritornello.agent.models.networks import Network, NetworkRequest
from ritornello.agent.models.torsos import ImageTorso
from ritornello.flags.parts import NETWORKS


class ThinnedTorso(ImageTorso):
    """A torso with a backward pass for `share` of its rows."""

    def __init__(self, share: float, name: str, request: NetworkRequest) -> None:
        """Build torso `name` of IMAGE_TORSOS."""
        super().__init__(name, request)
        self.share = share

    def forward(self, obs: Tensor) -> Tensor:
        """Map `[N, C, H, W]` to features `[N, F]`."""
        if not torch.is_grad_enabled():
            return super().forward(obs)
        shuffled = torch.randperm(len(obs))
        count = round(self.share * len(obs))
        learned = super().forward(obs[shuffled[:count]])
        learned.register_hook(lambda gradient: gradient / self.share)
        with torch.no_grad():
            others = super().forward(obs[shuffled[count:]])
        return torch.cat([learned, others])[shuffled.argsort()]


for _prefix, _name in (("", "impala_shallow"), ("small_", "resnet_small")):
    for _label, _share in (("half", 1 / 2), ("quarter", 1 / 4)):
        _network = Network(
            partial(ThinnedTorso, _share, _name), "images", takes_raw=True, takes_layer_norm=True,
            channels_last=_name.startswith("resnet"),
        )  # fmt: skip
        NETWORKS.add(_prefix + _label, _network, __name__)
